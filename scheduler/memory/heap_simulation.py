"""The least memory that a program needs, and how much a best-fit heap gives it.

    minimum_bytes   what lives at the worst moment, no gaps
    packed_bytes    the greatest address of a heap that places big buffers first
    fragmentation   the difference

The whole program is simulated as one sequence; a result may reuse an operand that dies
there.

Source: openxla/xla `xla/service/heap_simulator/heap_simulator.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_passes.scheduler.memory.buffers import Buffers
from hlo_passes.scheduler.memory.live_ranges import LiveRanges, live_ranges
from hlo_passes.scheduler.memory.packing import Packing
from hlo_passes.scheduler.memory.sharing import may_share, sharing_operands

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation


class HeapSimulation:
    """One run of a program.

    Attributes:
        minimum_bytes: what lives at the worst moment.
        packed_bytes: end of the best-fit heap; equal to the minimum without `packs`.
    """

    def __init__(
        self,
        buffers: Buffers,
        blocks: Mapping[Computation, Sequence[int]],
        bytes_of: Callable[[int], int],
        *,
        packs: bool = False,
        counts_once: bool = False,
    ) -> None:
        """Simulate a program.

        Args:
            buffers: of the module.
            blocks: computation -> numbers of its instructions, in order.
            bytes_of: size of a value.
            packs: also run the best-fit heap.
            counts_once: a buffer counts once while one of its values ends and the next
                begins; else twice.
        """
        self._buffers = buffers
        self._flow = buffers.flow
        self._ranges = live_ranges(buffers, blocks)
        self._values = self._values_by_buffer()
        self._group_bytes = {
            b: max(bytes_of(v) for v in values) for b, values in self._values.items()
        }
        self._leader: dict[int, int] = {}
        #: Buffer -> how many of its values live; of no use if both count.
        self._living: dict[int, int] | None = {} if counts_once else None
        self._heap = Packing() if packs else None
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
        self._freed: dict[int, dict[int, None]] = {}
        order = sorted(ranges.start, key=lambda v: (ranges.start[v], ranges.end[v], v))
        for v in order:
            if instructions[flow.owner(v)].opcode == "constant":
                continue
            defined.setdefault(ranges.start[v], []).append(v)
            self._freed.setdefault(ranges.end[v], {})[v] = None
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
        """The group of buffers that reuse one another's memory."""
        leader = self._leader
        while b in leader:
            b = leader[b]
        return b

    def _size(self, v: int) -> int:
        return self._group_bytes[self._find(self._buffers.of_value[v])]

    def _allocate(self, v: int, place: int | None) -> None:
        size = self._size(v)
        if self._living is None or self._begin(v) == 1:
            self._current_bytes += size
        self.minimum_bytes = max(self.minimum_bytes, self._current_bytes)
        if self._heap is not None:
            self._heap.allocate(v, size, place)

    def _begin(self, v: int) -> int:
        """How many values of the buffer live with this one."""
        assert self._living is not None
        b = self._buffers.of_value[v]
        self._living[b] = self._living.get(b, 0) + 1
        return self._living[b]

    def _free(self, v: int) -> None:
        if self._living is None:
            self._current_bytes -= self._size(v)
        else:
            b = self._buffers.of_value[v]
            self._living[b] -= 1
            if not self._living[b]:
                self._current_bytes -= self._size(v)
        if self._heap is not None:
            self._heap.free(v)

    def _take_over(self, v: int, now: int) -> bool:
        """Put a value into the memory of an operand that dies now, if it may be."""
        flow, buffers, ranges = self._flow, self._buffers, self._ranges
        n = flow.owner(v)
        instruction = flow.reached.instructions[n]
        if instruction.opcode == "copy":
            return False
        freed = self._freed.get(now, {})
        path = flow.parts(n).paths[v - flow.start[n]]
        operands = sharing_operands(instruction, path) if freed else ()
        for operand in operands:
            at = flow.start[flow.reached.number[operand]]
            w = flow.value[at]
            if w not in ranges.end or ranges.end[w] != now or w not in freed:
                continue
            b = buffers.of_value[w]
            if len(self._values[b]) > 1:
                continue
            m = flow.owner(w)
            giver = flow.reached.instructions[m]
            if instruction not in giver.user_table():
                continue
            if w != flow.start[m] or not may_share(giver, instruction, path):
                continue
            self._free(w)
            del freed[w]
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
