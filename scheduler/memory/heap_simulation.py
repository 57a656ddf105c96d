"""How much memory a program needs at least, and how much a best-fit heap gives it.

    minimum_bytes   what lives at the worst moment, no gaps
    packed_bytes    the greatest address of a heap that places big buffers first
    fragmentation   the difference

The whole program is simulated as one sequence; a result may take over an operand that
dies there.

Source: openxla/xla `xla/service/heap_simulator/heap_simulator.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.memory.buffers import Buffers
from scheduler.memory.live_ranges import LiveRanges, live_ranges
from scheduler.memory.sharing import may_share

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation


class HeapSimulation:
    """One run through a program.

    Attributes:
        minimum_bytes: what lives at the worst moment.
        packed_bytes: end of the best-fit heap; the same without `packs`.
    """

    def __init__(
        self,
        buffers: Buffers,
        blocks: Mapping[Computation, Sequence[int]],
        bytes_of: Callable[[int], int],
        *,
        packs: bool = False,
    ) -> None:
        """Simulate a program.

        Args:
            buffers: of the module.
            blocks: computation -> numbers of its instructions, in order.
            bytes_of: size of a value.
            packs: run the best-fit heap as well.
        """
        self._buffers = buffers
        self._flow = buffers.flow
        self._bytes_of = bytes_of
        self._ranges = live_ranges(buffers, blocks)
        self._values = self._values_by_buffer()
        self._group_bytes = {
            b: max(bytes_of(v) for v in values) for b, values in self._values.items()
        }
        self._leader: dict[int, int] = {}
        self._heap = _Packing() if packs else None
        self._current_bytes = 0
        self.minimum_bytes = 0
        self._run()
        self.packed_bytes = (
            self._heap.packed_bytes() if self._heap else self.minimum_bytes
        )

    @property
    def fragmentation_bytes(self) -> int:
        """What the heap needs beyond the minimum."""
        return max(0, self.packed_bytes - self.minimum_bytes)

    def _values_by_buffer(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for v, b in self._buffers.of_value.items():
            found.setdefault(b, []).append(v)
        return found

    def _run(self) -> None:
        ranges: LiveRanges = self._ranges
        flow = self._flow
        instructions = flow.reached.instructions
        defined: dict[int, list[int]] = {}
        self._freed: dict[int, list[int]] = {}
        order = sorted(ranges.start, key=lambda v: (ranges.start[v], ranges.end[v], v))
        for v in order:
            if instructions[flow.owner(v)].opcode == "constant":
                continue
            defined.setdefault(ranges.start[v], []).append(v)
            self._freed.setdefault(ranges.end[v], []).append(v)
        allocated: dict[int, int] = {}
        for now in range(ranges.last_time + 1):
            for v in defined.get(now, ()):
                b = self._buffers.of_value[v]
                if b in allocated:
                    self._allocate(v, allocated[b])
                elif len(self._values[b]) > 1 or not self._take_over(v, now):
                    self._allocate(v, None)
                    allocated[b] = v
            for v in self._freed.get(now, ()):
                self._free(v)

    # -- the simulated heap -------------------------------------------------

    def _find(self, b: int) -> int:
        """The group of buffers that took one another over."""
        leader = self._leader
        while b in leader:
            b = leader[b]
        return b

    def _size(self, v: int) -> int:
        return self._group_bytes[self._find(self._buffers.of_value[v])]

    def _allocate(self, v: int, place: int | None) -> None:
        size = self._size(v)
        self._current_bytes += size
        self.minimum_bytes = max(self.minimum_bytes, self._current_bytes)
        if self._heap is not None:
            self._heap.allocate(v, size, place)

    def _free(self, v: int) -> None:
        self._current_bytes -= self._size(v)
        if self._heap is not None:
            self._heap.free(v)

    def _take_over(self, v: int, now: int) -> bool:
        """Put a value where an operand lay that dies now, if any may be taken over."""
        flow, buffers, ranges = self._flow, self._buffers, self._ranges
        n = flow.owner(v)
        instruction = flow.reached.instructions[n]
        if instruction.opcode == "copy":
            return False
        freed = self._freed.get(now, [])
        for operand in instruction.operands:
            at = flow.start[flow.reached.number[operand]]
            w = flow.value[at]
            if w not in ranges.end or ranges.end[w] != now or w not in freed:
                continue
            b = buffers.of_value[w]
            if len(self._values[b]) > 1:
                continue
            m = flow.owner(w)
            giver = flow.reached.instructions[m]
            if giver not in instruction.operands:
                continue
            path = flow.parts(n).paths[v - flow.start[n]]
            if w != flow.start[m] or not may_share(giver, instruction, path):
                continue
            self._free(w)
            freed.remove(w)
            self._join(buffers.of_value[v], b)
            self._allocate(v, w)
            ranges.end[w] = ranges.end[v]
            return True
        return False

    def _join(self, taker: int, giver: int) -> None:
        one, other = self._find(taker), self._find(giver)
        size = max(self._group_bytes[one], self._group_bytes[other])
        if one != other:
            self._leader[other] = one
        self._group_bytes[one] = size


class _Packing:
    """A heap that places intervals of memory by decreasing size, each where it fits.

    Of the gaps that stay free as long as a buffer, or any placed with it, lives, the
    smallest takes it, at its lower end. Every buffer is held against all placed before.
    """

    def __init__(self) -> None:
        self._now = 0
        self._size: dict[int, int] = {}
        self._begin: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._with: dict[int, list[int]] = {}
        self._placed_with_another: set[int] = set()

    def allocate(self, v: int, size: int, place: int | None) -> None:
        if size == 0:
            return
        self._size[v], self._begin[v] = size, self._now
        self._now += 1
        if place is not None:
            self._with.setdefault(place, []).append(v)
            self._placed_with_another.add(v)

    def free(self, v: int) -> None:
        if v in self._size and v not in self._end:
            self._end[v] = self._now
            self._now += 1

    def packed_bytes(self) -> int:
        """End of the heap once everything is placed."""
        order = sorted(
            self._size, key=lambda v: (-self._size[v], self._begin[v] - self._end[v], v)
        )
        # Rows: begin, end, lowest byte, first byte behind.
        placed = np.zeros((4, len(order)), dtype=np.int64)
        count = 0
        for v in order:
            if v in self._placed_with_another:
                continue
            group = self._group(v)
            size = max(self._size[member] for member in group)
            low = self._gap(group, size, placed[:, :count])
            for member in group:
                placed[:, count] = (
                    self._begin[member],
                    self._end[member],
                    low,
                    low + size,
                )
                count += 1
        return int(placed[3].max(initial=0))

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

    def _gap(self, group: list[int], size: int, placed: NDArray[np.int64]) -> int:
        """The lower end of the smallest gap of at least `size` bytes."""
        begin, end, low, high = placed
        meets = np.zeros(begin.shape, dtype=np.bool_)
        for member in group:
            meets |= (begin <= self._end[member]) & (end >= self._begin[member])
        low, high = low[meets], high[meets]
        order = np.argsort(low, kind="stable")
        low, filled = low[order], np.maximum.accumulate(high[order])
        free_from = np.concatenate(([0], filled))
        gaps = low - free_from[:-1]
        fits = np.flatnonzero(gaps >= size)
        if fits.size == 0:
            return int(free_from[-1])
        return int(free_from[fits[np.argmin(gaps[fits])]])
