"""A rule is one row that works on one candidate, and on all at once.

    by_number("less-stall", "kLessStall", "the shorter stall, us",
              lambda s, n: s.stall(n), smaller=True)

`number(s, n)` is called in two ways. With a `SchedulingState` and one node it answers
for that node; with `columns.Columns`, which has the same names, and an array of nodes
it answers with an array. An index serves both: `s.graph.cost[n]`. A function that takes
one node only is called node by node, which is slower but always right.

The first rule with an opinion decides. A rule without a number has its own comparison
of two candidates: `Rule(name, reason, prefers, compare, number)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

Compare = Callable[[SchedulingState, int, int], int]
#: Takes (state, node) or (columns, array of nodes).
Number = Callable[[Any, Any], Any]
Applies = Callable[[SchedulerSettings], bool]
Awake = Callable[[SchedulingState], bool]
#: Facts of a rule that are equal for all nodes of a class (see `classes.py`): none, its
#: kind, or all.
ByClass = Literal["", "kind", "all"]
#: How `prefers` ends where the number is a time.
_MICROSECONDS: Final = ", us"


def always(settings: SchedulerSettings) -> bool:
    """For rules that no setting turns off."""
    del settings
    return True


def bottom_up(settings: SchedulerSettings) -> bool:
    """For rules of the usual direction."""
    return not settings.top_down_scheduling


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the comparison.

    Attributes:
        name: unique, kebab-case: how a list of rules spells it.
        reason: XLA's name for it, as its log has it; several rules may share one.
        prefers: what is placed sooner (bottom-up: later in the program), in words.
        compare: positive for the first candidate, negative for the second, 0 for no
            opinion.
        number: what decides, and what `--explain` shows of a candidate.
        applies: whether settings turn it on.
        condition: that, in words; '' for always.
        by_number: whether the comparison is that of `number`; the fields below
            describe such rules alone.
        smaller: whether the smaller number is preferred.
        reversed_top_down: whether the other one is, top-down.
        kind: two candidates are compared only if their kinds are equal and not 0; None
            where all are.
        winner_only: only the winner's kind must not be 0.
        concerns: whether it can have an opinion on a computation, asked once; None for
            always.
        awake: whether it has an opinion now; None for always.
        by_class: what is equal for all nodes of a class.
        proven: numbers of arrays are those of nodes and never NaN, as a test checks; a
            rule that is not proven is tried against single nodes.
    """

    name: str
    reason: str
    prefers: str
    compare: Compare
    number: Number
    applies: Applies = always
    condition: str = ""
    by_number: bool = False
    smaller: bool = False
    reversed_top_down: bool = False
    kind: Number | None = None
    winner_only: bool = False
    concerns: Awake | None = None
    awake: Awake | None = None
    by_class: ByClass = ""
    proven: bool = False

    def prefers_in(self, unit: str) -> str:
        """What is placed sooner, with the unit that its number is in."""
        what = self.prefers.removesuffix(_MICROSECONDS)
        return self.prefers if what == self.prefers else f"{what}, {unit}"

    def wants_smaller(self, top_down: bool) -> bool:
        """Whether the smaller number wins in a direction."""
        return self.smaller != (self.reversed_top_down and top_down)


def by_number(
    name: str,
    reason: str,
    prefers: str,
    number: Number,
    *,
    applies: Applies = always,
    condition: str = "",
    smaller: bool = False,
    reversed_top_down: bool = False,
    kind: Number | None = None,
    winner_only: bool = False,
    concerns: Awake | None = None,
    awake: Awake | None = None,
    by_class: ByClass = "",
    proven: bool = False,
) -> Rule:
    """A rule that prefers the larger number (True before False), or the smaller.

    Args:
        name: unique, kebab-case.
        reason: as a log shows it.
        prefers: what is placed sooner, in words.
        number: of one node, or of an array of nodes.
        applies: whether settings turn it on; `condition` says so in words.
        condition: see `applies`.
        smaller: the smaller number is preferred.
        reversed_top_down: and the other one top-down.
        kind: see `Rule`, as are the other arguments.
        winner_only: only the winner's kind counts.
        concerns: whether it can have an opinion on a computation.
        awake: whether it has an opinion now.
        by_class: what is equal for all nodes of a class.
        proven: whether arrays need not be tried against single nodes.
    """

    def compare(state: SchedulingState, a: int, b: int) -> int:
        if awake is not None and not awake(state):
            return 0
        of_a, of_b = number(state, a), number(state, b)
        verdict = 1 if of_a > of_b else -1 if of_a < of_b else 0
        if smaller != (reversed_top_down and state.top_down):
            verdict = -verdict
        if kind is None or not verdict:
            return verdict
        if winner_only:
            return verdict if kind(state, a if verdict > 0 else b) else 0
        own = kind(state, a)
        return verdict if own and own == kind(state, b) else 0

    return Rule(
        name, reason, prefers, compare, number, applies, condition,
        by_number=True, smaller=smaller, reversed_top_down=reversed_top_down, kind=kind,
        winner_only=winner_only, concerns=concerns, awake=awake, by_class=by_class,
        proven=proven,
    )  # fmt: skip
