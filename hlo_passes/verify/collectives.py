"""Shapes of collectives and of their native starts and dones.

    f32[32] all-gather(f32[8]), replica_groups={{0,1,2,3}}, dimensions={0}
    (f32[8], f32[32]) all-gather-start(f32[8]), ...   f32[32] all-gather-done(...)

Each rule returns the shape that the result must have. Source: openxla/xla
`hlo_verifier.cc`, `xla/service/shape_inference.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hlo_passes.ir.shape_inference import Query
from hlo_passes.ir.shapes import UNBOUNDED, Shape, intern, tuple_shape
from hlo_passes.verify.groups import Devices, check_pairs, group_size

_RAGGED_OPERANDS: Final = 6
_IN_PLACE_OPERANDS: Final = 4


def _arrays(query: Query) -> list[Shape]:
    if not query.operands:
        query.fail("needs an operand")
    return [query.array(k) for k in range(len(query.operands))]


def _one_or_tuple(shapes: list[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else tuple_shape(tuple(shapes))


def _results(query: Query, shape: Shape) -> tuple[Shape, ...]:
    """The result of each operand: the shape itself, or the elements of a tuple."""
    if len(query.operands) == 1:
        return (shape,)
    if not shape.is_tuple or len(shape.elements) != len(query.operands):
        query.fail(f"{len(query.operands)} operands, but the result is {shape}")
    return shape.elements


def _dimension(query: Query) -> int:
    dimensions = query.integers("dimensions", required=True)
    if len(dimensions) != 1:
        query.fail("takes one dimension")
    return dimensions[0]


def _resized(shape: Shape, at: int, size: int) -> Shape:
    sizes = (*shape.dimensions[:at], size, *shape.dimensions[at + 1 :])
    return intern(Shape(shape.element_type, sizes, shape.layout, dynamic=shape.dynamic))


def _gathered(query: Query, devices: Devices, result: Shape) -> Shape:
    """The operands, their gathered dimension multiplied as the result needs it."""
    size = group_size(query, "all-gather", devices)
    shapes, at = _arrays(query), _dimension(query)
    results = _results(query, result)
    for shape in (*shapes, *results):
        query.in_range("dimension", (at,), shape.rank)
    have, want = shapes[0].dimensions[at], results[0].dimensions[at]
    count = -(-want // have) if have > 0 else 0
    if size not in (1, count):
        query.fail(f"gathers {have} to {want} in groups of {size}")
    if count <= 0:
        query.fail(f"gathers {have} to {want}")
    return _one_or_tuple(
        [
            s if s.dimensions[at] == UNBOUNDED
            else _resized(s, at, s.dimensions[at] * count)
            for s in shapes
        ]
    )  # fmt: skip


def all_gather(query: Query, devices: Devices) -> Shape:
    """Each operand; one dimension is multiplied by the group's size."""
    return _gathered(query, devices, query.result())


def all_gather_start(query: Query, devices: Devices) -> Shape:
    """(operands, results); each is a tuple if there are several."""
    result = query.result()
    if not result.is_tuple or len(result.elements) != 2:
        query.fail(f"returns (operand, result), not {result}")
    gathered = _gathered(query, devices, result.elements[1])
    return tuple_shape((_one_or_tuple(list(query.operands)), gathered))


def all_reduce(query: Query, devices: Devices) -> Shape:
    """The operands' shapes; the same for all-reduce-start."""
    group_size(query, "all-reduce", devices, uniform=False)
    return _one_or_tuple(_arrays(query))


def reduce_scatter(query: Query, devices: Devices) -> Shape:
    """Each operand; one dimension is divided by the group's size."""
    size = group_size(query, "reduce-scatter", devices)
    shapes, at = _arrays(query), _dimension(query)
    results = _results(query, query.result())
    for shape in (*shapes, *results):
        query.in_range("dimension", (at,), shape.rank)
    have, want = shapes[0].dimensions[at], results[0].dimensions[at]
    count = -(-have // want) if want > 0 else 0
    if size not in (1, count):
        query.fail(f"scatters {have} to {want} in groups of {size}")
    for shape in shapes:
        if count <= 0 or shape.dimensions[at] % count:
            query.fail(f"scatters {shape} over {count}")
    return _one_or_tuple([_resized(s, at, s.dimensions[at] // count) for s in shapes])


def all_to_all(query: Query, devices: Devices) -> Shape:
    """One array that the group's size divides, or a tuple with one per member."""
    size = group_size(query, "all-to-all", devices)
    if "dimensions" in query.attributes:
        if len(query.operands) != 1:
            query.fail("takes one operand if it has dimensions")
        shape, at = query.array(0), _dimension(query)
        query.in_range("dimension", (at,), shape.rank)
        if size and shape.dimensions[at] != UNBOUNDED and shape.dimensions[at] % size:
            query.fail(f"splits {shape} in {size}")
        return shape
    if len(query.operands) != size:
        query.fail(f"{len(query.operands)} operands in groups of {size}")
    first = query.operand(0)
    for shape in query.operands:
        if _in_any_memory(shape) != _in_any_memory(first):
            query.fail(f"operands of different shapes, {first} and {shape}")
    return tuple_shape(tuple(query.operands))


def _in_any_memory(shape: Shape) -> Shape:
    """The shape with its layout, without the memory space."""
    if shape.layout is None or not shape.layout.memory_space:
        return shape
    return shape.with_layout(replace(shape.layout, memory_space=0))


def ragged_all_to_all(query: Query, devices: Devices) -> Shape:
    """The output operand's shape; offsets and sizes have one shape, rank 1 or 2."""
    group_size(query, "ragged-all-to-all", devices)
    if len(query.operands) != _RAGGED_OPERANDS:
        query.fail(
            f"takes {_RAGGED_OPERANDS} operands, but it has {len(query.operands)}"
        )
    for k in range(3, _RAGGED_OPERANDS):
        shape = query.operand(k - 1)
        if shape.rank not in (1, 2):
            query.fail(f"operand {k - 1} must be of rank 1 or 2, but it is {shape}")
        if query.operand(k) != shape:
            query.fail(f"operands {k - 1} and {k} differ in shape")
    return query.array(1)


def collective_broadcast(query: Query, devices: Devices) -> Shape:
    """The first operand's shape; XLA ignores groups and other operands."""
    return query.array(0)


def _in_place_repeats(query: Query) -> int:
    """Check buffers and offsets of an in-place permute; slices per buffer."""
    if len(query.operands) != _IN_PLACE_OPERANDS:
        query.fail(f"in place it takes {_IN_PLACE_OPERANDS} operands")
    for buffer, offset in ((0, 2), (1, 3)):
        shape, offsets = query.operand(buffer), query.operand(offset)
        pairs = [(shape, offsets)]
        if shape.is_tuple:
            if not offsets.is_tuple or len(offsets.elements) != len(shape.elements):
                query.fail(f"offsets {offsets} do not fit {shape}")
            pairs = list(zip(shape.elements, offsets.elements, strict=True))
        for array, index in pairs:
            _check_offsets(query, array, index)
    if len(query.operand(0).elements) != len(query.operand(1).elements):
        query.fail("inputs and outputs differ in number")
    offsets = query.operand(2)
    if query.operand(0).is_tuple:
        offsets = offsets.elements[0]
    return len(offsets.elements)


def _check_offsets(query: Query, array: Shape, index: Shape) -> None:
    if not index.is_tuple:
        query.fail(f"offsets must be a tuple, not {index}")
    nested = [e for e in index.elements if e.is_tuple]
    if nested and len(nested) != len(index.elements):
        query.fail(f"offsets must be arrays or tuples of them, not {index}")
    for one in nested or [index]:
        if len(one.elements) != array.rank:
            query.fail(f"offsets {one} do not fit {array}")


def _check_permute(query: Query, devices: Devices) -> bool:
    """Check the pairs; whether the permute works in place."""
    in_place = (
        "slice_sizes" in query.attributes
        and query.attributes["slice_sizes"].strip() != "{}"
    )
    repeats = _in_place_repeats(query) if in_place else 1
    check_pairs(query, devices, repeats=repeats)
    return in_place


def collective_permute(query: Query, devices: Devices) -> Shape:
    """The operands' shapes; in place, the output buffer's."""
    if _check_permute(query, devices):
        return query.operand(1)
    return _one_or_tuple(_arrays(query))


def collective_permute_start(query: Query, devices: Devices) -> Shape:
    """(operands, results, context...); the context is free."""
    in_place = _check_permute(query, devices)
    result = query.result()
    context = result.elements[2:] if result.is_tuple else ()
    if in_place:
        return tuple_shape((query.operand(0), query.operand(1), *context))
    if not query.operands:
        query.fail("needs an operand")
    if len(query.operands) == 1:
        query.array(0)
    whole = _one_or_tuple(list(query.operands))
    return tuple_shape((whole, whole, *context))


def element_one(query: Query, devices: Devices) -> Shape:
    """all-gather-done, collective-permute-done: element 1 of the start."""
    shape = query.operand(0)
    if not shape.is_tuple or len(shape.elements) < 2:
        query.fail(f"takes (operand, result), not {shape}")
    return shape.elements[1]


def same(query: Query, devices: Devices) -> Shape:
    """all-reduce-done: the shape that the start returns."""
    return query.operand(0)


CollectiveRule = Callable[[Query, Devices], Shape]

#: The rules by opcode.
COLLECTIVE_RULES: Final[dict[str, CollectiveRule]] = {
    "all-gather": all_gather,
    "all-gather-start": all_gather_start,
    "all-gather-done": element_one,
    "all-reduce": all_reduce,
    "all-reduce-start": all_reduce,
    "all-reduce-done": same,
    "reduce-scatter": reduce_scatter,
    "all-to-all": all_to_all,
    "ragged-all-to-all": ragged_all_to_all,
    "collective-broadcast": collective_broadcast,
    "collective-permute": collective_permute,
    "collective-permute-start": collective_permute_start,
    "collective-permute-done": element_one,
}
