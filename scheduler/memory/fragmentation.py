"""A module in a heap: what it loses between buffers, and how much it is in all.

Source: openxla/xla `latency_hiding_scheduler.cc`, EstimateFragmentationSize (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.buffer_sizes import memory_space, parts_of
from hlo_passes.scheduler.memory.buffer_table import ordered_blocks
from hlo_passes.scheduler.memory.buffers import Buffers
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.value_sizes import scheduled_bytes

#: More parts are not packed: with many gaps, each buffer is compared with all before.
_MOST_PARTS: Final = 25_000


def fragmentation_bytes(module: Module, buffers: Buffers) -> int:
    """What a best-fit heap needs for the present orders beyond what lives, bytes.

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


@dataclass(frozen=True, slots=True)
class _Packed:
    """What was found for a version of a module."""

    version: int
    bytes: int | None


def packed_bytes(module: Module, buffers: Buffers) -> int | None:
    """All that XLA's buffer assignment takes for the present orders, bytes.

    Parameters and result, constants, and a best-fit heap of the rest, in which a result
    may take the place of an operand that dies. None for a module too large for that.

    Source: openxla/xla `xla/service/buffer_assignment.cc` (Aug 2026).
    """
    kept: _Packed | None = module.kept.get(_Packed)
    if kept is None or kept.version != module.version:
        found = _packed_bytes(module, buffers)
        kept = module.kept[_Packed] = _Packed(module.version, found)
    return kept.bytes


def _packed_bytes(module: Module, buffers: Buffers) -> int | None:
    flow = buffers.flow
    sizes: list[int] = []
    constants = 0
    for instruction in flow.reached.instructions:
        parts = parts_of(instruction.shape)
        device = [
            size if is_default else 0
            for size, is_default in zip(
                parts.sizes_bytes, parts.is_default_space, strict=True
            )
        ]
        if instruction.opcode == "constant":
            constants += sum(device)
        sizes += device
    if len(sizes) > _MOST_PARTS:
        return None
    orders = {c: c.instructions for c in module.computations}
    blocks = ordered_blocks(flow.reached, orders)
    heap = HeapSimulation(buffers, blocks, sizes.__getitem__, packs=True)
    return heap.packed_bytes + constants
