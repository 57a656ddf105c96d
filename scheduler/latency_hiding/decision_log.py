"""Every comparison of a run, in the layout of XLA's log.

    tuple.129             <TAB>                    <TAB> first
    loop_add_fusion.4     <TAB> loop_add_fusion.5  <TAB> kAsyncDepth

Winner, loser, rule; a scan's first candidate has no loser. No-ops are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.result import FIRST, Decision
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.scan import Watcher


class DecisionLog:
    """Collects the decisions of one computation."""

    def __init__(self) -> None:
        """Start without decisions."""
        self.decisions: list[Decision] = []

    def watch(self, graph: ScheduleGraph) -> Watcher:
        """The watcher for a scan of this graph."""
        decisions, name = self.decisions, graph.name

        def note(chosen: int, other: int | None, rule: Rule | None) -> None:
            loser = "" if other is None else name(other)
            reason = FIRST if rule is None else rule.reason
            decisions.append(Decision(name(chosen), loser, reason))

        return note


def log_text(decisions: Iterable[Decision]) -> str:
    """The lines of a log."""
    return "".join("\t".join(decision) + "\n" for decision in decisions)
