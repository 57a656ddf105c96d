"""Grid of the reduction kernels: rows, several rows per warp, columns.

    f32[8192,8192] reduce over dim 1    row kernel: 8192 blocks of 512 threads

Source: openxla/xla `reduction_utils.cc`, `codegen/emitters/reduction.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import COMPLEX, Shape
from hlo_passes.scheduler.fusions.fused_graph import (
    NO_WIDTH,
    FusedGraph,
    dimensions_of,
    minor_to_major,
)
from hlo_passes.scheduler.fusions.launch_dimensions import LaunchDimensions, ceil_div
from hlo_passes.scheduler.hardware.target import Target

_WARP: Final = 32
_COLUMN_TILE: Final = 32
_MOST_ROW_THREADS: Final = 1024
_ELEMENTS_PER_THREAD: Final = 16
_ROW_THREADS_TARGET: Final = 256
_SMALL_COLUMN_THREADS: Final = 128
_COLUMN_THREADS: Final = 1024
_MOST_RACE_FREE_BATCH: Final = 8
_RACE_FREE_ROW: Final = _MOST_ROW_THREADS * _ELEMENTS_PER_THREAD
_RACE_FREE_COLUMN: Final = _WARP * 128


@dataclass(frozen=True, slots=True)
class ReductionDimensions:
    """A reduction with neighboring dimensions merged.

    Rows: [reduced batch, kept, reduced]; columns: [kept, reduced, kept].
    """

    is_row: bool
    sizes: tuple[int, int, int]


def reduction_dimensions(reduce: Instruction) -> ReductionDimensions:
    """The form of a reduce in memory. Requires `_is_contiguous`."""
    shape = reduce.operands[0].shape
    reduced = dimensions_of(reduce)
    kept = tuple(d for d in range(shape.rank) if d not in reduced)
    if not kept:
        return ReductionDimensions(True, (1, 1, shape.element_count))
    if _consecutive(shape, kept):
        major, middle, minor = _around(shape, kept)
        if middle == 1:
            return ReductionDimensions(True, (1, 1, major * minor))
        if minor == 1:
            return ReductionDimensions(False, (1, major, middle))
        return ReductionDimensions(True, (major, middle, minor))
    major, middle, minor = _around(shape, reduced)
    if minor == 1:
        return ReductionDimensions(True, (1, major, middle))
    return ReductionDimensions(False, (major, middle, minor))


def _consecutive(shape: Shape, dims: tuple[int, ...]) -> bool:
    places = [k for k, d in enumerate(minor_to_major(shape)) if d in dims]
    return not places or places[-1] - places[0] == len(places) - 1


def _around(shape: Shape, middle: tuple[int, ...]) -> tuple[int, int, int]:
    """(slower than, size of, faster than) dimensions that are neighbors."""
    order = minor_to_major(shape)
    places = [k for k, d in enumerate(order) if d in middle]
    if not places:
        return 1, 1, prod(shape.dimensions)
    sizes = [shape.dimensions[d] for d in order]
    first, last = places[0], places[-1]
    return prod(sizes[last + 1 :]), prod(sizes[first : last + 1]), prod(sizes[:first])


def is_real_reduction(root: Instruction, hero: Instruction) -> bool:
    """Whether a reduction kernel computes this result."""
    if hero.opcode != "reduce":
        return False
    shape = hero.operands[0].shape
    reduced = dimensions_of(hero)
    kept = tuple(d for d in range(shape.rank) if d not in reduced)
    if not _consecutive(shape, kept) and not _consecutive(shape, reduced):
        return False
    found = reduction_dimensions(hero)
    return _beats_loop(found) and (root is hero or _is_race_free(found))


def _beats_loop(reduction: ReductionDimensions) -> bool:
    _, major, minor = reduction.sizes
    if reduction.is_row:
        return minor >= _WARP or (minor > 0 and _WARP % minor == 0)
    # Small columns are faster in the loop kernel.
    return not (
        major < _WARP
        or (major < 2 * _WARP and minor < _WARP)
        or (major < 4 * _WARP and minor < 8)
        or (major < 8 * _WARP and minor < 3)
    )


def _is_race_free(reduction: ReductionDimensions) -> bool:
    batch, middle, minor = reduction.sizes
    if reduction.is_row:
        return minor <= _RACE_FREE_ROW and batch <= _MOST_RACE_FREE_BATCH
    return middle <= _RACE_FREE_COLUMN


def reduction_launch(
    graph: FusedGraph,
    heroes: list[Instruction],
    reduction: ReductionDimensions,
    target: Target,
    groups: int,
) -> LaunchDimensions:
    """Grid of a reduction fusion whose results fall into `groups` disjoint groups."""
    launch = _launch(graph, heroes, reduction, target)
    return LaunchDimensions(launch.blocks * groups, launch.threads)


def _launch(
    graph: FusedGraph,
    heroes: list[Instruction],
    reduction: ReductionDimensions,
    target: Target,
) -> LaunchDimensions:
    first, _, minor = reduction.sizes
    if reduction.is_row:
        return _multi_row(graph, reduction, target) or _row(graph, heroes, reduction)
    if _COLUMN_TILE % minor == 0:
        return _small_column(graph, heroes, reduction)
    vector = _vector_size(graph, heroes, minor, _COLUMN_TILE)
    blocks = first * ceil_div(minor, _COLUMN_TILE * vector)
    return LaunchDimensions(blocks, _COLUMN_THREADS)


def _small_column(
    graph: FusedGraph, heroes: list[Instruction], reduction: ReductionDimensions
) -> LaunchDimensions:
    first, middle, minor = reduction.sizes
    vector = _vector_size(graph, heroes, middle * minor, _COLUMN_TILE)
    threads = _SMALL_COLUMN_THREADS
    rows = vector * threads // minor
    while rows > _COLUMN_TILE and vector > 1:
        vector, rows = vector // 2, rows // 2
    if rows > _COLUMN_TILE:
        threads //= rows // _COLUMN_TILE
    return LaunchDimensions(first, threads)


def _rows_per_block(kept: int, threads_per_row: int) -> int:
    if kept * threads_per_row <= _ROW_THREADS_TARGET:
        return kept
    return _ROW_THREADS_TARGET // threads_per_row


def _multi_row(
    graph: FusedGraph, reduction: ReductionDimensions, target: Target
) -> LaunchDimensions | None:
    """Several rows per warp, for rows of a power of two that are short enough."""
    _, kept, minor = reduction.sizes
    if minor & (minor - 1):
        return None
    bits = (graph.smallest_input_bits, graph.smallest_output_bits)
    narrowest, widest = min(bits), max(bits)
    if widest == NO_WIDTH:
        widest = graph.smallest_output_bits
    vector = min(minor, 64 // narrowest)
    if widest >= 32:
        vector = min(128 // widest, vector)
    if vector < 1 or minor > _WARP * vector:
        return None

    def grid(vector: int) -> LaunchDimensions:
        per_row = minor // vector
        rows = _rows_per_block(kept, per_row)
        return LaunchDimensions(ceil_div(kept, rows), rows * per_row)

    while vector > 1 and grid(vector).blocks < target.sm_count:
        vector //= 2
    return grid(vector) if minor <= _WARP * vector else None


def _row(
    graph: FusedGraph, heroes: list[Instruction], reduction: ReductionDimensions
) -> LaunchDimensions:
    _, kept, minor = reduction.sizes
    warps = ceil_div(ceil_div(minor, _ELEMENTS_PER_THREAD), _WARP)
    per_row = min(_MOST_ROW_THREADS, warps * _WARP)
    rows = 1
    if per_row * 2 <= _ROW_THREADS_TARGET:
        rows = _rows_per_block(kept, per_row)
    vector = _vector_size(graph, heroes, minor, per_row)
    vectors = minor // vector
    per_thread = min(_ELEMENTS_PER_THREAD // vector, ceil_div(vectors, per_row))
    blocks = ceil_div(kept, rows) * ceil_div(vectors, per_thread * per_row)
    return LaunchDimensions(blocks, rows * per_row)


def _vector_size(
    graph: FusedGraph, heroes: list[Instruction], minor: int, threads: int
) -> int:
    """Elements per load."""
    if minor % 2 or threads * 2 > minor:
        return 1
    operands = (o for hero in heroes for o in hero.operands)
    if any(o.shape.element_type in COMPLEX for o in operands):
        return 1
    bits = graph.smallest_input_bits
    if bits >= 64:
        return 1
    if bits >= 32 or threads * 4 > minor:
        return 2
    return 4 if minor % 4 == 0 else 2
