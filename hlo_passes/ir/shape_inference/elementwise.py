"""Elementwise opcodes, clamp, select, compare, convert and bitcasts.

    f32[8] add(f32[8], f32[8])      pred[8] compare(s32[8], s32[8])
    u8[4,4] bitcast-convert(f32[4])

All operands of an operation have the same shape: HLO has no implicit broadcast.
Floating types may be mixed, as XLA's verifier allows it between passes. Source:
openxla/xla `xla/service/shape_inference.cc`, `hlo_verifier.cc`.
"""

from __future__ import annotations

from hlo_passes.ir.shape_inference.compare import (
    compatible,
    higher_precision,
    join_dynamic,
    same_type_but_precision,
)
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import (
    BITS,
    COMPLEX,
    FLOATING,
    INTEGRAL,
    SIGNED,
    UNSIGNED,
    Shape,
    intern,
)

_PRED = frozenset({"pred"})
_REAL_OR_COMPLEX = FLOATING | COMPLEX
_PART = {"c64": "f32", "c128": "f64"}
_WHOLE = {"f32": "c64", "f64": "c128"}

_ON_FLOATS = "floor cbrt ceil erf round-nearest-afz round-nearest-even is-finite"
_ON_COMPLEX = (
    "asin asinh acos acosh atanh cosh cosine sinh sine exponential "
    "exponential-minus-one log log-plus-one logistic rsqrt sqrt tan tanh real imag"
)

#: Element types that each unary opcode takes.
UNARY_TYPES = {
    **dict.fromkeys(_ON_FLOATS.split(), FLOATING),
    **dict.fromkeys(_ON_COMPLEX.split(), _REAL_OR_COMPLEX),
    "abs": SIGNED | _REAL_OR_COMPLEX,
    "sign": SIGNED | _REAL_OR_COMPLEX,
    "negate": INTEGRAL | _REAL_OR_COMPLEX,
    "count-leading-zeros": INTEGRAL,
    "popcnt": INTEGRAL,
    "not": INTEGRAL | _PRED,
}

_NOT_ON_PRED = (
    "subtract",
    "atan2",
    "power",
    "divide",
    "remainder",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
)
_LOGICAL = frozenset({"and", "or", "xor"})


def retyped(shape: Shape, element_type: str) -> Shape:
    """The same array with another element type; the same object if nothing changes."""
    if shape.element_type == element_type:
        return shape
    return shape.with_element_type(element_type)


def unary(query: Query) -> Shape:
    """Opcodes of `UNARY_TYPES`: the operand's shape, or its real part, or pred."""
    shape = query.array(0)
    kind = shape.element_type
    if kind not in UNARY_TYPES[query.opcode]:
        query.fail(f"does not take {kind}")
    if query.opcode == "is-finite":
        return retyped(shape, "pred")
    if query.opcode in ("abs", "real", "imag"):
        return retyped(shape, _PART.get(kind, kind))
    return shape


def same_as_operand(query: Query) -> Shape:
    """copy, domain, opt-barrier: the operand's shape."""
    return query.operand(0)


def binary(query: Query) -> Shape:
    """Two arrays of one shape; comparisons give pred, complex a complex type."""
    lhs, rhs = query.array(0), query.array(1)
    kind, opcode = lhs.element_type, query.opcode
    if not same_type_but_precision(kind, rhs.element_type):
        query.fail(f"operands of different types, {kind} and {rhs.element_type}")
    if not compatible(lhs, rhs, any_type=True):
        query.fail(
            f"operands of different shapes, {lhs.text_without_layout} and "
            f"{rhs.text_without_layout}; HLO has no implicit broadcast"
        )
    if opcode in _NOT_ON_PRED and kind == "pred":
        query.fail("does not take pred")
    if opcode in _LOGICAL and kind != "pred" and kind not in INTEGRAL:
        query.fail(f"does not take {kind}")
    if opcode == "atan2" and kind not in _REAL_OR_COMPLEX:
        query.fail(f"does not take {kind}")
    shape = retyped(lhs, higher_precision(kind, rhs.element_type))
    if opcode == "complex":
        if kind != rhs.element_type or kind not in _WHOLE:
            query.fail(f"does not take {kind} and {rhs.element_type}")
        shape = retyped(shape, _WHOLE[kind])
    if opcode == "compare":
        _check_comparison(query, rhs.element_type)
        shape = retyped(shape, "pred")
    if True in rhs.dynamic and rhs.dynamic != shape.dynamic:
        dynamic = join_dynamic((lhs, rhs))
        shape = intern(
            Shape(shape.element_type, shape.dimensions, shape.layout, dynamic=dynamic)
        )
    return shape


def _check_comparison(query: Query, kind: str) -> None:
    if query.text("direction") not in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        query.fail(f"direction {query.text('direction')} is none")
    given, order = (query.attributes.get(name) for name in ("type", "order"))
    if order not in (None, "PARTIAL", "TOTAL"):
        query.fail(f"order {order} is none")
    if given is None:
        return
    if order is not None:
        query.fail("takes a type or an order, not both")
    if kind in _REAL_OR_COMPLEX:
        allowed = ("FLOAT", "TOTALORDER") if kind in FLOATING else ("FLOAT",)
    else:
        allowed = ("SIGNED",) if kind in SIGNED else ("UNSIGNED",)
    if given not in allowed:
        query.fail(f"type {given} does not fit {kind}, which takes {allowed[0]}")


def clamp(query: Query) -> Shape:
    """(minimum, operand, maximum): bounds are scalars or of the operand's shape."""
    low, shape, high = query.array(0), query.array(1), query.array(2)
    for bound in (low, high):
        if not same_type_but_precision(bound.element_type, shape.element_type):
            query.fail(f"a bound is {bound.element_type}, not {shape.element_type}")
        if bound.rank and not compatible(bound, shape, any_precision=True):
            query.fail(f"a bound has shape {bound}, the operand {shape}")
    return shape


def select(query: Query) -> Shape:
    """(pred, on true, on false) of one shape; the predicate may be a scalar."""
    pred, on_true, on_false = query.array(0), query.array(1), query.array(2)
    if pred.element_type != "pred":
        query.fail(f"operand 0 must be pred, it is {pred.element_type}")
    if not compatible(on_true, on_false, any_precision=True):
        query.fail(f"chooses between {on_true} and {on_false}")
    if pred.rank and not compatible(pred, on_true, any_type=True):
        query.fail(f"the predicate has shape {pred}, the values {on_true}")
    kind = higher_precision(on_true.element_type, on_false.element_type)
    if not pred.rank:
        return retyped(on_true, kind)
    dynamic = join_dynamic((pred, on_true, on_false))
    return intern(Shape(kind, on_true.dimensions, pred.layout, dynamic=dynamic))


def convert(query: Query) -> Shape:
    """The operand with the declared element type."""
    shape, result = query.array(0), query.result()
    if not result.is_array:
        query.fail(f"makes an array, not {result}")
    return retyped(shape, result.element_type)


def stochastic_convert(query: Query) -> Shape:
    """(operand, random bits): unsigned bits of the operand's width and shape."""
    shape, bits = query.array(0), query.array(1)
    if bits.element_type not in UNSIGNED or shape.element_type not in FLOATING:
        query.fail(f"does not take {shape.element_type} and {bits.element_type}")
    if BITS[shape.element_type] != BITS[bits.element_type]:
        query.fail(f"{bits.element_type} is not as wide as {shape.element_type}")
    if not compatible(shape, bits, any_type=True):
        query.fail(f"operands of different shapes, {shape} and {bits}")
    return retyped(shape, query.result().element_type)


def reduce_precision(query: Query) -> Shape:
    """The operand's shape; floating, at least one exponent bit."""
    shape = query.array(0)
    if shape.element_type not in FLOATING:
        query.fail(f"does not take {shape.element_type}")
    if query.integer("exponent_bits") < 1 or query.integer("mantissa_bits") < 0:
        query.fail("needs exponent_bits >= 1 and mantissa_bits >= 0")
    return shape


def bitcast_convert(query: Query) -> Shape:
    """Bits read as another type; a width ratio r adds or removes a last dimension r."""
    shape, result = query.array(0), query.result()
    old, new = shape.element_type, result.element_type
    if not result.is_array or (old in COMPLEX) != (new in COMPLEX):
        query.fail(f"cannot read {old} as {new}")
    wide, narrow = max(BITS[old], BITS[new]), min(BITS[old], BITS[new])
    if wide % narrow:
        query.fail(
            f"the width of {old} is not a multiple of that of {new}, or the reverse"
        )
    ratio, dimensions = wide // narrow, shape.dimensions
    if BITS[old] > BITS[new]:
        dynamic = (*shape.dynamic, False)
        return intern(Shape(new, (*dimensions, ratio), dynamic=dynamic))
    if BITS[old] < BITS[new]:
        if not dimensions or dimensions[-1] != ratio:
            query.fail(f"the last dimension of {shape} must be {ratio} to make {new}")
        return intern(Shape(new, dimensions[:-1], dynamic=shape.dynamic[:-1]))
    return retyped(shape, new)
