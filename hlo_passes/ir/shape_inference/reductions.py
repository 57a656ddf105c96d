"""Opcodes that call a computation per element: reduce, reduce-window, map, sort, ...

    f32[4] reduce(f32[4,8], f32[]), dimensions={1}, to_apply=%add

Source: openxla/xla `xla/service/shape_inference.cc`, `hlo_verifier.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.ir.shape_inference.compare import (
    compatible,
    same_dimensions,
    same_type_but_precision,
)
from hlo_passes.ir.shape_inference.query import Query, Signature
from hlo_passes.ir.shape_inference.windowed import read_window, windowed_sizes
from hlo_passes.ir.shapes import Shape, array_shape, intern, tuple_shape

_PRED = array_shape("pred")


def _one_or_tuple(shapes: Sequence[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else tuple_shape(tuple(shapes))


def check_reducer(
    query: Query,
    reducer: Signature,
    initial: Sequence[str],
    elements: Sequence[str],
) -> tuple[str, ...]:
    """Refuse a reduction computation that does not fit; returns its result types.

    It takes n accumulators and n elements, all scalars, and returns n accumulators of
    its own parameters' types. `initial` and `elements` are the element types handed in,
    which may differ from them in floating precision.
    """
    count = len(initial)
    if len(reducer.parameters) != 2 * count:
        query.fail(
            f"its computation takes {len(reducer.parameters)} parameters, "
            f"{2 * count} are needed"
        )
    result = reducer.result
    accumulators = result.elements if result.is_tuple else (result,)
    if len(accumulators) != count:
        query.fail(f"its computation returns {result}, {count} values are needed")
    for k, accumulator in enumerate(accumulators):
        kind = accumulator.element_type
        element = reducer.parameters[count + k]
        if not accumulator.is_scalar or not element.is_scalar:
            query.fail("its computation must take and return scalars")
        if not compatible(accumulator, reducer.parameters[k]):
            query.fail(
                f"parameter {k} of its computation is {reducer.parameters[k]}, "
                f"its result {accumulator}"
            )
        for given, wanted in ((kind, initial[k]), (element.element_type, elements[k])):
            if not same_type_but_precision(given, wanted):
                query.fail(f"its computation works on {given}, the operand is {wanted}")
        if not same_type_but_precision(kind, element.element_type):
            query.fail("its computation's parameters and result differ in type")
    return tuple(a.element_type for a in accumulators)


def _split_operands(query: Query) -> tuple[list[Shape], list[Shape]]:
    """(inputs, initial values): equally many, and the inputs have one size."""
    count = len(query.operands)
    if not count or count % 2:
        query.fail(
            f"needs as many inputs as initial values, but it has {count} operands"
        )
    inputs = [query.array(k) for k in range(count // 2)]
    initial = [query.array(k) for k in range(count // 2, count)]
    for shape in inputs:
        if not same_dimensions(shape, inputs[0]):
            query.fail(f"inputs of different sizes, {inputs[0]} and {shape}")
    for shape in initial:
        if shape.rank:
            query.fail(f"the initial value is {shape}, not a scalar")
    return inputs, initial


def reduce(query: Query) -> Shape:
    """Inputs lose the reduced dimensions; types are the computation's."""
    inputs, initial = _split_operands(query)
    first = inputs[0]
    dimensions = query.integers("dimensions")
    query.in_range("dimension", dimensions, first.rank)
    kinds = check_reducer(
        query,
        query.callee(),
        [s.element_type for s in initial],
        [s.element_type for s in inputs],
    )
    kept = [d for d in range(first.rank) if d not in dimensions]
    sizes = tuple(first.dimensions[d] for d in kept)
    dynamic = tuple(first.dynamic[d] for d in kept)
    shapes = [intern(Shape(kind, sizes, dynamic=dynamic)) for kind in kinds]
    if query.callee().result.is_tuple:
        return tuple_shape(tuple(shapes))
    return shapes[0]


def reduce_window(query: Query) -> Shape:
    """The window slides over inputs of one size; types are the initial values'."""
    inputs, initial = _split_operands(query)
    check_reducer(
        query,
        query.callee(),
        [s.element_type for s in initial],
        [s.element_type for s in inputs],
    )
    window = read_window(query)
    shapes = []
    for shape, value in zip(inputs, initial, strict=True):
        sizes = windowed_sizes(query, shape.dimensions, window)
        shapes.append(intern(Shape(value.element_type, sizes, dynamic=shape.dynamic)))
    if query.callee().result.is_tuple:
        return tuple_shape(tuple(shapes))
    return shapes[0]


def select_and_scatter(query: Query) -> Shape:
    """(operand, source, initial): the operand's shape; the window makes source's."""
    shape, source, initial = query.array(0), query.array(1), query.array(2)
    select = query.callee(0)
    if len(select.parameters) != 2 or not compatible(select.result, _PRED):
        query.fail("select must take two values and return pred[]")
    for parameter in select.parameters:
        if not parameter.is_scalar or not same_type_but_precision(
            parameter.element_type, shape.element_type
        ):
            query.fail(f"select takes {parameter}, the operand is {shape}")
    check_reducer(query, query.callee(1), [initial.element_type], [source.element_type])
    sizes = windowed_sizes(query, shape.dimensions, read_window(query))
    expected = intern(Shape(shape.element_type, sizes, dynamic=shape.dynamic))
    if not compatible(source, expected, any_precision=True):
        query.fail(f"source is {source}, the window makes {expected}")
    return shape


def map_(query: Query) -> Shape:
    """One result per element of operands of one shape."""
    signature = query.callee()
    if not query.operands:
        query.fail("needs an operand")
    shape = query.array(0)
    for k in range(1, len(query.operands)):
        if not compatible(query.array(k), shape, any_type=True):
            query.fail(f"operand {k} is {query.operand(k)}, operand 0 {shape}")
    if len(signature.parameters) != len(query.operands):
        query.fail(
            f"its computation takes {len(signature.parameters)} parameters, it has "
            f"{len(query.operands)} operands"
        )
    if not signature.result.is_scalar:
        query.fail(f"its computation returns {signature.result}, not a scalar")
    for k, parameter in enumerate(signature.parameters):
        if not parameter.is_scalar or not same_type_but_precision(
            parameter.element_type, query.operand(k).element_type
        ):
            query.fail(f"parameter {k} is {parameter}, operand {query.operand(k)}")
    return intern(
        Shape(signature.result.element_type, shape.dimensions, dynamic=shape.dynamic)
    )


def sort(query: Query) -> Shape:
    """Operands of one size; the computation compares two elements of each."""
    if not query.operands:
        query.fail("needs an operand")
    first, compare = query.array(0), query.callee()
    if not compatible(compare.result, _PRED):
        query.fail(f"its computation returns {compare.result}, not pred[]")
    if len(compare.parameters) != 2 * len(query.operands):
        query.fail(
            f"its computation takes {len(compare.parameters)} parameters, "
            f"{2 * len(query.operands)} are needed"
        )
    for k, parameter in enumerate(compare.parameters):
        wanted = query.array(k // 2)
        if not parameter.is_scalar or not same_type_but_precision(
            parameter.element_type, wanted.element_type
        ):
            query.fail(f"parameter {k} is {parameter}, the operand {wanted}")
        if not same_dimensions(wanted, first):
            query.fail(f"operand {k // 2} is {wanted}, operand 0 {first}")
    dimensions = query.integers("dimensions", required=bool(first.rank))
    if len(dimensions) != 1:
        query.fail("takes one dimension")
    if first.rank or dimensions[0]:
        query.in_range("dimension", dimensions, first.rank)
    return _one_or_tuple(query.operands)


def topk(query: Query) -> Shape:
    """(values, s32 indices), k of each in the last dimension."""
    shape, k = query.array(0), query.integer("k")
    if not shape.rank or not 0 <= k <= shape.dimensions[-1]:
        query.fail(f"cannot take {k} of {shape}")
    sizes = (*shape.dimensions[:-1], k)
    dynamic = (*shape.dynamic[:-1], False)
    return tuple_shape(
        tuple(
            intern(Shape(kind, sizes, dynamic=dynamic))
            for kind in (shape.element_type, "s32")
        )
    )


def scan(query: Query) -> Shape:
    """Inputs and results are cut along one dimension, carries are passed on."""
    body, result = query.callee(), query.result()
    dimensions = query.integers("dimensions", required=True)
    if len(dimensions) != 1:
        query.fail("takes one dimension")
    at, carries = dimensions[0], query.integer("num_carries", 0)
    results = result.elements if result.is_tuple else (result,)
    roots = body.result.elements if body.result.is_tuple else (body.result,)
    inputs, outputs = len(query.operands) - carries, len(results) - carries
    if min(inputs, outputs) < 0 or not inputs + outputs:
        query.fail(f"{carries} carries do not fit operands and result")
    if len(body.parameters) != len(query.operands) or len(roots) != len(results):
        query.fail("its computation does not fit operands and result")
    for outer, inner, cut in (
        (query.operands, body.parameters, inputs),
        (results, roots, outputs),
    ):
        for k, (shape, element) in enumerate(zip(outer, inner, strict=True)):
            if not shape.is_array:
                query.fail(f"works on arrays, not on {shape}")
            sizes = shape.dimensions
            if k < cut:
                query.in_range("dimension", dimensions, shape.rank)
                sizes = sizes[:at] + sizes[at + 1 :]
            expected = intern(Shape(shape.element_type, sizes))
            if not compatible(element, expected, any_precision=True):
                query.fail(f"its computation has {element} where {expected} is needed")
    lengths = {s.dimensions[at] for s in query.operands[:inputs]}
    lengths |= {s.dimensions[at] for s in results[:outputs]}
    if len(lengths) > 1:
        query.fail("inputs and results differ in the scanned dimension")
    return result
