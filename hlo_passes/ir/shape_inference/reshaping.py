"""Opcodes that move elements: broadcast, reshape, transpose, slices, pad, iota ...

    f32[4,8] broadcast(f32[8]), dimensions={1}
    f32[2] slice(f32[8]), slice={[0:8:4]}

Source: openxla/xla `xla/service/shape_inference.cc`, `hlo_verifier.cc`.
"""

from __future__ import annotations

from dataclasses import replace

from hlo_passes.ir.shape_inference.compare import (
    higher_precision,
    same_type_but_precision,
    sizes_fit,
)
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import (
    COMPLEX,
    FLOATING,
    INTEGRAL,
    UNBOUNDED,
    Shape,
    array_shape,
    intern,
)
from hlo_passes.ir.windows import parse_padding, parse_slice

_MAXIMUM_S32 = (1 << 31) - 1


def broadcast(query: Query) -> Shape:
    """dimensions={..} says where the operand's dimensions go in the result."""
    shape, result = query.array(0), query.declared
    dimensions = query.integers("dimensions")
    if result is None:
        if shape.rank:
            query.fail("the operand does not determine the result's shape, write it")
        return shape
    if not same_type_but_precision(result.element_type, shape.element_type):
        query.fail(f"makes {shape.element_type}, not {result}")
    if len(dimensions) != shape.rank:
        query.fail(f"names {len(dimensions)} dimensions, the operand has {shape.rank}")
    query.in_range("dimension", dimensions, result.rank, unique=False)
    for size, dimension in zip(shape.dimensions, dimensions, strict=True):
        if result.dimensions[dimension] != size:
            query.fail(
                f"dimension {dimension} of the result is "
                f"{result.dimensions[dimension]}, the operand has {size}"
            )
    return result


def reshape(query: Query) -> Shape:
    """The declared shape: as many elements of the same type."""
    shape, result = query.array(0), query.result()
    if not same_type_but_precision(result.element_type, shape.element_type):
        query.fail(f"makes {shape.element_type}, not {result}")
    if result.element_count != shape.element_count:
        query.fail(f"makes {result.element_count} elements of {shape.element_count}")
    return result


def dynamic_reshape(query: Query) -> Shape:
    """reshape, with the sizes as s32 operands."""
    result = reshape(query)
    if result.rank + 1 != len(query.operands):
        query.fail(f"needs {result.rank} sizes, but it has {len(query.operands) - 1}")
    for k in range(1, len(query.operands)):
        if query.array(k).element_type != "s32":
            query.fail(f"size {k} is {query.operand(k)}, not s32")
    return result


def transpose(query: Query) -> Shape:
    """dimensions={..} is a permutation: result dimension i is the operand's d[i].

    The inferred layout is the operand's with the new numbers: no element moves.
    """
    shape, order = query.array(0), query.integers("dimensions", required=True)
    if sorted(order) != list(range(shape.rank)):
        query.fail(f"{{{','.join(map(str, order))}}} is not an order of {shape}")
    layout = shape.layout
    if layout is not None and sorted(layout.minor_to_major) != sorted(order):
        layout = None  # the operand itself is invalid, which is reported there
    if layout is not None:
        minor_to_major = tuple(order.index(d) for d in layout.minor_to_major)
        layout = replace(layout, minor_to_major=minor_to_major)
    return intern(
        Shape(
            shape.element_type,
            tuple(shape.dimensions[d] for d in order),
            layout,
            dynamic=tuple(shape.dynamic[d] for d in order),
        )
    )


def reverse(query: Query) -> Shape:
    """The operand's shape; each dimension at most once."""
    shape = query.array(0)
    query.in_range("dimension", query.integers("dimensions"), shape.rank)
    return shape


def concatenate(query: Query) -> Shape:
    """Arrays that differ in one dimension only, which adds up."""
    if not query.operands:
        query.fail("needs an operand")
    dimensions = query.integers("dimensions", required=True)
    if len(dimensions) != 1:
        query.fail("takes one dimension")
    at, first = dimensions[0], query.array(0)
    query.in_range("dimension", dimensions, first.rank)
    kind, sizes, dynamic = first.element_type, list(first.dimensions), [*first.dynamic]
    for k in range(1, len(query.operands)):
        shape = query.array(k)
        if not same_type_but_precision(shape.element_type, kind):
            query.fail(f"operand {k} is {shape.element_type}, operand 0 {kind}")
        if shape.rank != first.rank:
            query.fail(f"operand {k} has rank {shape.rank}, operand 0 {first.rank}")
        kind = higher_precision(kind, shape.element_type)
        for d, size in enumerate(shape.dimensions):
            dynamic[d] = dynamic[d] or shape.dynamic[d]
            if d == at:
                unbounded = UNBOUNDED in (size, sizes[d])
                sizes[d] = UNBOUNDED if unbounded else sizes[d] + size
            elif not sizes_fit(size, sizes[d]):
                query.fail(f"operand {k} is {shape}, operand 0 {first}")
            elif sizes[d] == UNBOUNDED:
                sizes[d] = size
    return intern(Shape(kind, tuple(sizes), dynamic=tuple(dynamic)))


def slice_(query: Query) -> Shape:
    """slice={[start:limit:stride], ..}, one per dimension, inside the operand."""
    shape = query.array(0)
    ranges = parse_slice(query.text("slice")).dimensions
    if len(ranges) != shape.rank:
        query.fail(f"{len(ranges)} ranges for {shape}")
    sizes: list[int] = []
    for d, (first, last, step) in enumerate(ranges):
        size = shape.dimensions[d]
        if first < 0 or step <= 0 or first > last:
            query.fail(f"[{first}:{last}:{step}] is not a range")
        if size != UNBOUNDED and last > size:
            query.fail(f"limit {last} exceeds dimension {d} of {shape}")
        sizes.append((last - first + step - 1) // step)
    dynamic = tuple(
        flag and size != 1 and bound != UNBOUNDED
        for flag, size, bound in zip(
            shape.dynamic, sizes, shape.dimensions, strict=True
        )
    )
    return intern(Shape(shape.element_type, tuple(sizes), dynamic=dynamic))


def _check_indices(query: Query, shape: Shape, first: int) -> None:
    """Start indices: one integral scalar per dimension, or one vector of them."""
    indices = query.operands[first:]
    if indices and indices[0].is_array and indices[0].rank == 1:
        if len(indices) != 1 or indices[0].dimensions[0] != shape.rank:
            query.fail(f"start indices {indices[0]} do not fit {shape}")
        if indices[0].element_type not in INTEGRAL:
            query.fail(f"start indices are {indices[0].element_type}")
        return
    if len(indices) != shape.rank:
        query.fail(f"{len(indices)} start indices for {shape}")
    for index in indices:
        if not index.is_scalar or index.element_type not in INTEGRAL:
            query.fail(f"a start index is {index}, not an integral scalar")
        if index.element_type != indices[0].element_type:
            query.fail("start indices of different types")


def dynamic_slice(query: Query) -> Shape:
    """dynamic_slice_sizes={..}, none larger than the operand's."""
    shape = query.array(0)
    _check_indices(query, shape, 1)
    sizes = query.integers("dynamic_slice_sizes", required=True)
    if len(sizes) != shape.rank:
        query.fail(f"{len(sizes)} sizes for {shape}")
    for d, size in enumerate(sizes):
        bound = shape.dimensions[d]
        if size < 0 or (bound != UNBOUNDED and size > bound):
            query.fail(f"size {size} exceeds dimension {d} of {shape}")
    dynamic = tuple(
        flag and size > 1 and size == bound
        for flag, size, bound in zip(
            shape.dynamic, sizes, shape.dimensions, strict=True
        )
    )
    return intern(Shape(shape.element_type, sizes, dynamic=dynamic))


def dynamic_update_slice(query: Query) -> Shape:
    """(operand, update, indices): the operand's shape; the update fits into it."""
    shape, update = query.operand(0), query.array(1)
    if shape.element_type == "buffer":
        array = shape.elements[0]
    else:
        array = query.array(0)
    _check_indices(query, array, 2)
    if update.rank != array.rank:
        query.fail(f"the update has rank {update.rank}, the operand {array.rank}")
    if not same_type_but_precision(array.element_type, update.element_type):
        query.fail(f"the update is {update.element_type}, not {array.element_type}")
    for d, size in enumerate(update.dimensions):
        if array.dimensions[d] != UNBOUNDED and size > array.dimensions[d]:
            query.fail(f"update {update} exceeds dimension {d} of {array}")
    return shape


def pad(query: Query) -> Shape:
    """padding=low_high[_interior]x..; negative low and high cut off."""
    shape, value = query.array(0), query.array(1)
    if not value.is_scalar:
        query.fail(f"the padding value must be a scalar, it is {value}")
    if not same_type_but_precision(shape.element_type, value.element_type):
        query.fail(f"pads {shape.element_type} with {value.element_type}")
    entries = parse_padding(query.text("padding")).dimensions
    if len(entries) != shape.rank:
        query.fail(f"{len(entries)} paddings for {shape}")
    sizes: list[int] = []
    for size, (low, high, interior) in zip(shape.dimensions, entries, strict=True):
        if interior < 0:
            query.fail("interior padding is negative")
        grown = size + low + high + max(size - 1, 0) * interior
        if size != UNBOUNDED and grown < 0:
            query.fail(
                f"padding {low}_{high} leaves a negative number of elements of {shape}"
            )
        sizes.append(UNBOUNDED if size == UNBOUNDED else grown)
    kind = higher_precision(shape.element_type, value.element_type)
    return intern(Shape(kind, tuple(sizes), dynamic=shape.dynamic))


def iota(query: Query) -> Shape:
    """Counts along iota_dimension of the declared array."""
    result = query.result()
    if not result.is_array or not result.rank:
        query.fail(f"makes an array of rank 1 or more, not {result}")
    if result.element_type not in INTEGRAL | FLOATING | COMPLEX:
        query.fail(f"cannot count in {result.element_type}")
    query.in_range("iota_dimension", (query.integer("iota_dimension"),), result.rank)
    return result


def _one_dimension(query: Query, shape: Shape) -> int:
    dimensions = query.integers("dimensions", required=True)
    if len(dimensions) != 1:
        query.fail("takes one dimension")
    query.in_range("dimension", dimensions, shape.rank)
    if shape.dimensions[dimensions[0]] > _MAXIMUM_S32:
        query.fail(f"the dimension of {shape} exceeds s32")
    return dimensions[0]


def get_dimension_size(query: Query) -> Shape:
    """An s32 scalar."""
    _one_dimension(query, query.array(0))
    return array_shape("s32")


def set_dimension_size(query: Query) -> Shape:
    """(operand, size): the dimension becomes dynamic, its size the bound."""
    shape, size = query.array(0), query.array(1)
    at = _one_dimension(query, shape)
    if size.rank or size.element_type != "s32":
        query.fail(f"the size must be an s32 scalar, it is {size}")
    dynamic = tuple(flag or d == at for d, flag in enumerate(shape.dynamic))
    return intern(
        Shape(shape.element_type, shape.dimensions, shape.layout, dynamic=dynamic)
    )
