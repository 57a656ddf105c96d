"""The whole order of a computation again, instruction by instruction and exactly.

fault_of     an edge against the order, or a limit that it breaks
peak_bytes   the most that is live, with what lives below the computation
xla_us       the length of the order in XLA's statistic

Nothing here knows about atoms or windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.scheduler.improver.problem import Problem
from hlo_passes.scheduler.latency_hiding.resources import RESOURCE_NAMES, Resource
from hlo_passes.scheduler.memory.pressure import PressureState


def fault_of(problem: Problem, order: Sequence[int]) -> str:
    """What an order breaks; '' for nothing."""
    place = {n: k for k, n in enumerate(order)}
    if len(place) != len(problem) or len(order) != len(problem):
        return "it is not an order of all instructions"
    for n, succs in enumerate(problem.succs):
        for s in succs:
            if place[n] >= place[s]:
                return f"%{problem.name(s)} comes before %{problem.name(n)}"
    used: dict[int, int] = {}
    for n in problem.handed_over:
        for r, change in problem.changes.get(n, ()):
            used[r] = used.get(r, 0) - min(0, change)
    in_flight: set[int] = set()
    for n in order:
        for r, change in problem.changes.get(n, ()):
            used[r] = used.get(r, 0) + change
            if change > 0 and used[r] > problem.limits[r]:
                return f"%{problem.name(n)} is beyond the limit of {_name(r)}"
        for r, count in problem.needs.get(n, ()):
            if used.get(r, 0) + count > problem.limits[r]:
                return f"%{problem.name(n)} is beyond the limit of {_name(r)}"
        if problem.is_start[n]:
            if not problem.clashes.get(n, frozenset()).isdisjoint(in_flight):
                return f"%{problem.name(n)} shares ranks with what is in flight"
            in_flight.add(n)
        elif problem.is_done[n]:
            in_flight.discard(problem.partner[n])
    return ""


def peak_bytes(problem: Problem, order: Sequence[int]) -> int:
    """The memory pressure peak of an order."""
    state = PressureState(problem.memory)
    for n in reversed(order):
        state.place(n)
    return problem.memory.initial_bytes + state.peak_delta_bytes


def xla_us(problem: Problem, order: Sequence[int]) -> float:
    """The length of an order in XLA's statistic."""
    starts = {start for start, _ in problem.xla_pairs.values()}
    begun: dict[int, int] = {}
    now = 0.0
    for n in order:
        now += problem.xla_cost_us[n]
        if n in starts:
            begun[n] = int(now)
        elif n in problem.xla_pairs:
            start, latency = problem.xla_pairs[n]
            now += max(0.0, latency - (now - begun[start]))
    return now


def _name(resource: int) -> str:
    return RESOURCE_NAMES[Resource(resource)]
