"""Copies between a TPU's two memories: HBM, and one beside its cores (VMEM).

    %s = (..S(1).., ...) copy-start(%x)                 all of %x into VMEM
    %s = ((...), ..S(1).., ...) slice-start(%x)         a part of it
    %k = ..S(1).. copy(%x)                              the same; the cores wait
    %c = ..S(1).. custom-call(%d, %e), "ConcatBitcast"  the parts side by side: free

The compiler makes them after its scheduler, while it gives memory to arrays. Those with
a start run beside the cores; all share the bandwidth of HBM.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import is_start, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.tpu_calls import JOINS
from hlo_passes.scheduler.memory.buffer_sizes import memory_space
from hlo_passes.scheduler.passes.stream_values import HOST_MEMORY
from hlo_passes.scheduler.tpu.sparse_core import is_on_sparse_core

#: What moves elements and computes nothing.
_MOVES: Final = frozenset({"copy", "slice", "dynamic-slice", "dynamic-update-slice"})
_HBM: Final = 0
#: Custom-calls that name memory and run nothing.
FREE_CALLS: Final = frozenset({JOINS, '"AllocateBuffer"', '"NopReturnToken"'})


def is_dma(start: Instruction) -> bool:
    """Whether a start for a TPU begins a copy inside the chip."""
    return (
        is_start(start)
        and not is_on_sparse_core(start)
        and hbm_bytes(start) is not None
    )


def hbm_bytes(copy: Instruction) -> int | None:
    """Bytes that a copy, or the start of one, reads from HBM and writes there.

    Elements without tiles: what is moved counts once for each end that is in HBM, 0 if
    none is. None if it moves nothing inside the chip alone.
    """
    work = work_of(copy)
    if work not in _MOVES or not copy.operands:
        return None
    source, target = copy.operands[0].shape, _result(copy)
    if work == "dynamic-update-slice" and len(copy.operands) > 1:
        source = copy.operands[1].shape
    ends = source, target
    if not all(end.is_array for end in ends) or HOST_MEMORY in map(memory_space, ends):
        return None
    moved = min(end.byte_size for end in ends)
    return moved * sum(memory_space(end) == _HBM for end in ends)


def _result(copy: Instruction) -> Shape:
    """Of the copy itself; a start holds it beside other things."""
    shape = copy.shape
    if not is_start(copy) or not shape.is_tuple:
        return shape
    # copy-start has (result, operand, context); others ((operands), result, context).
    at = 0 if copy.opcode == "copy-start" else 1
    return shape.elements[at] if at < len(shape.elements) else shape
