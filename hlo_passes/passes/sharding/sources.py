"""The operands or the results of a tie, as sources of divisions.

    concatenate(%a, %b, %c)        %a {[2,1]}   %b {[2,1]}   %c {[1,2]}
    two kinds                      {[2,1]}: %a, %b           {[1,2]}: %c

Arrays with the same indices that are divided alike suggest the same. Whoever has heard
that once need not hear it again: an array that took it has it, or a refinement of it,
and what could not be taken cannot be taken later, since arrays are only ever refined.
So a tie of m operands need not ask m times m times, but once for each kind.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from hlo_passes.analysis.sharding_rules import ArrayIndices
from hlo_passes.ir.sharding_splits import Splits
from hlo_passes.passes.sharding.values import Array

#: An array, and the indices of its dimensions in the rule of a tie.
Place = tuple[Array, ArrayIndices]
_Kind = tuple[ArrayIndices, Splits]


class Sources:
    """Some arrays of a tie, by how they are divided.

    Args:
        places: the arrays.
        by_size: whether the one in more parts is asked first, then the larger one; else
            the first.
    """

    def __init__(self, places: Sequence[Place], *, by_size: bool) -> None:
        """Sort the arrays by how they are divided now."""
        self.places: Final = places
        self._by_size = by_size
        self._kind_of: list[_Kind | None] = [None] * len(places)
        #: Those of each kind that has any, the first to ask in front; some have left.
        self._order: dict[_Kind, list[tuple[int, int]]] = {}
        self._count: dict[_Kind, int] = {}
        self._appeared: list[_Kind] = []
        self._numbers: dict[int, list[int]] = {}
        for number, (array, _) in enumerate(places):
            self._numbers.setdefault(id(array), []).append(number)
            self._update(number)
        self._told = len(self._appeared)

    @property
    def appeared(self) -> int:
        """How many times a kind has appeared."""
        return len(self._appeared)

    def update(self, array: Array) -> None:
        """Take over how an array is divided now."""
        for number in self._numbers.get(id(array), ()):
            self._update(number)

    def _update(self, number: int) -> None:
        array, indices = self.places[number]
        kind = indices, array.splits
        before = self._kind_of[number]
        if array.is_opaque or array.splits.is_replicated or kind == before:
            return
        if before is not None:
            self._count[before] -= 1
        self._kind_of[number] = kind
        if not self._count.get(kind):
            self._count[kind], self._order[kind] = 0, []
            self._appeared.append(kind)
        self._count[kind] += 1
        size = -array.byte_size if self._by_size else 0
        heapq.heappush(self._order[kind], (size, number))

    def has_news(self) -> bool:
        """Whether a kind has appeared since this was asked last."""
        told, self._told = self._told, len(self._appeared)
        return told < self._told

    def since(self, heard: int, but: int = -1) -> list[Place]:
        """One array of each kind that has appeared, in the order in which to ask.

        Args:
            heard: how many times kinds had appeared when this was asked last.
            but: the number of an array that is not asked.
        """
        found: list[tuple[int, int, int]] = []
        for kind in dict.fromkeys(self._appeared[heard:]):
            first = self._first(kind, but)
            if first is not None:
                tiles = kind[1].tiles if self._by_size else 0
                found.append((-tiles, *first))
        return [self.places[number] for _, _, number in sorted(found)]

    def _first(self, kind: _Kind, but: int) -> tuple[int, int] | None:
        """The one of a kind to ask first."""
        order, aside = self._order[kind], None
        while order:
            number = order[0][1]
            if self._kind_of[number] != kind:
                heapq.heappop(order)
            elif number == but:
                aside = heapq.heappop(order)
            else:
                break
        first = order[0] if order else None
        if aside is not None:
            heapq.heappush(order, aside)
        return first
