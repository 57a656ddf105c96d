"""When two shapes count as the same, in the senses that XLA's rules need.

All of them ignore layouts and whether a dimension is dynamic; `?` fits any size.
Source: openxla/xla `xla/shape.h` (Shape::Equal), `xla/shape_util.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.ir.shapes import BITS, FLOATING, UNBOUNDED, Shape

# Significant bits of the mantissa where types of one width differ.
_MANTISSA = {
    "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e4m3fn": 4, "f8e4m3b11fnuz": 4,
    "f8e4m3fnuz": 4, "f8e5m2": 3, "f8e5m2fnuz": 3, "f8e3m4": 5, "f8e8m0fnu": 1,
    "f6e2m3fn": 4, "f6e3m2fn": 3,
}  # fmt: skip


def sizes_fit(a: int, b: int) -> bool:
    """Whether two sizes of one dimension may be the same."""
    return a == b or UNBOUNDED in (a, b)


def same_dimensions(a: Shape, b: Shape) -> bool:
    """Same rank and sizes; element types are ignored."""
    x, y = a.dimensions, b.dimensions
    return x == y or (len(x) == len(y) and all(map(sizes_fit, x, y)))


def same_type_but_precision(a: str, b: str) -> bool:
    """Equal element types, or both floating."""
    return a == b or (a in FLOATING and b in FLOATING)


def compatible(
    a: Shape, b: Shape, *, any_type: bool = False, any_precision: bool = False
) -> bool:
    """Same structure, sizes and (unless they are ignored) element types."""
    if a is b:
        return True
    x, y = a.element_type, b.element_type
    if x != y:
        if not (a.is_array and b.is_array):
            return False
        if not any_type and not (any_precision and x in FLOATING and y in FLOATING):
            return False
    if not same_dimensions(a, b) or len(a.elements) != len(b.elements):
        return False
    return all(
        compatible(e, f, any_type=any_type, any_precision=any_precision)
        for e, f in zip(a.elements, b.elements, strict=True)
    )


def higher_precision(a: str, b: str) -> str:
    """The floating type with more bits, then with more mantissa; else the first."""
    if a == b or a not in FLOATING or b not in FLOATING:
        return a

    def rank(name: str) -> tuple[int, int]:
        return BITS[name], _MANTISSA.get(name, 0)

    return a if rank(a) >= rank(b) else b


def join_dynamic(shapes: Sequence[Shape]) -> tuple[bool, ...]:
    """Per dimension, whether it is dynamic in any of the shapes (of one rank)."""
    return tuple(map(any, zip(*(s.dynamic for s in shapes), strict=True)))
