"""The least time of a kernel: that of its bytes, read and written once.

    %s = f32[4096,4096] fusion(%x), kind=kCustom, calls=%softmax     64 MiB in and out
        -> 40 us on an H100, whatever the kernel computes

XLA has no model for the kernels of Triton, of sorts and of copies. On one H100 and one
H200 such kernels took 1.1 to 3 times this (docs/one_gpu.md). An operand of which a
fusion only reads slices counts what is made of these slices, and no more than itself.

XLA's table of matrix products knows rates of arithmetic. A product of few rows reads
its weights for each of them, and takes the time of these bytes:

    %d = bf16[8,8192] dot(bf16[8,8192] %x, bf16[8192,8192] %w)
        -> 40 us on an H100; 2.6 us by the table
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.cost_analysis import analyze_fusion
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.collectives import (
    leaf_bytes,
    operand_bytes,
    wrapped_collective,
)
from hlo_passes.scheduler.latency.durations import memory_ticks

#: What XLA leaves outside of fusions, of the instructions without a model.
_UNFUSED: Final = frozenset({"copy", "sort"})


def least_ticks(kernel: Instruction, target: Target) -> int:
    """Ticks for the bytes of a kernel: a fusion, a copy, a sort, a matrix product."""
    bandwidth = target.memory_bandwidth_bytes_per_s
    return memory_ticks(_bytes(kernel), bandwidth)


def is_kernel(instruction: Instruction) -> bool:
    """Whether it runs by itself, as it is.

    Before XLA makes fusions it also has broadcasts, slices and sums that later share a
    kernel, and reshapes that need none. None of these are left when a module runs. The
    kernel of a collective is none of these: it has a time of its own.
    """
    if instruction.opcode == "fusion":
        return wrapped_collective(instruction) is None
    return (
        instruction.opcode in _UNFUSED and instruction.computation.module.is_scheduled
    )


def _bytes(kernel: Instruction) -> int:
    if kernel.opcode != "fusion" or not kernel.called_computations:
        # Copies, sorts and products read each operand whole.
        given = sum(operand_bytes(operand.shape) for operand in set(kernel.operands))
        result = kernel.shape
        if kernel.opcode == "custom-call" and result.is_tuple:
            # The rest of a library call's result is its workspace.
            result = result.elements[0]
        return given + leaf_bytes(result)
    cost = analyze_fusion(FusedGraph.of(kernel), {})
    # A value that is read at two places is read once at most.
    read: dict[Instruction, int] = {}
    for operand, size in zip(kernel.operands, cost.operand_bytes, strict=False):
        whole = operand_bytes(operand.shape)
        read[operand] = min(whole, read.get(operand, 0) + size)
    return sum(read.values()) + min(leaf_bytes(kernel.shape), cost.result_bytes)
