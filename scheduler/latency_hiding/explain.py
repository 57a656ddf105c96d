"""Explains why an instruction is where it is: candidates, rules, numbers.

%s in %main: instruction 3 of 9 (before: 5), at 5,020 us before the end
  5,010 us before its done %d, latency 5,000 us
  constraint: before %g: control edge
  a candidate from 1,010 us before the end on
  lost 3 comparisons by kLessStall, at last to %f
  chosen at 5,020 us before the end over 1 other
    %g  kAsyncDepth: more asynchronous latency above it, us: 713.2 against 0
  not considered
    %d.1 needs 1 of kGpuAsyncStreamCollectives (0 free)
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from hlo_passes.ir.async_form import is_collective, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.plurals import plural
from hlo_passes.scheduler.latency_hiding.candidates import Candidates
from hlo_passes.scheduler.latency_hiding.constraints import constraints_of
from hlo_passes.scheduler.latency_hiding.pairs import PairScan, Policy
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Candidates listed in full; the others are counted by rule.
_LISTED: Final = 20
#: Names of synchronous collectives in a line.
_NAMED: Final = 5


class Explainer:
    """A policy that watches another, and records what concerns one node.

    While the node is a candidate it scans rule by rule beside that policy.
    """

    def __init__(
        self,
        node: int,
        state: SchedulingState,
        rules: tuple[Rule, ...],
        policy: Policy,
    ) -> None:
        """Explains `node` of a state; `policy` decides."""
        self._node = node
        self._state = state
        self._policy = policy
        self._scan = PairScan(state, rules, self._note)
        self._lost: dict[str, tuple[int, int]] = {}
        self._now: list[tuple[str, int]] = []
        self._available_us: float | None = None
        self._told: list[str] = []
        self.runner_up: int | None = None

    def _note(self, chosen: int, other: int | None, rule: Rule | None) -> None:
        if other == self._node and rule is not None:
            self._now.append((rule.reason, chosen))

    def pick(self, candidates: Candidates, group: int = -1) -> int | None:
        """As the watched policy has it."""
        node, state = self._node, self._state
        slot = self._policy.pick(candidates, group)
        self.runner_up = self._policy.runner_up
        if state.placed[node] or state.ready_at[node] == math.inf:
            return slot
        if self._available_us is None:
            self._available_us = state.now
        if slot is not None and candidates[slot] == node:
            self._told = self._tell_choice(state)
            return slot
        self._now.clear()
        self._scan.pick(candidates, group)
        for reason, winner in self._now:
            count = self._lost.get(reason, (0, 0))[0]
            self._lost[reason] = count + 1, winner
        return slot

    def _tell_choice(self, state: SchedulingState) -> list[str]:
        """The candidates that it beat, by which rule, with which numbers."""
        node, name = self._node, state.graph.name
        fitting = [n for n in state.ready if n != node and state.fits(n)]
        misfits = [n for n in state.ready if n != node and not state.fits(n)]
        if not fitting:
            lines = [
                f"  chosen at {_at(state.now, state)}: the only candidate that fits"
            ]
        else:
            over = f"{len(fitting):,} {plural(len(fitting), 'other')}"
            lines = [f"  chosen at {_at(state.now, state)} over {over}"]
        width = max((len(name(n)) for n in fitting[:_LISTED]), default=0)
        for n in fitting[:_LISTED]:
            rule, _ = self._scan.compare(node, n)
            prefers = rule.prefers_in(state.settings.time_unit)
            mine, other = rule.number(state, node), rule.number(state, n)
            lines.append(
                f"    %{name(n):{width}}  {rule.reason}: {prefers}: "
                f"{_number(mine)} against {_number(other)}"
            )
        if len(fitting) > _LISTED:
            lines.append(f"    and {len(fitting) - _LISTED} more")
        if misfits:
            lines.append("  not considered")
            lines += [f"    {state.misfit(n)}" for n in misfits[:_LISTED]]
            if len(misfits) > _LISTED:
                lines.append(f"    and {len(misfits) - _LISTED} more")
        return lines

    def text(self, state: SchedulingState) -> str:
        """The explanation, once everything is placed."""
        graph, node = state.graph, self._node
        count = len(graph)
        step = state.order.index(node)
        line = step if state.top_down else count - 1 - step
        lines = [
            f"%{graph.name(node)} in %{graph.computation.name}: instruction "
            f"{line + 1:,} of {count:,} (before: {node + 1:,}), at "
            f"{_at(state.ready_at[node], state)}"
        ]
        if graph.is_noop[node]:
            lines.append("  a no-op: placed as soon as nothing held it back")
        elif not self._told:
            lines.append("  placed with its scheduling group")
        lines += self._pair(state)
        lines += [f"  constraint: {text}" for text in constraints_of(graph, node)]
        if self._available_us is not None:
            since = _at(self._available_us, state)
            lines.append(f"  a candidate from {since} on")
        for reason, (times, winner) in self._lost.items():
            lines.append(
                f"  lost {times:,} {plural(times, 'comparison')} by {reason}, the last "
                f"one to %{graph.name(winner)}"
            )
        return "\n".join([*lines, *self._told])

    def _pair(self, state: SchedulingState) -> list[str]:
        """How far a start is from its done."""
        graph, start = state.graph, self._node
        for done in graph.succs[start]:
            if graph.is_start[start] and graph.is_done[done]:
                unit = state.settings.time_unit
                between = abs(state.ready_at[start] - state.ready_at[done])
                return [
                    f"  {between:,.6g} {unit} before its done %{graph.name(done)}, "
                    f"latency {graph.latency_us(start, done):,.6g} {unit}"
                ]
        return []


def why_left_alone(
    module: Module, name: str, scheduled: Collection[Computation]
) -> str:
    """Why the scheduler did not place an instruction; '' if it is not there, or did.

    Args:
        module: after the scheduler.
        name: of the instruction.
        scheduled: the computations that the scheduler ordered.
    """
    for computation in module.computations:
        instruction = computation.find(name)
        if instruction is None or computation in scheduled:
            continue
        lines = [f"%{name} in %{computation.name}, which the scheduler does not order"]
        pairs = sum(is_start(i) for i in computation.instructions)
        if pairs:
            lines.append("  the computation is part of a kernel, or not reached")
            return "\n".join(lines)
        lines.append(
            "  nothing in this computation is asynchronous (no start and done), so "
            "there is nothing to overlap"
        )
        waiting = [i for i in computation.instructions if is_collective(i)]
        if waiting:
            names = ", ".join(f"%{i.name}" for i in waiting[:_NAMED])
            more = f" and {len(waiting) - _NAMED} more" * (len(waiting) > _NAMED)
            lines.append(
                f"  synchronous: {names}{more}; async-collective-creator before the "
                "scheduler, or gpu-schedule in its place, makes them start and done"
            )
        return "\n".join(lines)
    return ""


def _at(time: float, state: SchedulingState) -> str:
    """A time, from the end of the computation that was placed first."""
    end = "after the beginning" if state.top_down else "before the end"
    return f"{time:,.6g} {state.settings.time_unit} {end}"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
