"""Chooses a candidate by any list of rules: rule after rule, all candidates at once.

    Scan(state, rules).pick(state.ready)        slot of the choice

The relation is defined pair by pair (`pairs.py`). The same choices come from filters:

    class rules at the head     one rank per class, computed when resources change
    a number                    a filter: only the best go on to the next rule
    a number for some kinds     the same where all are of one kind, else pair by pair
    a comparison of its own     pair by pair

As long as every rule compares numbers, the rules are one preorder. A candidate that is
not greatest in it can neither win nor change who wins: after the first greatest one is
met, only a greatest one can replace it. So the scan over all candidates and the scan
over the greatest ones, in list order, choose the same.

Many candidates are compared with arrays, few of them one by one, which is faster then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hlo_passes.scheduler.latency_hiding.candidates import Array, Candidates
from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.columns import Columns
from hlo_passes.scheduler.latency_hiding.pairs import (
    PairScan,
    Policy,
    Watcher,
    concerned,
    considered,
)
from hlo_passes.scheduler.latency_hiding.plan import (
    UNFIT,
    ClassRules,
    Plan,
    Ranking,
    Step,
)
from hlo_passes.scheduler.latency_hiding.rule import Number, Rule
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Up to this many candidates, one by one is faster than with arrays.
_FEW: Final = 8


def policy(
    state: SchedulingState, rules: Sequence[Rule], watcher: Watcher | None
) -> Policy:
    """The policy for a list of rules: pair by pair if there is a watcher."""
    if watcher is not None:
        return PairScan(state, rules, watcher)
    return Scan(state, rules)


class Scan:
    """Applies rule after rule to all candidates that are left."""

    def __init__(self, state: SchedulingState, rules: Sequence[Rule]) -> None:
        """Prepare for one state, before it is seeded or after."""
        self._state = state
        self._rules = rules = concerned(state, rules)
        self._fits_by_class = not state.settings.enable_collective_multi_streaming
        self._classes = Classes(state, tests_fit=self._fits_by_class)
        self._columns = Columns(state, self._classes)
        self._tries = _Tries(state, self._columns)
        self._awake = tuple(
            dict.fromkeys(r.awake for r in self._rules if r.awake is not None)
        )
        self._plans: dict[tuple[bool, ...], Plan] = {}
        tail = next(
            (k for k, r in enumerate(rules) if r.winner_only or not r.by_number),
            len(rules),
        )
        self._tail = frozenset(rules[tail:])
        self._winner = -1
        self._rivals: Sequence[int] | Array = ()

    @property
    def runner_up(self) -> int | None:
        """The last of those that were left when the last filter was applied.

        The first rule that does not compare all candidates by a number, and all rules
        after it, are one filter.
        """
        rivals = self._rivals
        if len(rivals) < 2:
            return None
        last = int(rivals[-1])
        return int(rivals[0]) if last == self._winner else last

    def pick(self, candidates: Candidates, group: int = -1) -> int | None:
        """Slot of the choice; None when nothing fits."""
        state = self._state
        self._classes.refresh()
        some: Array | None = None
        if not self._fits_by_class:
            # Not only the class decides which candidates fit.
            some = np.array(considered(state, candidates, group), np.int64)
        elif state.groups is not None and group == -1:
            some = state.groups.without_group(candidates.nodes)
        count = len(candidates) if some is None else len(some)
        if count <= _FEW:
            winner = self._of_few(candidates if some is None else some.tolist())
        elif some is None:
            classes = candidates.classes(self._classes.of)
            winner = self._of_many(candidates.nodes, classes)
        else:
            winner = self._of_many(some, self._classes.of_array.take(some))
        if winner is None:
            return None
        self._winner = winner
        return candidates.slot(winner)

    def _plan(self) -> Plan:
        """How the rules that are awake now are asked."""
        state = self._state
        awake = tuple([ask(state) for ask in self._awake])
        plan = self._plans.get(awake)
        if plan is None:
            is_awake = dict(zip(self._awake, awake, strict=True))
            rules = [r for r in self._rules if r.awake is None or is_awake[r.awake]]
            plan = Plan(state, self._classes, rules, self._tail)
            self._plans[awake] = plan
        return plan

    def _unranked(self) -> Ranking:
        """The order of classes without rules of the head: which ones fit."""
        fits = [0 if fit else UNFIT for fit in self._classes.fits]
        return Ranking(np.array(fits, np.int64), fits, [frozenset()])

    # -- few candidates: one by one -------------------------------------------

    def _of_few(self, nodes: Sequence[int]) -> int | None:
        plan = self._plan()
        ranking = plan.head.ranking(fitting=True)
        ranks = (ranking or self._unranked()).ranks
        of = self._classes.of
        numbers = [ranks[of[n]] for n in nodes]
        best = max(numbers, default=UNFIT)
        if best == UNFIT:
            return None
        alive = [n for n, rank in zip(nodes, numbers, strict=True) if rank == best]
        if len(alive) == 1:
            self._rivals = [
                n for n, rank in zip(nodes, numbers, strict=True) if rank != UNFIT
            ]
            return alive[0]
        self._rivals = alive
        steps = plan.without_head()
        if ranking is not None:
            steps = plan.after(ranking.silent[best])
        return self._finish(alive, steps, keeps_rivals=False)

    def _finish(
        self, alive: list[int], steps: Sequence[Step], *, keeps_rivals: bool
    ) -> int:
        """The choice among few that are left."""
        state, of = self._state, self._classes.of
        for asks, rest, in_tail, smaller in steps:
            if not keeps_rivals:
                self._rivals, keeps_rivals = alive, in_tail
            if isinstance(asks, ClassRules):
                ranking = asks.ranking()
                assert ranking is not None
                numbers: list[Any] = [ranking.ranks[of[n]] for n in alive]
                best = max(numbers)
            else:
                if not asks.by_number:
                    return self._by_pairs(alive, rest)
                kind = asks.kind
                if kind is not None:
                    kinds = [kind(state, n) for n in alive]
                    if kinds.count(kinds[0]) != len(kinds):
                        return self._by_pairs(alive, rest)
                    if not kinds[0]:
                        continue
                number = asks.number
                numbers = [number(state, n) for n in alive]
                if not asks.proven and not _are_ordered(numbers):
                    return self._by_pairs(alive, rest)
                best = min(numbers) if smaller else max(numbers)
            if numbers.count(best) != len(numbers):
                alive = [n for n, x in zip(alive, numbers, strict=True) if x == best]
                if len(alive) == 1:
                    break
        return alive[0]

    def _by_pairs(self, alive: Sequence[int], rules: tuple[Rule, ...]) -> int:
        """The scan itself, from a rule on."""
        state = self._state
        best = alive[0]
        for n in alive[1:]:
            for rule in rules:
                verdict = rule.compare(state, n, best)
                if verdict:
                    if verdict > 0:
                        best = n
                    break
        return best

    # -- many candidates: with arrays -----------------------------------------

    def _of_many(self, nodes: Array, classes: Array) -> int | None:
        # The rules at the head of the list depend on the class alone: they leave the
        # candidates of the best classes.
        plan = self._plan()
        head = plan.head.ranking(fitting=True)
        columns, of = self._columns, self._classes.of_array
        columns.now = self._state.now
        ranks = (head or self._unranked()).array
        numbers: npt.NDArray[Any] = ranks.take(classes)
        best = numbers[numbers.argmax()]
        if best == UNFIT:
            return None
        # A copy in any case: the candidates change before somebody asks for rivals.
        level = numbers[numbers.argmin()] == best
        alive = nodes.copy() if level else nodes[numbers == best]
        if len(alive) == 1:
            self._rivals = nodes[numbers != UNFIT]
            return int(alive[0])
        self._rivals = alive
        # Apply the other rules one after the other, each to the candidates that are
        # left.
        steps = plan.without_head()
        if head is not None:
            steps = plan.after(head.silent[best])
        keeps_rivals, last = False, len(steps) - 1
        for k, (asks, rest, in_tail, smaller) in enumerate(steps):
            # A few candidates are faster without arrays.
            if len(alive) <= _FEW:
                if len(alive) == 1:
                    break
                few = alive.tolist()
                return self._finish(few, steps[k:], keeps_rivals=keeps_rivals)
            if not keeps_rivals:
                self._rivals, keeps_rivals = alive, in_tail
            # Give every candidate its number: from its class, or from the rule. A rule
            # without numbers compares pairs.
            if isinstance(asks, ClassRules):
                ranking = asks.ranking()
                assert ranking is not None
                numbers, rule = ranking.array.take(of.take(alive)), None
            else:
                if not asks.by_number:
                    return self._by_pairs(alive.tolist(), rest)
                answers = self._ask(asks, asks.number, alive)
                if answers is None:
                    return self._by_pairs(alive.tolist(), rest)
                numbers, rule = answers, asks
            at, other = numbers.argmax(), numbers.argmin()
            if smaller:
                at, other = other, at
            # Most rules tell nobody apart: to see that is cheaper than to filter.
            best = numbers[at]
            if best == numbers[other]:
                continue
            if rule is not None and rule.kind is not None:
                kinds = self._ask(rule, rule.kind, alive)
                if kinds is None or kinds[kinds.argmin()] != kinds[kinds.argmax()]:
                    return self._by_columns(alive, rest)
                if not kinds[0]:
                    continue
            # Keep the candidates with the best number; at the end the first one wins.
            if k == last:
                return int(alive[at])
            alive = alive[numbers == best]
        return int(alive[0])

    def _ask(self, rule: Rule, ask: Number, nodes: Array) -> npt.NDArray[Any] | None:
        """Numbers of nodes; None where they are not in one order."""
        if rule.proven:
            return ask(self._columns, nodes)
        return self._tries.ask(ask, nodes)

    def _by_columns(self, alive: Array, rules: tuple[Rule, ...]) -> int:
        """The scan itself, from a rule on, with numbers that arrays gave."""
        blocks = self._blocks(alive, rules)
        if blocks is None:
            return self._by_pairs(alive.tolist(), rules)
        best = 0
        for k in range(1, len(alive)):
            for numbers, kinds, winner_only in blocks:
                mine, other = numbers[k], numbers[best]
                if mine == other:
                    continue
                if kinds is not None:
                    if winner_only:
                        if not kinds[k if mine > other else best]:
                            continue
                    elif not kinds[k] or kinds[k] != kinds[best]:
                        continue
                if mine > other:
                    best = k
                break
        return int(alive[best])

    def _blocks(
        self, alive: Array, rules: tuple[Rule, ...]
    ) -> list[tuple[list[Any], list[Any] | None, bool]] | None:
        """Numbers (the larger wins), kinds, and whose kind counts, rule after rule.

        Neighbors that compare everything are one block of tuples.
        """
        blocks: list[tuple[list[Any], list[Any] | None, bool]] = []
        plain: list[list[Any]] = []
        for rule in rules:
            numbers = self._ask(rule, rule.number, alive) if rule.by_number else None
            if numbers is None:
                return None
            kinds = None
            if rule.kind is not None:
                kinds = self._ask(rule, rule.kind, alive)
                if kinds is None:
                    return None
            if rule.wants_smaller(self._state.top_down):
                if numbers.dtype.kind == "O":
                    return None
                if numbers.dtype.kind in "bu":
                    numbers = numbers.astype(np.int64)
                numbers = -numbers
            if kinds is None:
                plain.append(numbers.tolist())
                continue
            if plain:
                blocks.append((_tuples(plain), None, False))
                plain = []
            blocks.append((numbers.tolist(), kinds.tolist(), rule.winner_only))
        if plain:
            blocks.append((_tuples(plain), None, False))
        return blocks


class _Tries:
    """Calls functions that may take one node only, or answer arrays wrongly.

    An answer counts if it is a number for each node, and if single nodes give the same:
    all of them at first, those with the least and the most in every further call. A
    function that fails is called node by node from then on.
    """

    def __init__(self, state: SchedulingState, columns: Columns) -> None:
        self._state, self._columns = state, columns
        self._asked: set[Number] = set()
        self._one_by_one: set[Number] = set()

    def ask(self, ask: Number, nodes: Array) -> npt.NDArray[Any] | None:
        """Numbers of nodes; None where they are not in one order."""
        if ask not in self._one_by_one:
            numbers = self._with_array(ask, nodes)
            if numbers is not None:
                return numbers
            self._one_by_one.add(ask)
        answers = [ask(self._state, n) for n in nodes.tolist()]
        if not _are_ordered(answers):
            return None
        # Objects are compared as Python compares them, whatever their size.
        numbers = np.empty(len(answers), object)
        numbers[:] = answers
        return numbers

    def _with_array(self, ask: Number, nodes: Array) -> npt.NDArray[Any] | None:
        try:
            numbers = ask(self._columns, nodes)
        except Exception:  # whatever it raises means that it does not take arrays
            return None
        if not isinstance(numbers, np.ndarray) or numbers.shape != nodes.shape:
            return None
        if numbers.dtype.kind not in "biuf" or (numbers != numbers).any():
            return None
        # At first all nodes are tried, later on those with the least and the most.
        tried = range(len(nodes))
        if ask in self._asked:
            tried = int(numbers.argmin()), int(numbers.argmax())
        self._asked.add(ask)
        if any(ask(self._state, int(nodes[k])) != numbers[k] for k in tried):
            return None
        return numbers


def _are_ordered(answers: list[Any]) -> bool:
    """Whether all are numbers, or all texts, so that one of them is greatest."""
    if all(isinstance(answer, str) for answer in answers):
        return True
    return all(
        isinstance(answer, bool | int | float | np.number | np.bool_)
        and answer == answer
        for answer in answers
    )


def _tuples(columns: list[list[Any]]) -> list[Any]:
    """Rows of columns; a single column as it is."""
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True))
