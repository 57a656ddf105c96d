"""The step, what is in flight and what is live, written as plainly as they can be.

It shares nothing with the evaluation of windows: one walk over a whole order of atoms,
with a clock, a list of what is in flight and a set of what is live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlo_passes.scheduler.improver.atoms import Atoms
from hlo_passes.scheduler.improver.problem import Problem


@dataclass
class Walk:
    """What a whole order leads to."""

    step_us: float = 0.0
    waits: dict[int, float] = field(default_factory=dict)
    in_flight: list[dict[int, float]] = field(default_factory=list)
    usage: list[int] = field(default_factory=list)
    peak: int = 0
    breaks: bool = False


def walk(atoms: Atoms, order: Sequence[int]) -> Walk:
    """Everything about an order of atoms."""
    found = Walk()
    _times(atoms, order, found)
    _memory(atoms, order, found)
    return found


def _times(atoms: Atoms, order: Sequence[int], found: Walk) -> None:
    problem = atoms.problem
    now = 0.0
    ends: dict[int, float] = {}
    for v in order:
        found.in_flight.append({s: max(0.0, e - now) for s, e in ends.items()})
        nodes = atoms.members[v]
        for n in nodes:
            if problem.is_start[n]:
                same = [
                    e for s, e in ends.items() if atoms.stream[s] == atoms.stream[v]
                ]
                ends[v] = max([now, *same]) + problem.latency_us[n]
            if problem.is_done[n]:
                start = atoms.atom_of[problem.partner[n]]
                found.waits[v] = max(0.0, ends.pop(start) - now)
                now += found.waits[v]
        now += sum(problem.cost_us[n] for n in nodes)
        found.breaks |= _breaks(atoms, problem, v, ends)
    found.in_flight.append({s: max(0.0, e - now) for s, e in ends.items()})
    found.step_us = now


def _breaks(atoms: Atoms, problem: Problem, v: int, ends: dict[int, float]) -> bool:
    """Whether too much, or what clashes, is in flight once an atom runs."""
    used: dict[int, int] = {}
    for s in ends:
        for n in atoms.members[s]:
            for r, change in problem.changes.get(n, ()):
                used[r] = used.get(r, 0) + change
    for n in atoms.members[v]:
        for r, count in problem.needs.get(n, ()):
            used[r] = used.get(r, 0) + count
    others = {n for s in ends if s != v for n in atoms.members[s]}
    clashes = any(
        others & problem.clashes.get(n, frozenset()) for n in atoms.members[v]
    )
    return clashes or any(count > problem.limits[r] for r, count in used.items())


def _memory(atoms: Atoms, order: Sequence[int], found: Walk) -> None:
    memory = atoms.problem.memory
    ignored = {b for n in atoms.floating for b in memory.frees[n]}
    live = set(memory.initial_live)
    below = sum(memory.sizes_bytes[b] for b in live)
    usage = [0]
    for v in reversed(order):
        nodes = atoms.members[v]
        inner = max(memory.inner_peak_bytes[n] for n in nodes)
        begun = {b for n in nodes for b in memory.allocs[n]} - ignored
        ended = {b for n in nodes for b in memory.frees[n]}
        now = sum(memory.sizes_bytes[b] for b in live) - below
        with_all = sum(memory.sizes_bytes[b] for b in live | begun) - below
        found.peak = max(found.peak, now + inner, with_all)
        live = (live | begun) - ended
        usage.append(sum(memory.sizes_bytes[b] for b in live) - below)
    found.usage = usage[::-1]
