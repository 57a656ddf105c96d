"""Memory along a schedule, first to last: what lives while each instruction runs.

    a = f32[256] fusion(p)      while 1024, after 1024
    ROOT r = f32[] reduce(a)    while 1028, after    4

The curve comes from the same replay as the pressure peak, so that its greatest value is
that peak. Parameters of the entry are not part of it: they always live
(`parameter_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_passes.scheduler.memory.memory_limit import device_bytes
from hlo_passes.scheduler.memory.pressure import (
    ComputationMemory,
    ModuleMemory,
    PressureState,
)

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Memory of one computation, by position in its order.

    Attributes:
        computation: whose curve it is.
        order: the instructions, first to last.
        while_bytes: live while each runs, including what it calls.
        after_bytes: live after each has finished.
        initial_bytes: live around the whole computation; part of all values.
        peak_bytes: the greatest of `while_bytes`, at least `initial_bytes`.
    """

    computation: Computation
    order: tuple[Instruction, ...]
    while_bytes: list[int]
    after_bytes: list[int]
    initial_bytes: int
    peak_bytes: int


def memory_curve(
    module: Module, memory: ModuleMemory | None = None
) -> dict[Computation, MemoryCurve]:
    """Curves of all computations that run, callees first.

    Args:
        module: in the orders to measure.
        memory: of the module, if it exists already.
    """
    memory = memory if memory is not None else ModuleMemory(module)
    return {
        computation: curve_of(memory.of(computation))
        for computation in memory.computations
    }


def curve_of(memory: ComputationMemory) -> MemoryCurve:
    """The curve of one computation, for scheduling from the bottom up."""
    state = PressureState(memory)
    count = len(memory.order)
    while_bytes, after_bytes = [0] * count, [0] * count
    sizes = memory.sizes_bytes
    for k in range(count - 1, -1, -1):
        before_bytes = state.usage_bytes
        after_bytes[k] = before_bytes
        grown = sum(
            sizes[b] for b in dict.fromkeys(memory.allocs[k]) if b not in state.live
        )
        while_bytes[k] = before_bytes + max(grown, memory.inner_peak_bytes[k])
        state.place(k)
    return MemoryCurve(
        memory.computation,
        memory.order,
        while_bytes,
        after_bytes,
        memory.initial_bytes,
        memory.initial_bytes + state.peak_delta_bytes,
    )


def parameter_bytes(module: Module) -> int:
    """Device memory of the entry's parameters, which live from first to last."""
    return sum(device_bytes(p.shape) for p in module.entry.parameters)
