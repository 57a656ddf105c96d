"""The least time of a kernel: that of its bytes, read and written once.

    %s = f32[4096,4096] fusion(%x), kind=kCustom, calls=%softmax     64 MiB in and out
        -> 40 us on an H100, whatever the kernel computes

XLA has no model for the kernels of Triton, of sorts and of copies. On one H100 and one
H200 such kernels took 1.1 to 3 times this (docs/one_gpu.md). An operand of which a
fusion only reads slices counts these slices.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.cost_analysis import analyze_fusion
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.fusions.instruction_time import bytes_moved
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.collectives import leaf_bytes, operand_bytes
from hlo_passes.scheduler.latency.durations import memory_ticks

#: What XLA leaves outside of fusions, of the instructions without a model.
_UNFUSED: Final = frozenset({"copy", "sort"})


def least_ticks(kernel: Instruction, target: Target) -> int:
    """Ticks for the bytes of a kernel, which is an instruction or a fusion."""
    bandwidth = target.memory_bandwidth_bytes_per_s
    return memory_ticks(_bytes(kernel), bandwidth)


def is_kernel(instruction: Instruction) -> bool:
    """Whether it runs by itself, as it is.

    Before XLA makes fusions it also has broadcasts, slices and sums that later share a
    kernel, and reshapes that need none. None of these are left when a module runs.
    """
    if instruction.opcode == "fusion":
        return True
    return (
        instruction.opcode in _UNFUSED and instruction.computation.module.is_scheduled
    )


def _bytes(kernel: Instruction) -> int:
    if kernel.opcode != "fusion" or not kernel.called_computations:
        return bytes_moved(kernel)
    cost = analyze_fusion(FusedGraph.of(kernel), {})
    # XLA's analysis counts a place as often as the fusion reads it.
    read = {
        operand: min(operand_bytes(operand.shape), size)
        for operand, size in zip(kernel.operands, cost.operand_bytes, strict=False)
    }
    return sum(read.values()) + min(leaf_bytes(kernel.shape), cost.result_bytes)
