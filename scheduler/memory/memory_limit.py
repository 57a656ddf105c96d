"""The memory that XLA's GPU scheduler may fill: the limit before any schedule exists.

    base  = memory of the device * 80 / 100, unless the module's config sets it
    io    = parameters and result of the entry, donated buffers counted once
    limit = (base - io) * slop / 100          0 if io does not fit into base

Source: openxla/xla `xla/service/gpu/gpu_hlo_schedule.cc`, GetSchedulerMemoryLimit (Aug
2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffer_sizes import parts_of

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module
    from hlo_passes.ir.shapes import Shape

#: The share of the device's memory that XLA's allocator is assumed to have.
DEVICE_SHARE_PERCENT: Final = 80
#: `xla_gpu_memory_limit_slop_factor`.
DEFAULT_SLOP_PERCENT: Final = 95


def entry_bytes(module: Module) -> int:
    """Parameters and result of the entry in device memory; donated results count 0.

    Every part counts: arrays by their elements, tuples by their pointers.
    """
    result = module.entry.root.shape
    total = sum(device_bytes(p.shape) for p in module.entry.parameters)
    total += device_bytes(result)
    parts = parts_of(result)
    for alias in module.input_output_aliases:
        k = parts.offsets[alias.output]
        if parts.is_default_space[k]:
            total -= parts.sizes_bytes[k]
    return total


def scheduler_memory_limit_bytes(
    module: Module,
    memory_bytes: int,
    *,
    slop_percent: int = DEFAULT_SLOP_PERCENT,
    base_bytes: int = 0,
) -> int:
    """The limit for `module`, in bytes.

    Args:
        module: its entry's parameters and result are subtracted.
        memory_bytes: of the device (`Target.memory_bytes`).
        slop_percent: how much of the rest may be filled; more than 100 is allowed.
        base_bytes: the base itself, if it is known (`device_memory_size` of XLA's
            module config), 0 to take it from the device.
    """
    base = base_bytes or memory_bytes * DEVICE_SHARE_PERCENT // 100
    taken = entry_bytes(module)
    if taken > base:
        return 0
    return (base - taken) * slop_percent // 100


def device_bytes(shape: Shape) -> int:
    """Bytes of all parts of a shape in device memory."""
    parts = parts_of(shape)
    return sum(
        size
        for size, is_default in zip(
            parts.sizes_bytes, parts.is_default_space, strict=True
        )
        if is_default
    )
