"""What a rule is: a name, XLA's reason, and a comparison of two candidates.

    Rule("less-stall", "kLessStall", "the shorter stall", compare, number)

`compare(state, a, b)` is positive when `a` is preferred, negative for `b`, 0 when the
rule has no opinion. The first rule with an opinion decides. A comparison by a number
per candidate is made with `by_number`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

Compare = Callable[[SchedulingState, int, int], int]
Number = Callable[[SchedulingState, int], Any]
Applies = Callable[[SchedulerSettings], bool]


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
        compare: positive for the first candidate, negative for the second.
        number: what `--explain` shows of a candidate.
        applies: whether settings turn it on.
        condition: that, in words; '' for always.
    """

    name: str
    reason: str
    prefers: str
    compare: Compare
    number: Number
    applies: Applies = always
    condition: str = ""


def by_number(
    name: str,
    reason: str,
    prefers: str,
    number: Number,
    *,
    smaller: bool = False,
    reversed_top_down: bool = False,
    applies: Applies = always,
    condition: str = "",
) -> Rule:
    """A rule that prefers the larger number (True before False), or the smaller."""
    sign = -1 if smaller else 1

    def compare(state: SchedulingState, a: int, b: int) -> int:
        of_a, of_b = number(state, a), number(state, b)
        direction = -sign if reversed_top_down and state.top_down else sign
        return direction * ((of_a > of_b) - (of_a < of_b))

    return Rule(name, reason, prefers, compare, number, applies, condition)
