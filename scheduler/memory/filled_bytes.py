"""Which bytes of a heap are taken while a buffer lives, and the gaps between them.

Time has one slot for each buffer: the step at which it begins. Two buffers live at a
time if the slots of one have the first of the other. A tree halves the slots again and
again:

    slots    0 1 2 3 4 5 6 7        buffer in slots 1 to 5: nodes 1, 23, 45
    nodes    0 1 2 3 4 5 6 7
             01  23  45  67
             0123    4567
             01234567

Every node knows which bytes are taken by buffers that have it as their own (`whole`:
they live in all its slots), and by buffers that have it or a node under it (`within`).
A buffer meets `within` of its own nodes, and `whole` of the nodes above them. Bytes
that touch are one interval, so that buffers packed tightly are few intervals however
many they are. Where gaps make them many, arrays of all buffers are faster.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import sub
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Up to this many buffers, arrays of all are as fast.
_FEW_BUFFERS: Final = 1500
#: From this many intervals on, arrays of all buffers are faster.
_MANY_INTERVALS: Final = 192
#: The tree is given up if, after this many buffers, it helped with fewer than half.
_TRIALS: Final = 256
#: Buffers added to the arrays before these are sorted again.
_UNSORTED: Final = 256

#: First slot, and the first one after.
Span = tuple[int, int]


class _Bytes:
    """Bytes that are taken, as intervals that do not touch, by address.

    Attributes:
        lows: first byte of each.
        highs: first byte after each.
    """

    __slots__ = ("highs", "lows")

    def __init__(self, low: int, high: int) -> None:
        self.lows = [low]
        self.highs = [high]

    def take(self, low: int, high: int) -> None:
        """Add bytes `low` to `high`, which may be taken already."""
        lows, highs = self.lows, self.highs
        last = highs[-1]
        if low == last:
            highs[-1] = high
            return
        if low > last:
            lows.append(low)
            highs.append(high)
            return
        first = bisect_left(highs, low)
        if lows[first] > high:
            lows.insert(first, low)
            highs.insert(first, high)
            return
        # Lengthen the first interval that it touches, and join those up to its end.
        if lows[first] > low:
            lows[first] = low
        if highs[first] >= high:
            return
        after = bisect_right(lows, high, first + 1)
        if after > first + 1:
            high = max(high, highs[after - 1])
            del lows[first + 1 : after], highs[first + 1 : after]
        highs[first] = high


class _Nodes:
    """The nodes of the tree in which a buffer lives.

    Attributes:
        own: the largest nodes that have only slots of the buffer, and all of these.
        above: all nodes above them.
    """

    __slots__ = ("above", "own")

    def __init__(self, spans: Sequence[Span], slots: int) -> None:
        self.own: list[int] = []
        for first, after in spans:
            left, right = first + slots, after + slots
            while left < right:
                if left & 1:
                    self.own.append(left)
                    left += 1
                if right & 1:
                    right -= 1
                    self.own.append(right)
                left >>= 1
                right >>= 1
        self.above: set[int] = set()
        for node in self.own:
            node >>= 1
            while node and node not in self.above:
                self.above.add(node)
                node >>= 1


class FilledBytes:
    """Bytes of a heap by the slots in which they are taken."""

    def __init__(self, slots: int) -> None:
        """Start empty, for that many slots."""
        self._slots = 1 << max(slots - 1, 0).bit_length()
        #: Node -> bytes; None for those of no buffer. Node 1 is the root, the nodes
        #: under k are 2k and 2k + 1, and the last ones are the slots.
        self._within: list[_Bytes | None] = [None] * (2 * self._slots)
        self._whole: list[_Bytes | None] = [None] * (2 * self._slots)
        self._all = _AllBuffers(slots)
        self._has_tree = slots > _FEW_BUFFERS
        self._asked = 0
        self._too_many = 0

    def place(self, spans: Sequence[Span], size: int) -> int:
        """Take bytes in the smallest gap of at least `size`; returns the lowest byte.

        Of equal gaps it takes the lowest; without one, the bytes after all others.
        `spans` are ascending and apart.
        """
        if not self._has_tree:
            low = self._all.gap(spans, size)
            self._all.add(spans, low, low + size)
            return low
        nodes = _Nodes(spans, self._slots)
        low = self._gap(nodes, spans, size)
        self._take(nodes, low, low + size)
        self._all.add(spans, low, low + size)
        if self._asked >= _TRIALS and 2 * self._too_many > self._asked:
            self._has_tree = False
        return low

    def _gap(self, nodes: _Nodes, spans: Sequence[Span], size: int) -> int:
        """The lower end of the smallest gap of at least `size` bytes."""
        within, whole = self._within, self._whole
        met = [taken for node in nodes.own if (taken := within[node]) is not None]
        met += [taken for node in nodes.above if (taken := whole[node]) is not None]
        # Whatever begins at 0 shows up to where there is no gap.
        start = 0
        for taken in met:
            if not taken.lows[0] and taken.highs[0] > start:
                start = taken.highs[0]
        # Collect the intervals above.
        self._asked += 1
        lows, highs = [0], [start]
        for taken in met:
            if taken.highs[-1] > start:
                lows += taken.lows
                highs += taken.highs
        if len(lows) > _MANY_INTERVALS:
            self._too_many += 1
            return self._all.gap(spans, size)
        # There is a gap where as many intervals have ended as have begun.
        lows.sort()
        highs.sort()
        ends = zip(map(sub, lows[1:], highs), highs)  # noqa: B905 (one end more)
        gaps = [(gap, low) for gap, low in ends if gap >= size]
        return min(gaps)[1] if gaps else highs[-1]

    def _take(self, nodes: _Nodes, low: int, high: int) -> None:
        for node in nodes.own:
            taken = self._whole[node]
            if taken is None:
                self._whole[node] = _Bytes(low, high)
            else:
                taken.take(low, high)
        for part in (nodes.own, nodes.above):
            for node in part:
                taken = self._within[node]
                if taken is None:
                    self._within[node] = _Bytes(low, high)
                else:
                    taken.take(low, high)


class _AllBuffers:
    """Slots and bytes of all buffers, as arrays; sorted by address but for the last."""

    def __init__(self, most: int) -> None:
        #: Rows: first slot and the first one after, lowest byte and first byte after.
        self._table = np.zeros((4, most), dtype=np.int64)
        self._count = 0
        self._sorted = 0
        self._new: list[tuple[int, int, int, int]] = []

    def add(self, spans: Sequence[Span], low: int, high: int) -> None:
        """Add a buffer."""
        self._new += ((first, after, low, high) for first, after in spans)

    def gap(self, spans: Sequence[Span], size: int) -> int:
        """The lower end of the smallest gap of at least `size` bytes."""
        self._take_over_new()
        low, high = self._met(spans)
        filled = np.maximum.accumulate(high)
        free_from = np.concatenate(([0], filled))
        gaps = low - free_from[:-1]
        fits = np.flatnonzero(gaps >= size)
        if fits.size == 0:
            return int(free_from[-1])
        return int(free_from[fits[np.argmin(gaps[fits])]])

    def _take_over_new(self) -> None:
        for row in self._new:
            self._table[:, self._count] = row
            self._count += 1
        self._new.clear()
        if self._count - self._sorted > _UNSORTED:
            used = self._table[:, : self._count]
            used[:] = used[:, np.argsort(used[2], kind="stable")]
            self._sorted = self._count

    def _met(
        self, spans: Sequence[Span]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bytes of the buffers that live in one of the spans, sorted by the lowest."""
        first, after, low, high = self._table[:, : self._count]
        (begin, end), *others = spans
        meets = (first < end) & (after > begin)
        for begin, end in others:
            meets |= (first < end) & (after > begin)
        met = np.flatnonzero(meets)
        low = low[met]
        order = np.argsort(low, kind="stable")
        return low[order], high[met[order]]
