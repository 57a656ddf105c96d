"""All orders of a computation as a linear program with whole numbers; memory left out.

Pairs that exclude each other run one after the other. Of the rest, each operation is
before a pair, inside its window, or after it:

    order(i, j)      1 if pair i ends before pair j begins
    before(v, i)     1 if operation v ends before pair i begins
    after(v, i)      1 if it begins after pair i has ended
    hidden(i)        how long pair i and compute run together

    hidden(i) <= latency(i)
    hidden(i) <= sum of min(cost(v), latency(i)) * (1 - before(v, i) - after(v, i))
    order(i, j) <= after(v, i) + before(v, j)          no operation spans both
    order is transitive, dependences hold

The step is what compute and these pairs take, less what is hidden: the greatest sum of
hidden(i) gives the shortest step, and what bounds that sum bounds every step. Pairs of
other resources are left out, and so are rows beyond a limit: both can only lower the
bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.scheduler.improver.atoms import Atoms
from hlo_passes.scheduler.improver.reach import Reach
from hlo_passes.scheduler.sums import sequential_sum

#: Most pairs and operations of a model, and most rows of the kind `no operation spans
#: both`; those of cheap operations are left out first.
MOST_PAIRS: Final = 120
MOST_OPERATIONS: Final = 3_000
MOST_SPANS: Final = 150_000
#: What costs nothing is left out if it joins so few operations.
_FEW: Final = 4

#: factor * column + constant; the column is -1 for a constant.
_Term = tuple[int, float, float]
_ZERO: Final[_Term] = (-1, 0.0, 0.0)
_ONE: Final[_Term] = (-1, 0.0, 1.0)


@dataclass(slots=True)
class ExactModel:
    """Maximize the sum of `hidden` columns within rows and limits of columns.

    Attributes:
        total_us: of compute and of the pairs together.
        lower, upper: of each column.
        is_whole: whether a column is a whole number.
        hidden: columns to be maximized, us.
        places, columns, factors: entries of the rows.
        row_lower, row_upper: of each row.
        operations, pairs: their numbers.
        is_complete: whether no row was left out.
    """

    total_us: float
    operations: int
    pairs: int
    is_complete: bool = True
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    is_whole: list[bool] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def column(self, upper: float, is_whole: bool) -> int:
        """A new column from 0 on."""
        self.lower.append(0.0)
        self.upper.append(upper)
        self.is_whole.append(is_whole)
        return len(self.upper) - 1

    def row(
        self, terms: Iterable[_Term], low: float = -math.inf, high: float = math.inf
    ) -> None:
        """A new row, unless nothing in it can change."""
        constant = 0.0
        entries = []
        for column, factor, own in terms:
            constant += own
            if column >= 0:
                entries.append((column, factor))
        if not entries:
            return
        number = len(self.row_lower)
        for column, factor in entries:
            self.places.append(number)
            self.columns.append(column)
            self.factors.append(factor)
        self.row_lower.append(low - constant)
        self.row_upper.append(high - constant)


def exact_model(atoms: Atoms, reach: Reach) -> ExactModel | str:
    """The model of a computation, or why there is none.

    Args:
        atoms: of the computation.
        reach: of these atoms.
    """
    chosen = _exclusive(atoms, reach)
    if not chosen:
        return "no overlap limit of 1 applies to its pairs"
    if len(chosen) > MOST_PAIRS:
        return f"{len(chosen):,} pairs are more than the {MOST_PAIRS:,} of a model"
    builder = _Builder(atoms, reach, chosen)
    if len(builder.operations) > MOST_OPERATIONS:
        return (
            f"{len(builder.operations):,} operations are more than the "
            f"{MOST_OPERATIONS:,} of a model"
        )
    return builder.build()


def _exclusive(atoms: Atoms, reach: Reach) -> list[int]:
    """Places of the pairs of one resource with limit 1: those that take the longest."""
    of: dict[int, list[int]] = {}
    for k, s in enumerate(reach.starts):
        r = atoms.resource[s]
        if r >= 0 and atoms.limits[r] <= 1:
            of.setdefault(r, []).append(k)

    def busy_us(places: Sequence[int]) -> float:
        return sequential_sum(atoms.latency_us[reach.starts[k]] for k in places)

    return max(of.values(), key=busy_us, default=[])


class _Builder:
    """One model while it is made."""

    def __init__(self, atoms: Atoms, reach: Reach, chosen: Sequence[int]) -> None:
        self.atoms = atoms
        self.reach = reach
        self.bits = [1 << k for k in chosen]
        self.starts = [reach.starts[k] for k in chosen]
        self.dones = [atoms.partner[s] for s in self.starts]
        self.mask = sum(self.bits)
        own = {*self.starts, *self.dones}
        self.near: list[tuple[int, ...]] = [()] * len(atoms)
        self.operations = self._operations(own)
        lane_us = sequential_sum(atoms.cost_us)
        busy_us = sequential_sum(atoms.latency_us[s] for s in self.starts)
        self.model = ExactModel(lane_us + busy_us, len(self.operations), len(chosen))
        self.before: dict[int, list[_Term]] = {}
        self.after: dict[int, list[_Term]] = {}
        self.order: list[list[_Term]] = []

    def _operations(self, own: set[int]) -> list[int]:
        """What takes time or excludes pairs, and what joins many of those."""
        atoms, alone = self.atoms, self.reach.alone
        joined: list[tuple[int, ...]] = [()] * len(atoms)
        found = []
        for v, near in enumerate(self.atoms.preds):
            if v in own:
                continue  # edges to and from pairs are in the sets
            before = dict.fromkeys(
                u for p in near if p not in own for u in joined[p] if u != v
            )
            is_needed = atoms.cost_us[v] > 0.0 or alone.get(v, 0) & self.mask
            if is_needed or len(before) > _FEW:
                self.near[v] = tuple(before)
                joined[v] = (v,)
                found.append(v)
            else:
                joined[v] = tuple(before)
        return found

    def build(self) -> ExactModel:
        for v in self.operations:
            self._places_of(v)
        self._orders()
        for v in self.operations:
            self._dependences(v)
        self._spans()
        self._hidden()
        return self.model

    def _places_of(self, v: int) -> None:
        """before(v, i) and after(v, i) of all pairs: what no path says is a column."""
        model, reach = self.model, self.reach
        alone = reach.alone.get(v, 0)
        takes_time = self.atoms.cost_us[v] > 0.0
        is_whole = takes_time or bool(alone)
        before, after = [], []
        for bit in self.bits:
            if reach.after[v] & bit:
                b, a = _ONE, _ZERO
            elif reach.ended[v] & bit:
                b, a = _ZERO, _ONE
            else:
                b = a = _ZERO
                if not reach.before[v] & bit:
                    b = (model.column(1.0, is_whole), 1.0, 0.0)
                if alone & bit:
                    a = _less(b)
                elif not reach.until[v] & bit:
                    a = (model.column(1.0, is_whole), 1.0, 0.0)
                    model.row([b, a], high=1.0)
            before.append(b)
            after.append(a)
        self.before[v], self.after[v] = before, after
        if takes_time:
            # One window at most.
            model.row([*before, *after], low=len(self.bits) - 1.0)

    def _orders(self) -> None:
        """order(i, j), and that it is transitive."""
        model, reach = self.model, self.reach
        count = len(self.bits)
        order: list[list[_Term]] = [[_ZERO] * count for _ in range(count)]
        for i, j in itertools.combinations(range(count), 2):
            if reach.before[self.dones[j]] & self.bits[i]:
                first: _Term = _ONE
            elif reach.before[self.dones[i]] & self.bits[j]:
                first = _ZERO
            else:
                first = (model.column(1.0, True), 1.0, 0.0)
            order[i][j], order[j][i] = first, _less(first)
        for i, j, k in itertools.combinations(range(count), 3):
            for circle in (
                (order[i][j], order[j][k], order[k][i]),
                (order[i][k], order[k][j], order[j][i]),
            ):
                if _ZERO not in circle:
                    model.row(circle, high=2.0)
        self.order = order

    def _dependences(self, v: int) -> None:
        """What comes before v is before all that v is before, and so after pairs."""
        model = self.model
        for u in self.near[v]:
            for b, earlier in zip(self.before[v], self.before[u], strict=True):
                if b != _ZERO and earlier != _ONE:
                    model.row([earlier, _negated(b)], low=0.0)
            for a, earlier in zip(self.after[v], self.after[u], strict=True):
                if earlier != _ZERO and a != _ONE:
                    model.row([a, _negated(earlier)], low=0.0)

    def _spans(self) -> None:
        """No operation is in two windows, nor before a pair and after a later one."""
        model = self.model
        cost = self.atoms.cost_us
        left = MOST_SPANS
        alone = self.reach.alone
        chosen = [v for v in self.operations if cost[v] > 0.0 or v in alone]
        for v in sorted(chosen, key=lambda v: (-cost[v], v)):
            before, after = self.before[v], self.after[v]
            for i, row in enumerate(self.order):
                if after[i] == _ONE:
                    continue
                for j, first in enumerate(row):
                    if i != j and first != _ZERO and before[j] != _ONE:
                        left -= 1
                        if left < 0:
                            model.is_complete = False
                            return
                        model.row([after[i], before[j], _negated(first)], low=0.0)

    def _hidden(self) -> None:
        """hidden(i) is no more than the pair takes, and than its window can hide."""
        model, cost = self.model, self.atoms.cost_us
        costly = [v for v in self.operations if cost[v] > 0.0]
        for i, s in enumerate(self.starts):
            latency = self.atoms.latency_us[s]
            hidden = model.column(latency, False)
            model.hidden.append(hidden)
            terms: list[_Term] = [(hidden, 1.0, 0.0)]
            most = cost[s]
            for v in costly:
                # A part of a long operation hides no more than all of the pair.
                us = min(cost[v], latency)
                most += us
                for column, factor, own in (self.before[v][i], self.after[v][i]):
                    terms.append((column, factor * us, own * us))
            model.row(terms, high=most)


def _less(term: _Term) -> _Term:
    """1 - term."""
    column, factor, own = term
    return (column, -factor if factor else 0.0, 1.0 - own)


def _negated(term: _Term) -> _Term:
    column, factor, own = term
    return (column, -factor, -own)
