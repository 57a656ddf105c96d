"""gather and scatter.

    f32[10,4] gather(f32[100,4], s32[10,1]), offset_dims={1}, collapsed_slice_dims={0},
              start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}

Source: openxla/xla `xla/service/shape_inference.cc`.
"""

from __future__ import annotations

from hlo_passes.ir.shape_inference.compare import sizes_fit
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shape_inference.reductions import check_reducer
from hlo_passes.ir.shapes import INTEGRAL, UNBOUNDED, Shape, intern, tuple_shape


def _ascending(query: Query, name: str, rank: int) -> tuple[int, ...]:
    dimensions = query.integers(name)
    query.in_range(name, dimensions, rank)
    if list(dimensions) != sorted(dimensions):
        query.fail(f"{name} must ascend")
    return dimensions


def _index_sizes(query: Query, indices: Shape) -> tuple[list[int], list[bool], int]:
    """(sizes, dynamic flags, vector dimension) of the indices; a missing one is 1."""
    if indices.element_type not in INTEGRAL:
        query.fail(f"indices are {indices.element_type}")
    at = query.integer("index_vector_dim")
    if not 0 <= at <= indices.rank:
        query.fail(f"index_vector_dim {at} is outside {indices}")
    sizes, dynamic = list(indices.dimensions), list(indices.dynamic)
    if at == indices.rank:
        sizes.append(1)
        dynamic.append(False)
    return sizes, dynamic, at


def _batching(
    query: Query, mine: str, other: str, rank: int, index_rank: int
) -> tuple[int, ...]:
    batching = _ascending(query, mine, rank)
    partners = query.integers(other)
    query.in_range(other, partners, index_rank)
    if len(batching) != len(partners):
        query.fail(f"{mine} and {other} differ in length")
    return batching


def gather(query: Query) -> Shape:
    """(operand, indices): offset dimensions from slice_sizes, the rest from indices."""
    shape, indices = query.array(0), query.array(1)
    sizes, dynamic, at = _index_sizes(query, indices)
    # Check the numbers of dimensions against each other.
    offsets = query.integers("offset_dims")
    rank = len(offsets) + len(sizes) - 1
    offsets = _ascending(query, "offset_dims", rank)
    start_map = query.integers("start_index_map")
    query.in_range("start_index_map", start_map, shape.rank)
    if sizes[at] not in (UNBOUNDED, len(start_map)):
        query.fail(f"start_index_map has {len(start_map)} entries for {indices}")
    collapsed = _ascending(query, "collapsed_slice_dims", shape.rank)
    batching = _batching(
        query, "operand_batching_dims", "start_indices_batching_dims",
        shape.rank, len(sizes),
    )  # fmt: skip
    slices = query.integers("slice_sizes")
    if len(slices) != shape.rank:
        query.fail(f"{len(slices)} slice_sizes for {shape}")
    if len(offsets) + len(collapsed) + len(batching) != shape.rank:
        query.fail(
            "offset, collapsed and batching dimensions do not add up to the rank"
        )
    # Check each slice size against its dimension.
    for d, size in enumerate(slices):
        bound = shape.dimensions[d]
        if bound != UNBOUNDED and not 0 <= size <= bound:
            query.fail(f"slice size {size} exceeds dimension {d} of {shape}")
        if size > 1 and (d in collapsed or d in batching):
            query.fail(f"slice size {size} of collapsed or batching dimension {d}")
    # Merge the dimensions of a slice and those of the indices.
    kept = iter([d for d in range(shape.rank) if d not in collapsed + batching])
    outer = iter([d for d in range(len(sizes)) if d != at])
    result, flags = [], []
    for d in range(rank):
        if d in offsets:
            k = next(kept)
            result.append(slices[k])
            flags.append(shape.dynamic[k] and slices[k] == shape.dimensions[k])
        else:
            k = next(outer)
            result.append(sizes[k])
            flags.append(dynamic[k])
    return intern(Shape(shape.element_type, tuple(result), dynamic=tuple(flags)))


def scatter(query: Query) -> Shape:
    """(operands, indices, updates): the operands' shapes."""
    count = len(query.operands) // 2
    if not count or 2 * count + 1 != len(query.operands):
        query.fail(f"needs 2n+1 operands, but it has {len(query.operands)}")
    sizes, _, at = _index_sizes(query, query.array(count))
    for k in range(count):
        _check_updates(query, query.array(k), query.array(count + 1 + k), sizes, at)
    check_reducer(
        query,
        query.callee(),
        [s.element_type for s in query.operands[:count]],
        [s.element_type for s in query.operands[count + 1 :]],
    )
    if count == 1:
        return query.operand(0)
    return tuple_shape(tuple(query.operands[:count]))


def _check_updates(
    query: Query, shape: Shape, updates: Shape, sizes: list[int], at: int
) -> None:
    windows = _ascending(query, "update_window_dims", updates.rank)
    if updates.rank != len(sizes) - 1 + len(windows):
        query.fail(f"updates {updates} have the wrong rank")
    inserted = _ascending(query, "inserted_window_dims", shape.rank)
    batching = _batching(
        query, "input_batching_dims", "scatter_indices_batching_dims",
        shape.rank, len(sizes),
    )  # fmt: skip
    if len(windows) + len(inserted) + len(batching) != shape.rank:
        query.fail("window, inserted and batching dimensions do not add up to the rank")
    targets = query.integers("scatter_dims_to_operand_dims")
    query.in_range("scatter_dims_to_operand_dims", targets, shape.rank)
    if not sizes_fit(len(targets), sizes[at]):
        query.fail(f"scatter_dims_to_operand_dims has {len(targets)} entries")
    kept = [d for d in range(shape.rank) if d not in inserted + batching]
    for window, d in zip(windows, kept, strict=False):
        if updates.dimensions[window] > shape.dimensions[d]:
            query.fail(f"updates {updates} exceed dimension {d} of {shape}")
    outer = iter([d for d in range(len(sizes)) if d != at])
    for d, size in enumerate(updates.dimensions):
        if d not in windows and not sizes_fit(size, sizes[next(outer)]):
            query.fail(f"updates {updates} do not fit the indices")
