"""A stand-in for OR-Tools' CP-SAT that solves small models exactly, with its names.

Every constraint of a schedule is `later >= earlier + gap`, or one of several such. The
least end is that of the best choice among these; choices are tried one by one.

    model.add(a >= b + 3)            one row
    model.add_no_overlap([x, y])     x before y, or y before x
    model.add_cumulative(...)        of too many at once, one is before another
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

OPTIMAL = 4
FEASIBLE = 2


@dataclass(frozen=True, slots=True)
class _Sum:
    """A variable and a number."""

    variable: int
    number: int = 0

    def __add__(self, number: int) -> _Sum:
        return _Sum(self.variable, self.number + number)

    def __ge__(self, other: _Sum) -> _Row:
        return _Row(other.variable, self.variable, other.number - self.number)


@dataclass(frozen=True, slots=True)
class _Row:
    """`later >= earlier + gap`."""

    earlier: int
    later: int
    gap: int


@dataclass(frozen=True, slots=True)
class _Interval:
    begin: _Sum
    end: _Sum

    def before(self, other: _Interval) -> _Row:
        return other.begin >= self.end


@dataclass(slots=True)
class CpModel:
    """Rows, and choices of which one row must hold."""

    limits: list[tuple[int, int]] = field(default_factory=list)
    hints: dict[int, int] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)
    choices: list[list[_Row]] = field(default_factory=list)
    goal: _Sum | None = None

    def new_int_var(self, low: int, high: int, _: str) -> _Sum:
        self.limits.append((low, high))
        return _Sum(len(self.limits) - 1)

    def add_hint(self, variable: _Sum, value: int) -> None:
        self.hints[variable.variable] = value

    def add(self, row: _Row) -> None:
        assert isinstance(row, _Row)
        self.rows.append(row)

    def new_fixed_size_interval_var(self, begin: _Sum, size: int, _: str) -> _Interval:
        return _Interval(begin, begin + size)

    def new_interval_var(self, begin: _Sum, size: _Sum, end: _Sum, _: str) -> _Interval:
        assert self.limits[size.variable][0] == 0
        self.rows.append(end >= begin)
        return _Interval(begin, end)

    def add_no_overlap(self, intervals: Sequence[_Interval]) -> None:
        for one, other in itertools.combinations(intervals, 2):
            self.choices.append([one.before(other), other.before(one)])

    def add_cumulative(
        self, intervals: Sequence[_Interval], demands: Sequence[int], capacity: int
    ) -> None:
        numbered = range(len(intervals))
        for count in range(1, len(intervals) + 1):
            for some in itertools.combinations(numbered, count):
                total = sum(demands[k] for k in some)
                is_least = all(total - demands[k] <= capacity for k in some)
                if total > capacity and is_least:
                    pairs = itertools.permutations((intervals[k] for k in some), 2)
                    self.choices.append([a.before(b) for a, b in pairs])

    def minimize(self, goal: _Sum) -> None:
        self.goal = goal


class CpSolver:
    """Tries all choices; `max_number_of_conflicts` ends it early."""

    def __init__(self) -> None:
        self.parameters = SimpleNamespace(max_number_of_conflicts=None)
        self.best_objective_bound = 0.0
        self.num_conflicts = 0

    def solve(self, model: CpModel) -> int:
        assert model.goal is not None
        assert _holds(model, model.hints)
        assert self.parameters.num_workers == 1
        if self.parameters.max_number_of_conflicts == 0:
            return FEASIBLE
        best: int | None = None
        for low in _least(model):
            self.num_conflicts += 1
            end = low[model.goal.variable] + model.goal.number
            best = end if best is None else min(best, end)
        assert best is not None
        self.best_objective_bound = float(best)
        return OPTIMAL


def _least(model: CpModel) -> Iterator[list[int]]:
    """The least values of all variables, for each way to choose that has any."""
    start = _pushed(model, [low for low, _ in model.limits], model.rows)
    best: list[int] = []

    def extend(low: list[int], rows: list[_Row]) -> Iterator[list[int]]:
        assert model.goal is not None
        if best and low[model.goal.variable] >= best[-1]:
            return
        for choice in model.choices:
            if not any(low[r.later] >= low[r.earlier] + r.gap for r in choice):
                for row in choice:
                    then = _pushed(model, low, [*rows, row])
                    if then is not None:
                        yield from extend(then, [*rows, row])
                return
        best.append(low[model.goal.variable])
        yield low

    if start is not None:
        yield from extend(start, model.rows)


def _pushed(model: CpModel, low: list[int], rows: list[_Row]) -> list[int] | None:
    """The least values within rows; None if there are none within the limits."""
    low = list(low)
    changed = True
    while changed:
        changed = False
        for row in rows:
            least = low[row.earlier] + row.gap
            if least > low[row.later]:
                low[row.later] = least
                changed = True
                if least > model.limits[row.later][1]:
                    return None
    return low


def _holds(model: CpModel, hints: dict[int, int]) -> bool:
    """Whether what is known at the start is within the rows that it can break."""
    return all(
        hints[row.later] >= hints[row.earlier] + row.gap
        for row in model.rows
        if row.earlier in hints and row.later in hints
    )


def module() -> Any:
    """What stands for `ortools.sat.python.cp_model`."""
    return SimpleNamespace(CpModel=CpModel, CpSolver=CpSolver, OPTIMAL=OPTIMAL)
