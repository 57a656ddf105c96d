"""Chooses a candidate pair by pair, for logs and explanations, which watch.

    PairScan(state, rules, watcher).pick(state.ready)       slot of the choice

In list order, a candidate replaces the best so far if the first rule with an opinion
prefers it. This is the definition; `scan.py` gives the same choices, faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hlo_passes.scheduler.latency_hiding.candidates import Candidates
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Called with (winner, loser or None for a first candidate, rule or None).
Watcher = Callable[[int, int | None, Rule | None], None]

#: The verdict when no rule has one: the earlier candidate stays.
FIRST_COME: Final = Rule(
    "first-come", "none", "the earlier candidate", lambda s, a, b: 0, lambda s, n: None
)


class Policy(Protocol):
    """Decides which candidate is placed next."""

    @property
    def runner_up(self) -> int | None:
        """The last candidate that lost to the last choice; None if there was none."""
        ...

    def pick(self, candidates: Candidates, group: int = ...) -> int | None:
        """Slot of the choice; None when nothing fits.

        Args:
            candidates: in list order.
            group: the scheduling group whose members are considered, -1 for nodes
                that belong to none.
        """
        ...


def considered(state: SchedulingState, candidates: Candidates, group: int) -> list[int]:
    """Candidates of a group that fit, in list order."""
    groups = state.groups
    return [
        n
        for n in candidates
        if (groups is None or groups.group_of(n) == group) and state.fits(n)
    ]


def concerned(state: SchedulingState, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules that can have an opinion on a computation."""
    return tuple(r for r in rules if r.concerns is None or r.concerns(state))


class PairScan:
    """Compares candidates in list order with the best so far."""

    def __init__(
        self,
        state: SchedulingState,
        rules: Sequence[Rule],
        watcher: Watcher | None = None,
    ) -> None:
        """`watcher` is called for every comparison."""
        self.state = state
        self.rules = concerned(state, rules)
        self.watcher = watcher
        self.runner_up: int | None = None

    def pick(self, candidates: Candidates, group: int = -1) -> int | None:
        """Slot of the choice; None when nothing fits."""
        self.runner_up = None
        fitting = considered(self.state, candidates, group)
        if not fitting:
            return None
        best, watcher = fitting[0], self.watcher
        if watcher is not None:
            watcher(best, None, None)
        for n in fitting[1:]:
            rule, verdict = self.compare(n, best)
            loser = n
            if verdict > 0:
                loser, best = best, n
            self.runner_up = loser
            if watcher is not None:
                watcher(best, loser, rule)
        return candidates.slot(best)

    def compare(self, a: int, b: int) -> tuple[Rule, int]:
        """The rule that decides between two candidates, and its verdict on one."""
        state = self.state
        for rule in self.rules:
            verdict = rule.compare(state, a, b)
            if verdict:
                return rule, verdict
        return FIRST_COME, 0
