"""Conversions that lose nothing, against NumPy for all values of the narrow types."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_passes.ir.element_types import converts_without_loss, numpy_dtype
from hlo_passes.ir.shapes import BITS, FLOATING, SIGNED, UNSIGNED

#: Types of which all values are tried, and types that they are converted to.
_NARROW = ("s8", "u8", "s16", "u16", "f16", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3")
_WIDE = sorted((FLOATING | SIGNED | UNSIGNED) - {"f8e8m0fnu"})


def _all_values(element_type: str) -> np.ndarray:
    bits = BITS[element_type]
    raw = np.arange(1 << bits, dtype=f"u{bits // 8}")
    return raw.view(numpy_dtype(element_type))


@pytest.mark.parametrize("old", _NARROW)
def test_what_is_lossless_loses_nothing(old: str) -> None:
    values = _all_values(old)
    for new in _WIDE:
        if BITS[new] < 8 or not converts_without_loss(old, new):
            continue
        with np.errstate(invalid="ignore"):  # signaling NaNs
            back = values.astype(numpy_dtype(new)).astype(values.dtype)
            numbers = values.astype(np.float64)
        kept = np.isnan(numbers) | (
            back.view(f"u{values.itemsize}") == values.view(f"u{values.itemsize}")
        )
        assert kept.all(), new


@pytest.mark.parametrize(
    ("old", "new", "lossless"),
    [
        ("bf16", "f32", True), ("f16", "bf16", False), ("f32", "f64", True),
        ("s32", "f32", False), ("s16", "f32", True), ("u8", "s16", True),
        ("u8", "s8", False), ("s8", "u16", False), ("s32", "s32", True),
        ("f32", "c64", True), ("c64", "f64", False), ("pred", "f32", True),
        ("s8", "pred", False), ("f8e4m3fn", "f8e5m2", False),
        ("f16", "f8e8m0fnu", False), ("s64", "f64", False),
    ],
)  # fmt: skip
def test_some(old: str, new: str, lossless: bool) -> None:
    assert converts_without_loss(old, new) is lossless
