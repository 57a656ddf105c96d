"""Facts about values for the memory schedulers: definer, holders, bytes.

    w = (f32[4], s32[]) while(t)     holds its table's value and those of both parts

Unlike in the pressure tables, only host memory (space 5) counts nothing, every other
space counts in full, and dynamic arrays need no space after them.

Source: openxla/xla `xla/service/gpu/gpu_hlo_schedule.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffer_sizes import (
    DYNAMIC_SIZE_BYTES,
    memory_space,
    parts_of,
)
from hlo_passes.scheduler.memory.value_table import NO_VALUE

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.shapes import Shape
    from hlo_passes.scheduler.memory.dataflow import Dataflow

#: Memory space of the host in XLA's layouts.
HOST_SPACE: Final = 5
_GIVEN: Final = frozenset({"parameter", "constant"})


def scheduled_bytes(shape: Shape, size_bytes: int) -> int:
    """Bytes of one part as the memory schedulers count it.

    Args:
        shape: of the part.
        size_bytes: as in `Parts.sizes_bytes`.
    """
    if memory_space(shape) == HOST_SPACE:
        return 0
    if True in shape.dynamic:
        return size_bytes - DYNAMIC_SIZE_BYTES * shape.rank
    return size_bytes


class ValueSizes:
    """Values of a module by instruction, and their bytes.

    Attributes:
        flow: the values.
        by_value: position that defines a value -> its bytes.
    """

    def __init__(self, flow: Dataflow) -> None:
        """Sizes of all positions."""
        self.flow = flow
        self.by_value: list[int] = []
        self._given: list[bool] = []
        for instruction in flow.reached.instructions:
            parts = parts_of(instruction.shape)
            self.by_value += [
                scheduled_bytes(shape, size)
                for shape, size in zip(parts.shapes, parts.sizes_bytes, strict=True)
            ]
            self._given += [instruction.opcode in _GIVEN] * parts.count

    def bytes_of(self, value: int) -> int:
        """Bytes of a value."""
        return self.by_value[value]

    def is_given(self, value: int) -> bool:
        """Whether a parameter or constant defines it."""
        return self._given[value]

    def held(self, instruction: Instruction) -> list[int]:
        """Values at all parts of an instruction, each once."""
        flow = self.flow
        n = flow.reached.number[instruction]
        values = flow.value[flow.start[n] : flow.start[n + 1]]
        return [v for v in dict.fromkeys(values) if v != NO_VALUE]

    def defined(self, instruction: Instruction) -> list[int]:
        """Values that an instruction defines."""
        flow = self.flow
        n = flow.reached.number[instruction]
        first, stop = flow.start[n], flow.start[n + 1]
        return [p for p in range(first, stop) if flow.value[p] == p]
