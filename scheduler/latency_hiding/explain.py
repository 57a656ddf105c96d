"""Why an instruction stands where it stands: candidates, rules, numbers.

%all-gather-start.2 in %main: line 3 of 9, placed 7th from the end
  a candidate from 1010.0 us before the end on, stall-free from 5010.0 us on
  lost 4 comparisons before: kLessStall 3 times, last to %fusion.4 ...
  chosen at 5020.0 us before the end over
    %fusion.1    kAsyncDepth    more asynchronous latency above it, us: 713.2, 0.0
  not considered
    %all-gather-done.1    needs 1 of kGpuAsyncStreamCollectives, 0 are free
"""

from __future__ import annotations

from typing import Final

from scheduler.latency_hiding.rule import Rule
from scheduler.latency_hiding.scan import RuleScan
from scheduler.latency_hiding.state import SchedulingState

#: Candidates listed in full; the others are counted by rule.
_LISTED: Final = 20


class Explainer:
    """A policy that scans rule by rule and remembers what concerns one node."""

    def __init__(self, node: int, rules: tuple[Rule, ...]) -> None:
        """Explains `node`."""
        self._node = node
        self._rules = rules
        self._scan = RuleScan(rules, self._note)
        self._lost: dict[str, tuple[int, int]] = {}
        self._now: list[tuple[str, int]] = []
        self._available_us: float | None = None
        self._told: list[str] = []
        self.runner_up: int | None = None

    def _note(self, chosen: int, other: int | None, rule: Rule | None) -> None:
        if other == self._node and rule is not None:
            self._now.append((rule.reason, chosen))

    def pick(self, state: SchedulingState) -> int | None:
        """As the rules have it."""
        node = self._node
        if self._available_us is None and node in state.ready:
            self._available_us = state.now
        self._now.clear()
        slot = self._scan.pick(state)
        self.runner_up = self._scan.runner_up
        if slot is not None and state.ready[slot] == node:
            self._told = self._tell_choice(state)
        else:
            for reason, winner in self._now:
                count = self._lost.get(reason, (0, 0))[0]
                self._lost[reason] = count + 1, winner
        return slot

    def _tell_choice(self, state: SchedulingState) -> list[str]:
        """Against whom it won, by which rule, with which numbers."""
        node, name = self._node, state.graph.name
        fitting = [n for n in state.ready if n != node and state.fits(n)]
        misfits = [n for n in state.ready if n != node and not state.fits(n)]
        if not fitting:
            lines = [f"  chosen at {_us(state.now)}: the only candidate that fits"]
        else:
            lines = [f"  chosen at {_us(state.now)} over {len(fitting)} candidates"]
        width = max((len(name(n)) for n in fitting[:_LISTED]), default=0)
        for n in fitting[:_LISTED]:
            rule, _ = self._scan.compare(state, node, n)
            mine, other = rule.number(state, node), rule.number(state, n)
            lines.append(
                f"    %{name(n):{width}}  {rule.reason}: {rule.prefers}: "
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
            f"{_us(state.ready_at[node])}"
        ]
        if graph.is_noop[node]:
            lines.append("  a no-op: placed as soon as nothing held it back any more")
        elif not self._told:
            lines.append("  placed with its scheduling group")
        if self._available_us is not None:
            lines.append(f"  a candidate from {_us(self._available_us)} on")
        for reason, (times, winner) in self._lost.items():
            lines.append(
                f"  had to wait {times} times by {reason}, at last for "
                f"%{graph.name(winner)}"
            )
        return "\n".join([*lines, *self._told])


def _us(time: float) -> str:
    return f"{time:,.6g} us before the end"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
