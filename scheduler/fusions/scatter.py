"""Grid of the scatter kernels.

    f32[1000003] scatter, 1000 sorted indices      one warp per index: 250 blocks
    f32[4096,256] scatter of f32[50000,256]        one thread per element of the updates
    s32[262145] scatter, 8 indices                 a whole warp: 32 threads, not 8

Many sorted indices that may repeat are summed warp by warp before they are written. In
both cases a block consists of whole warps, so few updates still occupy 32 lanes.
Source: openxla/xla `codegen/emitters/scatter.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph, bit_width
from hlo_passes.scheduler.fusions.launch_dimensions import (
    LaunchDimensions,
    ceil_div,
    loop_launch,
    loop_unroll,
)
from hlo_passes.scheduler.hardware.target import Target

_WARP_THREADS: Final = 32
_WARPS: Final = 4
_THREADS: Final = _WARP_THREADS * _WARPS
_VECTOR_BITS: Final = 128


def scatter_launch(
    graph: FusedGraph, scatter: Instruction, target: Target
) -> LaunchDimensions:
    """Grid of a fusion whose root is a scatter in XLA's simplified form.

    Its operands come first, then indices [slices, length], then updates [slices, ...].
    """
    arrays = len(scatter.operands) // 2
    indices = scatter.operands[arrays].shape
    updates = scatter.operands[arrays + 1].shape
    if indices.rank == 2 and updates.rank and _accumulates(scatter):
        slices = indices.dimensions[0]
        if slices > _WARPS * target.sm_count:
            return _by_index(scatter, slices, target)
    in_slice = math.prod(updates.dimensions[1:])
    unroll = loop_unroll(graph, updates.element_count, target)
    launch = loop_launch(updates.element_count, math.gcd(in_slice, unroll) or 1)
    warps = ceil_div(launch.threads, _WARP_THREADS)
    return LaunchDimensions(launch.blocks, warps * _WARP_THREADS)


def _accumulates(scatter: Instruction) -> bool:
    """Whether equal indices are next to one another."""
    attributes = scatter.attributes
    return (
        attributes.get("indices_are_sorted") == "true"
        and attributes.get("unique_indices") != "true"
    )


def _by_index(scatter: Instruction, slices: int, target: Target) -> LaunchDimensions:
    arrays = len(scatter.operands) // 2
    result = scatter.operands[0].shape.dimensions
    indices = scatter.operands[arrays].shape
    in_slice = scatter.operands[arrays + 1].shape.dimensions[1:]
    length = indices.dimensions[1]
    places = math.prod(
        whole - part + 1
        for whole, part in zip(result[:length], in_slice[:length], strict=False)
    )
    per_warp = ceil_div(slices, max(_WARPS * target.sm_count, places))
    vector = _VECTOR_BITS // max(1, bit_width(indices.element_type))
    if length == 1 and per_warp > vector:
        per_warp = ceil_div(per_warp, vector) * vector
    return LaunchDimensions(ceil_div(slices, per_warp * _WARPS), _THREADS)
