"""Time of a fusion: compute and memory, which overlap by 95%.

    compute = flops / (2 * clock * busy SMs * busy lanes)
    memory  = first reads from HBM + re-reads from cache + writes
    time    = compute + memory - 0.95 * min(compute, memory)

Few blocks cannot saturate HBM: a block moves at most 32 bytes per clock.
Source: openxla/xla `gpu_performance_model.cc`, `gpu_performance_model_base.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import BITS
from hlo_passes.scheduler.fusions.cost_analysis import (
    FusionCost,
    OpCycles,
    analyze_fusion,
)
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.fusions.kernel import (
    Kernel,
    is_coalesced,
    kernel_of,
    triton_kernel,
)
from hlo_passes.scheduler.fusions.launch_dimensions import LaunchDimensions
from hlo_passes.scheduler.hardware.target import (
    DRAM_TRANSACTION_BYTES,
    L1_CACHE_BYTES_PER_SM,
    MEMORY_TRANSACTION_BYTES_PER_CLOCK,
    Target,
)
from hlo_passes.scheduler.latency.collectives import operand_bytes
from hlo_passes.scheduler.latency.durations import (
    memory_ticks,
    scaled,
    ticks_of_ns,
    ticks_of_s,
)

_F32 = np.float32
_OVERLAP: Final = 0.95
_L2_SPEEDUP: Final = _F32(2.5)
_L1_SPEEDUP: Final = _F32(8)
_TUPLE_ELEMENT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class FusionTime:
    """Time of a fusion and its parts; durations in ticks (0.25 ns)."""

    ticks: int
    compute_ticks: int
    read_ticks: int
    write_ticks: int
    cost: FusionCost
    kernel: Kernel


def compute_ticks(flops: int, launch: LaunchDimensions, target: Target) -> int:
    """Time of the arithmetic."""
    lanes = min(launch.blocks, target.sm_count) * min(
        launch.threads, target.fpus_per_sm
    )
    per_ns = int(float(_F32(_F32(target.clock_ghz) * _F32(2))) * lanes)
    return ticks_of_ns(float(_F32(flops) / _F32(per_ns))) if per_ns else 0


def fusion_time(
    fusion: Instruction,
    target: Target,
    cycles: OpCycles,
    *,
    broadcasts_join: bool = True,
) -> FusionTime:
    """Time of a loop or input fusion; `broadcasts_join` as in `kernel_of`."""
    graph = FusedGraph.of(fusion)
    cost = analyze_fusion(graph, cycles)
    kernel = triton_kernel(fusion, graph) or kernel_of(
        graph, target, broadcasts_join=broadcasts_join
    )
    coalesced = is_coalesced(graph, kernel.emitter)
    compute = compute_ticks(cost.flops, kernel.launch, target)
    read = 0
    priced: dict[Instruction, int] = {}
    # Operands that the body does not take are not read.
    for operand, own in zip(fusion.operands, cost.operand_bytes, strict=False):
        # A value that is read twice counts its first place twice, as in XLA.
        total = priced.setdefault(operand, own)
        read += read_ticks(
            operand, total, kernel.launch.blocks, coalesced=coalesced, target=target
        )
    write = memory_ticks(cost.result_bytes, target.memory_bandwidth_bytes_per_s)
    ticks = exec_ticks(compute, read + write)
    return FusionTime(ticks, compute, read, write, cost, kernel)


def exec_ticks(compute: int, memory: int) -> int:
    """Compute and memory; they overlap except for a twentieth of the shorter."""
    return compute + memory - scaled(min(compute, memory), _OVERLAP)


def read_ticks(
    operand: Instruction, total: int, blocks: int, *, coalesced: bool, target: Target
) -> int:
    """Time to read `total` bytes of an operand, once from HBM and again from cache."""
    net = min(operand_bytes(operand.shape), total)
    efficiency = 1.0 if coalesced else _element_bytes(operand) / DRAM_TRANSACTION_BYTES
    bandwidth = target.memory_bandwidth_bytes_per_s
    dram = _F32(bandwidth * efficiency)
    again = _F32(bandwidth)
    if net < target.l2_cache_bytes:
        again *= _L2_SPEEDUP
        if net < L1_CACHE_BYTES_PER_SM * target.sm_count:
            again *= _L1_SPEEDUP
    else:
        again = _F32(float(again) * efficiency)
    per_block = _F32(
        _F32(_F32(target.clock_ghz) * _F32(1e9))
        * _F32(MEMORY_TRANSACTION_BYTES_PER_CLOCK)
    )
    most = _F32(blocks) * per_block
    first = ticks_of_s(float(_F32(net) / min(dram, most)))
    return first + ticks_of_s(float(_F32(total - net) / min(again, most)))


def _element_bytes(operand: Instruction) -> int:
    if not operand.shape.is_array:
        return _TUPLE_ELEMENT_BYTES
    return max(1, (BITS[operand.shape.element_type] + 7) // 8)
