"""The roofline of any instruction, fused or not.

The scheduler's analytical estimator does not do this. Elsewhere, XLA prices plain
instructions as loop kernels of their own, and so does the legacy estimator.

Source: openxla/xla `gpu_performance_model.cc`, EstimateRunTimeForInstruction.
"""

from __future__ import annotations

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.cost_analysis import OpCycles, flops_of
from hlo_passes.scheduler.fusions.launch_dimensions import loop_launch
from hlo_passes.scheduler.fusions.roofline import (
    compute_ticks,
    exec_ticks,
    fusion_time,
    read_ticks,
)
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.collectives import leaf_bytes, operand_bytes
from hlo_passes.scheduler.latency.durations import float32_integer, memory_ticks

#: Opcodes without code, or whose code does not read and write.
_FREE = frozenset(
    "parameter constant get-tuple-element bitcast tuple after-all domain "
    "add-dependency opt-barrier partition-id replica-id".split()
)


def instruction_ticks(
    instruction: Instruction, target: Target, cycles: OpCycles
) -> int:
    """Time of an instruction, ticks."""
    if instruction.opcode == "fusion" and instruction.called_computations:
        return fusion_time(instruction, target, cycles).ticks
    if instruction.opcode in _FREE:
        return 0
    elements = max(
        (leaf.element_count for _, leaf in instruction.shape.leaves() if leaf.is_array),
        default=0,
    )
    launch = loop_launch(elements, 1)
    flops = float32_integer(int(flops_of(instruction, cycles)))
    read = sum(
        read_ticks(operand, size, launch.blocks, coalesced=True, target=target)
        for operand, size in _reads(instruction)
    )
    write = memory_ticks(_written(instruction), target.memory_bandwidth_bytes_per_s)
    return exec_ticks(compute_ticks(flops, launch, target), read + write)


def _reads(instruction: Instruction) -> list[tuple[Instruction, int]]:
    opcode, result = instruction.opcode, leaf_bytes(instruction.shape)
    sizes = [operand_bytes(o.shape) for o in instruction.operands]
    if opcode in ("broadcast", "slice", "dynamic-slice", "gather"):
        sizes[0] = result
    if opcode == "dynamic-update-slice":
        sizes[0] = 0
    return list(zip(instruction.operands, sizes, strict=True))


def _written(instruction: Instruction) -> int:
    if instruction.opcode == "dynamic-update-slice":
        return leaf_bytes(instruction.operands[1].shape)
    return leaf_bytes(instruction.shape)
