"""Literals of constants against their shapes.

    V404 the literal does not fit the shape

Most literals are scalars, short rows or elided; their text alone settles those. The
rest goes to the reader of `ir/literals.py`, which loads NumPy.
Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_passes.errors import HloError, UnsupportedHloError
from hlo_passes.ir.left_out import LEFT_OUT
from hlo_passes.ir.shapes import BITS, FLOATING, SIGNED, UNSIGNED, Shape
from hlo_passes.verify.finding import Fault
from hlo_passes.whole_numbers import number_of_digits

_REMEMBERED: Final = 65_536
_INTEGER = re.compile(r"-?\d{1,19}")
_DECIMAL = re.compile(r"-?(?:\d+(?:\.\d*)?|\d*\.\d+)(?:[eE][+-]?\d+)?")

#: Magnitudes that are surely in range; beyond them the reader decides.
_SAFE: Final = {
    "f64": 1e300, "f32": 3.4e38, "bf16": 3.38e38, "f16": 6e4, "f8e5m2": 5e4
}  # fmt: skip
_SAFE_NARROW: Final = 1.0
_SPECIAL: Final = frozenset({"inf", "-inf", "nan", "-nan"})


def _is_plain_element(token: str, kind: str) -> bool:
    """Whether a token is surely an element of the type."""
    if kind == "pred":
        return token in ("true", "false", "0", "1")
    if kind in FLOATING:
        if kind in _SAFE and token in _SPECIAL:
            return True
        if not _DECIMAL.fullmatch(token):
            return False
        return abs(float(token)) <= _SAFE.get(kind, _SAFE_NARROW)
    if not _INTEGER.fullmatch(token):
        return False
    value = number_of_digits(token)
    if kind in SIGNED:
        half = 1 << (BITS[kind] - 1)
        return -half <= value < half
    return kind in UNSIGNED and 0 <= value < 1 << BITS[kind]


def _is_plain(text: str, shape: Shape) -> bool:
    """Whether a literal surely fits: one element, a row, or elided."""
    if not shape.is_array:
        return False
    if shape.rank == 0 or not text.startswith("{"):
        # A bare element represents a whole array: XLA reads it so.
        return _is_plain_element(text, shape.element_type)
    if text == LEFT_OUT:
        return True
    if shape.rank > 1 and shape.element_count == 1:
        opened, closed = "{ " * (shape.rank - 1) + "{", "}" + " }" * (shape.rank - 1)
        return (
            text.startswith(opened)
            and text.endswith(closed)
            and _is_plain_element(
                text[len(opened) : -len(closed)].strip(), shape.element_type
            )
        )
    if shape.rank != 1 or not text.endswith("}"):
        return False
    tokens = [t.strip() for t in text[1:-1].split(",")] if text[1:-1].strip() else []
    return len(tokens) == shape.dimensions[0] and all(
        _is_plain_element(token, shape.element_type) for token in tokens
    )


@lru_cache(maxsize=_REMEMBERED)
def check_constant(literal: str | None, shape: Shape) -> tuple[Fault, ...]:
    """What is wrong with a constant; () if it is correct."""
    if literal is None:
        return (Fault("V404", "the constant has no literal"),)
    if _is_plain(literal, shape):
        return ()
    from hlo_passes.ir.literals import parse_literal

    try:
        parse_literal(literal, shape)
    except UnsupportedHloError:
        return ()  # it fits, but NumPy cannot hold it
    except HloError as problem:
        return (Fault("V404", f"{problem.message} in a constant of {shape}"),)
    return ()
