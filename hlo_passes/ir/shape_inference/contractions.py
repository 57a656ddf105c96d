"""dot, ragged-dot, scaled-dot, fft, cholesky, triangular-solve, batch-norm-*.

    f32[2,4,16] dot(f32[2,4,8], f32[2,8,16]),
        lhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_batch_dims={0}, rhs_contracting_dims={1}

The element type of a product is the declared one.
Source: openxla/xla `xla/service/shape_inference.cc`.
"""

from __future__ import annotations

from hlo_passes.ir.shape_inference.compare import higher_precision, sizes_fit
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import (
    COMPLEX,
    FLOATING,
    Shape,
    array_shape,
    intern,
    tuple_shape,
)

_PART = {"c64": "f32", "c128": "f64"}
_WHOLE = {"f32": "c64", "f64": "c128"}
_MAXIMUM_FFT_RANK = 3


def _dot_dimensions(query: Query) -> tuple[list[int], ...]:
    """(lhs batch, lhs contracting, rhs batch, rhs contracting), checked."""
    sides: list[list[int]] = []
    for k, side in enumerate(("lhs", "rhs")):
        shape = query.array(k)
        batch = list(query.integers(f"{side}_batch_dims"))
        contracting = list(query.integers(f"{side}_contracting_dims"))
        query.in_range(f"{side} dimension", batch + contracting, shape.rank)
        sides += [batch, contracting]
    lhs, rhs = query.operand(0), query.operand(1)
    for what, mine, other in (
        ("batch", sides[0], sides[2]),
        ("contracting", sides[1], sides[3]),
    ):
        if len(mine) != len(other):
            query.fail(f"{len(mine)} and {len(other)} {what} dimensions")
        for i, j in zip(mine, other, strict=True):
            if not sizes_fit(lhs.dimensions[i], rhs.dimensions[j]):
                query.fail(
                    f"{what} dimensions of {lhs.dimensions[i]} and {rhs.dimensions[j]}"
                )
    return tuple(sides)


def _product(
    query: Query,
    sides: tuple[list[int], ...],
    *,
    grouped: tuple[int, ...] = (),
    leading: tuple[int, ...] = (),
) -> Shape:
    lhs, rhs = query.operand(0), query.operand(1)
    lhs_batch, lhs_contracting, rhs_batch, rhs_contracting = sides
    sizes, dynamic = list(leading), [False] * len(leading)
    free_lhs = [
        d for d in range(lhs.rank) if d not in lhs_batch and d not in lhs_contracting
    ]
    for d in (*lhs_batch, *free_lhs):
        sizes.append(lhs.dimensions[d])
        dynamic.append(lhs.dynamic[d])
    for d in range(rhs.rank):
        if d not in rhs_batch and d not in rhs_contracting and d not in grouped:
            sizes.append(rhs.dimensions[d])
            dynamic.append(rhs.dynamic[d])
    if query.declared is not None and query.declared.is_array:
        kind = query.declared.element_type
    else:
        kind = higher_precision(lhs.element_type, rhs.element_type)
    return intern(Shape(kind, tuple(sizes), dynamic=tuple(dynamic)))


def dot(query: Query) -> Shape:
    """Batch dimensions, then the free ones on the left, then those on the right."""
    return _product(query, _dot_dimensions(query))


def scaled_dot(query: Query) -> Shape:
    """(lhs, rhs, lhs scale, rhs scale): each scale divides its operand's sizes."""
    sides = _dot_dimensions(query)
    scales = [query.array(2), query.array(3)]
    for k, scale in enumerate(scales):
        shape = query.operand(k)
        ones = all(size == 1 for size in scale.dimensions)
        if (
            scale.element_type == shape.element_type == "bf16"
            and ones
            and any(size != 1 for size in shape.dimensions)
        ):
            continue  # XLA's mark for "no scale"
        if scale.rank != shape.rank:
            query.fail(f"scale {scale} and operand {shape} differ in rank")
        if len(sides[2 * k + 1]) != 1:
            query.fail("needs one contracting dimension")
        for size, by in zip(shape.dimensions, scale.dimensions, strict=True):
            if not by or size % by:
                query.fail(f"scale {scale} does not divide {shape}")
    if all(scale.is_scalar for scale in scales):
        query.fail("both scales are scalars")
    return _product(query, sides)


def ragged_dot(query: Query) -> Shape:
    """(lhs, rhs, group sizes): one dimension of lhs is cut into groups."""
    sides = _dot_dimensions(query)
    lhs, rhs, groups = query.operand(0), query.operand(1), query.array(2)
    ragged = query.integers("lhs_ragged_dims")
    if len(ragged) != 1:
        query.fail("needs one lhs_ragged_dims")
    query.in_range("lhs ragged dimension", ragged, lhs.rank)
    free = [d for d in range(lhs.rank) if d not in sides[0] + sides[1]]
    if ragged[0] in sides[0]:
        prefix = sides[0][: sides[0].index(ragged[0])]
    elif ragged[0] in sides[1]:
        prefix = sides[0] + sides[1][: sides[1].index(ragged[0])]
    else:
        prefix = sides[0] + free[: free.index(ragged[0])]
    expected = tuple(lhs.dimensions[d] for d in prefix)
    if not groups.rank or (groups.rank > 1 and groups.dimensions[:-1] != expected):
        query.fail(f"group sizes {groups} do not fit {lhs}")
    grouped = query.integers("rhs_group_dims")
    query.in_range("rhs group dimension", grouped, rhs.rank)
    if set(grouped) & set(sides[2] + sides[3]):
        query.fail("a group dimension is batch or contracting")
    if len(grouped) != (1 if ragged[0] in free else 0):
        query.fail(f"{len(grouped)} rhs_group_dims do not fit the ragged dimension")
    for d in grouped:
        if not sizes_fit(rhs.dimensions[d], groups.dimensions[-1]):
            query.fail(f"{groups.dimensions[-1]} groups for {rhs}")
    leading = groups.dimensions[-1:] if ragged[0] in sides[1] else ()
    return _product(query, sides, grouped=grouped, leading=leading)


def fft(query: Query) -> Shape:
    """FFT and IFFT keep the shape; RFFT halves the last dimension, IRFFT doubles it."""
    shape, kind = query.array(0), query.text("fft_type")
    lengths = query.integers("fft_length", required=True)
    if not 1 <= len(lengths) <= _MAXIMUM_FFT_RANK or shape.rank < len(lengths):
        query.fail(f"cannot transform {len(lengths)} dimensions of {shape}")
    if kind == "RFFT":
        if shape.element_type not in _WHOLE:
            query.fail(f"RFFT does not take {shape.element_type}")
    elif kind not in ("FFT", "IFFT", "IRFFT"):
        query.fail(f"fft_type {kind} is none")
    elif shape.element_type not in COMPLEX:
        query.fail(f"{kind} does not take {shape.element_type}")
    if kind in ("FFT", "IFFT"):
        return shape
    last, half = lengths[-1], lengths[-1] // 2 + 1
    wanted = (*lengths[:-1], last if kind == "RFFT" else half)
    inner = shape.dimensions[-len(lengths) :]
    for have, want in zip(inner, wanted, strict=True):
        if not sizes_fit(have, want) and (have, last) != (0, 0):
            query.fail(f"{kind} of length {lengths} does not fit {shape}")
    if kind == "RFFT":
        size = half if last else shape.dimensions[-1]
        return array_shape(_WHOLE[shape.element_type], (*shape.dimensions[:-1], size))
    return array_shape(_PART[shape.element_type], (*shape.dimensions[:-1], last))


def cholesky(query: Query) -> Shape:
    """Square matrices of a floating or complex type."""
    shape = query.array(0)
    if shape.element_type not in FLOATING | COMPLEX:
        query.fail(f"does not take {shape.element_type}")
    if shape.rank < 2 or not sizes_fit(*shape.dimensions[-2:]):
        query.fail(f"{shape} does not hold square matrices")
    return shape


def triangular_solve(query: Query) -> Shape:
    """(a, b): b's shape; a is square, and left_side says which dimension they share."""
    a = cholesky(query)
    b = query.array(1)
    if a.element_type != b.element_type or a.rank != b.rank:
        query.fail(f"{a} and {b} differ in type or rank")
    shared = b.dimensions[-2 if query.flag("left_side", default=False) else -1]
    if not sizes_fit(a.dimensions[-1], shared):
        query.fail(f"{a} and {b} do not share a dimension")
    if a.dimensions[:-2] != b.dimensions[:-2]:
        query.fail(f"{a} and {b} differ in their batch dimensions")
    if query.attributes.get("transpose_a", "NO_TRANSPOSE") not in (
        "NO_TRANSPOSE",
        "TRANSPOSE",
        "ADJOINT",
    ):
        query.fail(f"transpose_a {query.attributes['transpose_a']} is none")
    return b


def batch_norm(query: Query) -> Shape:
    """Training and grad return (operand, feature, feature), inference the operand."""
    shape, index = query.array(0), query.integer("feature_index")
    query.in_range("feature_index", (index,), shape.rank)
    grad = query.opcode == "batch-norm-grad"
    for k in range(1, len(query.operands)):
        other = query.array(k)
        if grad and k == len(query.operands) - 1:
            if other.dimensions != shape.dimensions:
                query.fail(f"operand {k} is {other}, operand 0 {shape}")
        elif other.rank != 1 or not sizes_fit(
            other.dimensions[0], shape.dimensions[index]
        ):
            query.fail(
                f"operand {k} is {other}, the feature has {shape.dimensions[index]}"
            )
        if not (other.element_type in FLOATING and shape.element_type in FLOATING):
            query.fail(f"does not take {other.element_type}")
    if query.opcode == "batch-norm-inference":
        return shape
    feature = array_shape(query.operand(1).element_type, (shape.dimensions[index],))
    return tuple_shape((shape, feature, feature))
