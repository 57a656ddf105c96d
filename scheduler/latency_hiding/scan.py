"""Choosing a candidate: the linear scan, rule by rule, and who may watch it.

    scan = RuleScan(active_rules(settings))
    slot = scan.pick(state, state.ready)

This is the readable form, for lists of rules that were changed, for logs and for
explanations. `fast_scan` gives the same choices for XLA's own list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Called with (winner, loser or None for a first candidate, rule or None).
Watcher = Callable[[int, int | None, Rule | None], None]


#: What decides when no rule does: the one that came first stays.
FIRST_COME: Final = Rule(
    "first-come", "none", "the earlier candidate", lambda s, a, b: 0, lambda s, n: None
)


class Policy(Protocol):
    """Decides which candidate is placed next.

    Attributes:
        runner_up: a candidate that the last choice left behind last; None for none.
    """

    runner_up: int | None

    def pick(self, state: SchedulingState) -> int | None:
        """Slot of the choice in `state.ready`; None when nothing fits."""
        ...


class RuleScan:
    """Compares candidates in list order with the best so far."""

    def __init__(self, rules: Sequence[Rule], watcher: Watcher | None = None) -> None:
        """`watcher` hears of every comparison."""
        self.rules = tuple(rules)
        self.watcher = watcher
        self.runner_up: int | None = None

    def pick(self, state: SchedulingState) -> int | None:
        """Slot of the choice in `state.ready`; None when nothing fits."""
        best_slot: int | None = None
        best = -1
        self.runner_up = None
        groups, watcher = state.groups, self.watcher
        for slot, n in enumerate(state.ready):
            if groups is not None and groups.group_of(n) != -1:
                continue
            if not state.fits(n):
                continue
            if best_slot is None:
                best_slot, best = slot, n
                if watcher is not None:
                    watcher(n, None, None)
                continue
            rule, verdict = self.compare(state, n, best)
            loser = n
            if verdict > 0:
                loser = best
                best_slot, best = slot, n
            self.runner_up = loser
            if watcher is not None:
                watcher(best, loser, rule)
        return best_slot

    def compare(self, state: SchedulingState, a: int, b: int) -> tuple[Rule, int]:
        """The rule that tells two candidates apart, and its verdict on the first."""
        for rule in self.rules:
            verdict = rule.compare(state, a, b)
            if verdict:
                return rule, verdict
        return FIRST_COME, 0
