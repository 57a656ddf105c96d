"""Copies between a TPU's two memories: HBM, and the VMEM beside its cores.

    %s = (..S(1).., ...) copy-start(%x)                 all of %x into VMEM
    %s = ((...), ..S(1).., ...) slice-start(%x)         a part of it
    %c = ..S(1).. custom-call(%d, %e), "ConcatBitcast"  the parts side by side: free

The compiler makes them after its scheduler, while it gives memory to arrays. They run
beside the cores and share the bandwidth of HBM.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import is_start, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.tpu.sparse_core import is_on_sparse_core

#: What moves elements and computes nothing.
_MOVES: Final = frozenset({"copy", "slice", "dynamic-slice", "dynamic-update-slice"})
#: The number of the host's memory in a layout: S(5).
_HOST_MEMORY: Final = 5
_JOINS: Final = '"ConcatBitcast"'
#: Custom-calls that name memory and run nothing.
FREE_CALLS: Final = frozenset({_JOINS, '"AllocateBuffer"', '"NopReturnToken"'})


def is_dma(start: Instruction) -> bool:
    """Whether a start for a TPU begins a copy inside the chip."""
    return (
        is_start(start)
        and work_of(start) in _MOVES
        and not is_on_sparse_core(start)
        and not any(map(_is_on_host, _arrays(start)))
    )


def moved_bytes(start: Instruction) -> int:
    """Bytes that a copy inside the chip moves, without tiles.

    Those of its smallest array: of the part that is cut out, or written into another.
    """
    sizes = [shape.byte_size for shape in _arrays(start) if shape.rank]
    return min(sizes, default=0)


def joins_parts(instruction: Instruction) -> bool:
    """Whether it makes one array of parts that lie side by side."""
    target = instruction.attributes.get("custom_call_target")
    return instruction.opcode == "custom-call" and target == _JOINS


def _arrays(start: Instruction) -> list[Shape]:
    """Arrays that a start gets and returns."""
    shapes = (start.shape, *(operand.shape for operand in start.operands))
    return [leaf for shape in shapes for _, leaf in shape.leaves() if leaf.is_array]


def _is_on_host(shape: Shape) -> bool:
    return shape.layout is not None and shape.layout.memory_space == _HOST_MEMORY
