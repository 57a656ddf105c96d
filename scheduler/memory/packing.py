"""A heap that knows its whole future: it places the largest buffer first.

    a: 10 bytes, steps 0-4     b: 30, 1-5     c: 20, 2-6     d: 40, 3-7
    d at 0, b at 40, c at 70, a at 90: 100 bytes

Source: openxla/xla `xla/service/heap_simulator/heap_simulator.cc`,
GlobalDecreasingSizeBestFitHeap (Aug 2026).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hlo_passes.scheduler.memory.filled_bytes import FilledBytes, Span


class Packing:
    """Buffers by the steps between which they live; every event is a step.

    They are placed by decreasing size, then by decreasing duration. Each takes the
    smallest gap that is free as long as it, or any buffer placed with it, lives, and
    sits at its lower end.
    """

    def __init__(self) -> None:
        """Start without buffers."""
        self._now = 0
        self._size: dict[int, int] = {}
        self._begin: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._with: dict[int, list[int]] = {}
        self._placed_with_another: set[int] = set()

    def allocate(self, v: int, size: int, place: int | None = None) -> None:
        """Begin buffer `v` of `size` bytes, at the place of `place` if given."""
        if size == 0:
            return
        self._size[v], self._begin[v] = size, self._now
        self._now += 1
        if place is not None:
            self._with.setdefault(place, []).append(v)
            self._placed_with_another.add(v)

    def free(self, v: int) -> None:
        """End buffer `v`."""
        if v in self._size and v not in self._end:
            self._end[v] = self._now
            self._now += 1

    def packed_bytes(self) -> int:
        """End of the heap once everything is placed."""
        order = sorted(
            self._size, key=lambda v: (-self._size[v], self._begin[v] - self._end[v], v)
        )
        self._slots = sorted(self._begin.values())
        filled = FilledBytes(len(order))
        highest = 0
        for v in order:
            if v in self._placed_with_another:
                continue
            group = self._group(v) if v in self._with else [v]
            size = max(self._size[member] for member in group)
            low = filled.place(self._spans(group), size)
            highest = max(highest, low + size)
        return highest

    def _group(self, v: int) -> list[int]:
        """A buffer and all that share its place."""
        found = {v: None}
        queue = [v]
        for member in queue:
            for other in self._with.get(member, ()):
                if other not in found:
                    found[other] = None
                    queue.append(other)
        return list(found)

    def _spans(self, group: list[int]) -> list[Span]:
        """The slots in which one of a group lives, neighbors joined."""
        spans: list[Span] = []
        for v in sorted(group, key=self._begin.__getitem__):
            first = bisect_left(self._slots, self._begin[v])
            after = bisect_right(self._slots, self._end[v])
            if spans and first <= spans[-1][1]:
                first, before = spans.pop()
                after = max(after, before)
            spans.append((first, after))
        return spans
