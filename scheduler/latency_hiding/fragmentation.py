"""Memory that a heap loses between buffers, to decide whether to run once more.

Source: openxla/xla `latency_hiding_scheduler.cc`, EstimateFragmentationSize (Aug 2026).
"""

from __future__ import annotations

from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.buffer_sizes import memory_space, parts_of
from hlo_passes.scheduler.memory.buffer_table import ordered_blocks
from hlo_passes.scheduler.memory.buffers import Buffers
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.value_sizes import scheduled_bytes


def fragmentation_bytes(module: Module, buffers: Buffers) -> int:
    """Bytes that a best-fit heap needs for the current orders beyond what lives.

    Arrays in the default memory space count, tables of tuples do not.
    """
    flow = buffers.flow
    sizes: list[int] = []
    for instruction in flow.reached.instructions:
        parts = parts_of(instruction.shape)
        sizes += [
            scheduled_bytes(shape, size)
            if not shape.is_tuple and memory_space(shape) == 0
            else 0
            for shape, size in zip(parts.shapes, parts.sizes_bytes, strict=True)
        ]
    orders = {c: c.instructions for c in module.computations}
    blocks = ordered_blocks(flow.reached, orders)
    simulated = HeapSimulation(buffers, blocks, sizes.__getitem__, packs=True)
    return max(simulated.fragmentation_bytes, 0)
