"""The most that lives in a TPU's VMEM, the memory beside its cores, in whole tiles.

    %u = (..S(1).., ...) copy-start(%x)       bf16[256,512] lives from here on,
    %c = ..S(1).. copy-done(%u)               262,144 bytes,
    %f = ... fusion(%c)                       to here

Only the compiler's last modules say what lives there. What a fusion takes for itself is
not counted, nor is it in these modules. Buffers are those of the other memory
(`buffers.py`), but the parts that a ConcatBitcast joins are one buffer from the first
of them on: they lie side by side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.memory.buffer_sizes import memory_space
from hlo_passes.scheduler.memory.buffers import buffers_of_values
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.memory.tpu_sizes import padded_bytes
from hlo_passes.scheduler.tpu.dma import joins_parts

#: Its numbers in layouts: v4's, and that of the others.
_VMEM: Final = frozenset({3, 1})


def vmem_peak_bytes(memory: ModuleMemory) -> int:
    """The most of a module for a TPU that lives in VMEM at once, bytes.

    Complexity: that of `ModuleMemory`, which reads the module.
    """
    flow = memory.buffers.flow
    joined = [i for i in flow.reached.instructions if joins_parts(i)]
    pairs = [
        (flow.value[flow.position(whole, ())], flow.value[flow.position(part, ())])
        for whole in joined
        for part in whole.operands
    ]
    flow = replace(flow, merged=[*flow.merged, *pairs])
    buffers = buffers_of_values(flow, _bytes_in_vmem)
    sizes = list(buffers.sizes_bytes)
    for whole in joined:
        for buffer in buffers.at(flow.position(whole, ())):
            sizes[buffer] = _bytes_in_vmem(whole.shape)
    if not any(sizes):
        return 0
    buffers = replace(buffers, sizes_bytes=sizes, is_counted=[True] * len(sizes))
    return ModuleMemory(memory.module, buffers=buffers).module_peak_bytes


def _bytes_in_vmem(shape: Shape) -> int:
    if not shape.is_array or memory_space(shape) not in _VMEM:
        return 0
    layout = shape.layout
    has_tiles = layout is not None and bool(layout.tiles)
    return padded_bytes(shape) if has_tiles else shape.byte_size
