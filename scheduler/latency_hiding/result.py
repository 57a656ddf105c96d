"""What scheduling a module gives: orders, statistics, and what was decided.

A log has every comparison, in the layout of XLA's:

    tuple.129             <TAB>                    <TAB> first
    loop_add_fusion.4     <TAB> loop_add_fusion.5  <TAB> kAsyncDepth

Winner, loser, rule; a scan's first candidate has no loser. No-ops are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.pairs import Watcher
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.statistics import Statistics

#: Reason of a scan's first candidate.
FIRST = "first"


class Decision(NamedTuple):
    """One comparison of the scheduler, as XLA logs it.

    Attributes:
        chosen: name of the winner.
        other: name of the loser; '' for the first candidate of a scan.
        reason: XLA's name of the rule that decided, `first` for a first candidate.
    """

    chosen: str
    other: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComputationSchedule:
    """One computation after scheduling.

    Attributes:
        computation: scheduled.
        order: its new order.
        before: statistics of the order it had.
        after: statistics of the new one.
        decisions: every comparison, if requested.
        start_reasons: by start of an asynchronous pair, the rule that decided its place
            against the next best candidate ('' if there was no other).
        dropped_hazards: (user, start) of what the start may overwrite while the user
            has not read it: the edges that would keep them apart close a cycle.
    """

    computation: Computation
    order: tuple[Instruction, ...]
    before: Statistics
    after: Statistics
    decisions: tuple[Decision, ...] = ()
    start_reasons: dict[Instruction, str] = field(default_factory=dict)
    dropped_hazards: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """A module after scheduling.

    Attributes:
        module: whose computations have their new orders.
        computations: those that were scheduled, in that order.
        peak_bytes: memory pressure peak of the module, None where not tracked.
        memory_limit_bytes: the advisory limit of the last round, None for none.
        reruns: rounds beyond the first.
        explanation: of the requested instruction; '' for none.
        kept_input_order: why the orders did not change; '' if they did.
        left: computations that were not scheduled though something is asynchronous,
            and why.
    """

    module: Module
    computations: tuple[ComputationSchedule, ...]
    peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    reruns: int = 0
    explanation: str = ""
    kept_input_order: str = ""
    left: Mapping[Computation, str] = field(default_factory=dict)

    @property
    def decisions(self) -> Iterable[Decision]:
        """All comparisons, in the order in which they were made."""
        return (d for c in self.computations for d in c.decisions)


class DecisionLog:
    """Collects the decisions of one computation."""

    def __init__(self) -> None:
        """Empty."""
        self.decisions: list[Decision] = []

    def watch(self, graph: ScheduleGraph) -> Watcher:
        """What a scan of this graph reports to."""
        decisions, name = self.decisions, graph.name

        def note(chosen: int, other: int | None, rule: Rule | None) -> None:
            loser = "" if other is None else name(other)
            reason = FIRST if rule is None else rule.reason
            decisions.append(Decision(name(chosen), loser, reason))

        return note


def log_text(decisions: Iterable[Decision]) -> str:
    """The lines of a log."""
    return "".join("\t".join(decision) + "\n" for decision in decisions)
