"""Blocks and threads of a kernel, with the rules for the loop kernel.

    f32[16777216]    four elements per thread, 128 threads per block: 32768 blocks

Source: openxla/xla `launch_dimensions.cc`, `gpu_fusible.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.windows import parse_window
from hlo_passes.scheduler.fusions.fused_graph import (
    FusedGraph,
    bit_width,
    minor_to_major,
)
from hlo_passes.scheduler.hardware.target import Target

#: Four warps of 32.
_THREADS_PER_BLOCK: Final = 128
_DEFAULT_UNROLL: Final = 4
_WIDE_UNROLL: Final = 8
_WIDEST_UNROLL: Final = 32
_VECTOR_BITS: Final = 128
_WIDE_VECTOR_BITS: Final = 256
_WIDE_VECTOR_TOOLKIT: Final = (12, 9)
_BLACKWELL: Final = 10
_BYTE: Final = 8
_MOST_CONCATENATED: Final = 10
_MOST_WINDOW_ELEMENTS: Final = 8


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks of a kernel, and threads in each."""

    blocks: int
    threads: int


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def loop_launch(elements: int, unroll: int) -> LaunchDimensions:
    """One thread per `unroll` elements."""
    if elements <= 1:
        return LaunchDimensions(1, 1)
    work = ceil_div(elements, unroll)
    threads = min(_THREADS_PER_BLOCK, work)
    return LaunchDimensions(ceil_div(work, threads), threads)


def loop_unroll(graph: FusedGraph, elements: int, target: Target) -> int:
    """Elements that one thread of a loop kernel computes."""
    unroll = 1
    if elements >= target.max_threads and not any(map(_suffers, graph.instructions)):
        unroll = math.gcd(elements, _most_unroll(graph, target))
    return max(unroll, ceil_div(_BYTE, graph.smallest_output_bits))


def _suffers(instruction: Instruction) -> bool:
    """Whether computing several elements per thread would slow it down."""
    opcode = instruction.opcode
    if opcode == "concatenate":
        return len(instruction.operands) > _MOST_CONCATENATED
    if opcode == "reduce":
        return instruction.shape.is_tuple and len(instruction.shape.elements) > 1
    if opcode == "reduce-window":
        window = parse_window(instruction.attributes.get("window", "{}"))
        return prod(d.size for d in window.dimensions) > _MOST_WINDOW_ELEMENTS
    return opcode in ("sort", "dot")


def _most_unroll(graph: FusedGraph, target: Target) -> int:
    """Four, or up to 32 for narrow single results on Blackwell."""
    vector_bits = (
        _WIDE_VECTOR_BITS
        if target.toolkit_version >= _WIDE_VECTOR_TOOLKIT
        else _VECTOR_BITS
    )
    if (
        target.capability[0] != _BLACKWELL
        or len(graph.roots) > 1
        or graph.smallest_output_bits >= vector_bits // _DEFAULT_UNROLL
        or any(i.opcode == "reduce" for i in graph.instructions)
    ):
        return _DEFAULT_UNROLL
    shapes = [i.shape for i in (*graph.parameters, *graph.roots)]
    widest = max((bit_width(s.element_type) for s in shapes if s.is_array), default=0)
    unroll = min(_WIDEST_UNROLL, vector_bits // max(_BYTE, widest))
    unroll = 1 << (max(unroll, 1).bit_length() - 1)
    if any(i.opcode == "pad" for i in graph.instructions):
        unroll = min(unroll, _WIDE_UNROLL)
    while unroll > _DEFAULT_UNROLL and any(
        i.opcode == "transpose" and _minor_size(i) < unroll for i in graph.instructions
    ):
        unroll //= 2
    return max(unroll, _WIDE_UNROLL)


def _minor_size(instruction: Instruction) -> int:
    """Size of the fastest dimension."""
    order = minor_to_major(instruction.shape)
    return instruction.shape.dimensions[order[0]] if order else 1
