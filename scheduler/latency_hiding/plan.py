"""The steps in which a list of rules is applied, and how rules rank classes.

Rules that only depend on hints and resources come first in XLA's list. They give one
rank per class (`classes.py`), computed when resources change. The other steps are
single rules, or runs of rules that classes decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from hlo_passes.scheduler.latency_hiding.candidates import Array
from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Rank of a class that does not fit.
UNFIT: Final = -1


class Ranking(NamedTuple):
    """An order of classes.

    Attributes:
        array: rank by class, the best highest, `UNFIT` for what does not fit.
        ranks: the same.
        silent: by rank, the rules without an opinion on classes of that rank.
    """

    array: Array
    ranks: list[int]
    silent: list[frozenset[Rule]]


class ClassRules:
    """Consecutive rules that only classes decide, as one rank per class."""

    def __init__(
        self, state: SchedulingState, classes: Classes, rules: Sequence[Rule]
    ) -> None:
        """Nothing is ranked yet."""
        self.rules = tuple(rules)
        self._state, self._classes = state, classes
        self._known: dict[bytes, Ranking | None] = {}

    def ranking(self, *, fitting: bool = False) -> Ranking | None:
        """The current order of classes; None where the rules do not give one.

        Args:
            fitting: rank only classes that fit.
        """
        flags = self._classes.flags
        if flags not in self._known:
            members = dict(enumerate(self._classes.members))
            if fitting:
                members = {c: n for c, n in members.items() if self._classes.fits[c]}
            self._known[flags] = self._rank(members)
        return self._known[flags]

    def _rank(self, members: dict[int, int]) -> Ranking | None:
        """Order classes by comparing each with each, if that gives an order."""
        # Classes to which all rules give the same answers are compared once.
        state = self._state
        alike: dict[tuple[tuple[Any, Any], ...], list[int]] = {}
        for c, n in members.items():
            answers = tuple(
                (
                    rule.number(state, n) if rule.by_class == "all" else None,
                    1 if rule.kind is None else rule.kind(state, n),
                )
                for rule in self.rules
            )
            alike.setdefault(answers, []).append(c)
        nodes = [members[same[0]] for same in alike.values()]
        verdicts = [[self._compare(a, b) for b in nodes] for a in nodes]
        scores = [sum(row) for row in verdicts]
        for row, score in zip(verdicts, scores, strict=True):
            for verdict, other in zip(row, scores, strict=True):
                if verdict != (score > other) - (score < other):
                    return None
        order = sorted(set(scores))
        ranks = [UNFIT] * len(self._classes.members)
        tied: list[list[tuple[tuple[Any, Any], ...]]] = [[] for _ in order]
        for (answers, same), score in zip(alike.items(), scores, strict=True):
            rank = order.index(score)
            tied[rank].append(answers)
            for c in same:
                ranks[c] = rank
        silent = [self._silent(answers) for answers in tied]
        return Ranking(np.array(ranks, np.int64), ranks, silent)

    def _compare(self, a: int, b: int) -> int:
        """The verdict on two nodes, as far as their classes alone decide it."""
        state = self._state
        for rule in self.rules:
            if rule.by_class == "all":
                verdict = rule.compare(state, a, b)
                if verdict:
                    return 1 if verdict > 0 else -1
            else:
                # The rule looks at nodes of these kinds, so classes no longer decide.
                assert rule.kind is not None
                kind = rule.kind(state, a)
                if kind and kind == rule.kind(state, b):
                    return 0
        return 0

    def _silent(
        self, answers: Sequence[tuple[tuple[Any, Any], ...]]
    ) -> frozenset[Rule]:
        """Rules that have the same answer for all of some classes."""
        return frozenset(
            rule
            for k, rule in enumerate(self.rules)
            if (rule.by_class == "all" and len({each[k][0] for each in answers}) == 1)
            or not any(each[k][1] for each in answers)
        )


class Step(NamedTuple):
    """One filter of the candidates that are left.

    Attributes:
        asks: a rule, or several that classes decide.
        rest: the rules from there on.
        in_tail: whether an earlier rule, or this one, does not compare all by number.
        smaller: whether the smaller number wins, of a rule.
    """

    asks: Rule | ClassRules
    rest: tuple[Rule, ...]
    in_tail: bool
    smaller: bool


class Plan:
    """How the rules that are awake are applied.

    Attributes:
        head: rules that come first and that classes decide.
    """

    def __init__(
        self,
        state: SchedulingState,
        classes: Classes,
        rules: Sequence[Rule],
        tail: frozenset[Rule],
    ) -> None:
        """Find the head and the steps after it.

        Args:
            state: of the computation.
            classes: of its nodes.
            rules: those that are awake, in order.
            tail: rules from the first on that does not compare all by a number.
        """
        self._state, self._classes = state, classes
        self._rules, self._tail = tuple(rules), tail
        # A host send that can wait makes dones of one class differ.
        self._by_class = not state.graph.host_sends
        # The head ends where a rule looks at the nodes of every class.
        end = 0
        while self._by_class and end < len(rules) and rules[end].by_class:
            end += 1
        self.head = ClassRules(state, classes, rules[:end])
        # It does not decide anything after its first rule that looks at nodes.
        first = next((k for k in range(end) if rules[k].by_class != "all"), end)
        self._after = {frozenset[Rule](): self._steps(first)}
        self._all: tuple[Step, ...] | None = None

    def after(self, silent: frozenset[Rule]) -> tuple[Step, ...]:
        """The steps after the head, without some rules."""
        steps = self._after.get(silent)
        if steps is None:
            steps = self._after[silent] = tuple(
                step
                for step in self._after[frozenset()]
                if not silent.issuperset(
                    step.asks.rules
                    if isinstance(step.asks, ClassRules)
                    else (step.asks,)
                )
            )
        return steps

    def without_head(self) -> tuple[Step, ...]:
        """The steps where the head gives no ranking, with its rules one by one."""
        if self._all is None:
            self._all = self._steps(0)
        return self._all

    def _steps(self, first: int) -> tuple[Step, ...]:
        rules, steps = self._rules, list[Step]()
        k = first
        while k < len(rules):
            end = k
            while end < len(rules) and self._is_plain(rules[end]):
                end += 1
            end = max(end, k + 1)
            asks = rules[k]
            smaller = asks.wants_smaller(self._state.top_down)
            if self._is_plain(asks):
                smaller = False
                asks = ClassRules(self._state, self._classes, rules[k:end])
            steps.append(Step(asks, rules[k:], rules[k] in self._tail, smaller))
            k = end
        return tuple(steps)

    def _is_plain(self, rule: Rule) -> bool:
        """Whether classes decide it, and all of them are compared."""
        return self._by_class and rule.by_class == "all" and rule.kind is None
