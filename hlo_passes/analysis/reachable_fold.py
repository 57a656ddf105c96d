"""One figure for all that can be reached from a value, for every value at once.

    a -> b -> c -> b,  c -> d          own: a 4, b 7, c 2, d 5
    fold with min                      a 2, b 2, c 2, d 5

Values on a circle reach the same values, so they have the same figure. Each value is
looked at once, however many questions are asked: the cost is linear in values and
edges.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Figure = TypeVar("Figure")


class ReachableFold(Generic[Value, Figure]):
    """Joins what is found at a value with what is found at all that it reaches."""

    def __init__(
        self,
        look: Callable[[Value], tuple[Figure, Iterable[Value]]],
        join: Callable[[Figure, Figure], Figure],
    ) -> None:
        """Nothing is looked at before the first question.

        Args:
            look: what is found at one value alone, and the values right after it.
            join: of two figures; the order and repetitions must not matter.
        """
        self._look = look
        self._join = join
        self._known: dict[Value, Figure] = {}

    def of(self, value: Value) -> Figure:
        """The figure of a value. Linear in what it reaches and no question reached."""
        if value not in self._known:
            self._explore(value)
        return self._known[value]

    def _explore(self, start: Value) -> None:
        """Find the circles in the order in which they are left, as Tarjan does."""
        known, join = self._known, self._join
        number: dict[Value, int] = {}
        lowest: dict[Value, int] = {}
        total: dict[Value, Figure] = {}
        unfinished: list[Value] = []
        path: list[tuple[Value, Iterator[Value]]] = []

        def enter(value: Value) -> None:
            total[value], after = self._look(value)
            number[value] = lowest[value] = len(number)
            unfinished.append(value)
            path.append((value, iter(after)))

        enter(start)
        while path:
            value, rest = path[-1]
            for following in rest:
                if following in known:
                    total[value] = join(total[value], known[following])
                elif following in number:
                    lowest[value] = min(lowest[value], number[following])
                else:
                    enter(following)
                    break
            else:
                path.pop()
                # The first value of a circle has joined what all others found.
                if lowest[value] == number[value]:
                    while value not in known:
                        known[unfinished.pop()] = total[value]
                if path:
                    before = path[-1][0]
                    lowest[before] = min(lowest[before], lowest[value])
                    total[before] = join(total[before], total[value])
