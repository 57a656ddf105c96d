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
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import BITS, Shape
from hlo_passes.scheduler.fusions.cost_analysis import analyze_fusion
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.collectives import fused_collective
from hlo_passes.scheduler.latency.durations import memory_ticks

#: Makers of operands that may be fused, besides elementwise ones, and how many deep.
_LOOKED_THROUGH: Final = frozenset(
    {"bitcast", "broadcast", "copy", "pad", "reshape", "transpose"}
)
_DEPTH: Final = 4
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
        return fused_collective(instruction) is None
    return (
        instruction.opcode in _UNFUSED and instruction.computation.module.is_scheduled
    )


def _bytes(kernel: Instruction) -> int:
    if kernel.opcode == "dot":
        # It may yet be fused with what makes its operands and reads its result.
        return sum(_source_bytes(operand, _DEPTH) for operand in set(kernel.operands))
    if kernel.opcode != "fusion" or not kernel.called_computations:
        # Copies, sorts and library calls read each operand whole.
        given = sum(_held_bytes(operand.shape) for operand in set(kernel.operands))
        result = kernel.shape
        if kernel.opcode == "custom-call" and result.is_tuple:
            # Another part of a library call's result is its workspace.
            result = result.elements[0]
        return given + _held_bytes(result)
    graph = FusedGraph.of(kernel)
    if any(i.opcode == "fusion" for i in graph.instructions):
        # What fusions in a fusion read of its operands is not known.
        return 0
    cost = analyze_fusion(graph, {})
    # A value that is read at two places is read once at most.
    read: dict[Instruction, int] = {}
    for operand, size in zip(kernel.operands, cost.operand_bytes, strict=False):
        whole = _held_bytes(operand.shape)
        read[operand] = min(whole, read.get(operand, 0) + size)
    return sum(read.values()) + min(_held_bytes(kernel.shape), cost.result_bytes)


def _source_bytes(value: Instruction, depth: int) -> int:
    """The least that has to be read for a value, if what makes it is fused."""
    whole = _held_bytes(value.shape)
    opcode = value.opcode
    if opcode == "iota":
        return 0
    if opcode not in _LOOKED_THROUGH and not facts(opcode).is_elementwise:
        return whole
    if not depth:
        return 0
    read = sum(_source_bytes(o, depth - 1) for o in set(value.operands))
    return min(whole, read)


def _held_bytes(shape: Shape) -> int:
    """What an array takes in memory, or the arrays of a tuple; four bits take half."""
    bits = sum(
        leaf.element_count * BITS[leaf.element_type]
        for _, leaf in shape.leaves()
        if leaf.is_array
    )
    return -(-bits // 8)
