"""What a heap loses between the buffers of a scheduled module.

Source: openxla/xla `xla/service/latency_hiding_scheduler.cc`, EstimateFragmentationSize
(Aug 2026): arrays in device memory, placed byte by byte, entry parameters included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_passes.scheduler.memory.buffer_sizes import memory_space, parts_of
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.value_sizes import ValueSizes

if TYPE_CHECKING:
    from hlo_passes.scheduler.memory.pressure import ModuleMemory


def fragmentation_bytes(memory: ModuleMemory) -> int:
    """Bytes that a best-fit heap needs beyond what lives at the worst moment.

    Every buffer is held against every other: a second or two for ten thousand.
    """
    flow = memory.buffers.flow
    sizes = ValueSizes(flow)
    counted: list[int] = []
    for instruction in flow.reached.instructions:
        for shape in parts_of(instruction.shape).shapes:
            in_device = shape.is_array and memory_space(shape) == 0
            counted.append(sizes.by_value[len(counted)] if in_device else 0)
    simulation = HeapSimulation(
        memory.buffers, memory.blocks, counted.__getitem__, packs=True
    )
    return simulation.fragmentation_bytes
