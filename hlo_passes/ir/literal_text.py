"""Literals as XLA prints them, on one line.

    1.5     {1, 2, 3}     { { 1, 2 }, { 3, 4 } }     ( 1, {2, 3} )
    { { /*i0=0*/ { /*i1=0*/ { 1, 2 }, ... } } }      from four dimensions on

Two spellings differ, because XLA itself does not read back what it prints there: a
negative zero is `-0.0` (its `-0` is an integer, without sign), the smallest f8e8m0fnu
is `5.8e-39` (its `5.9e-39` is nearer to the next). Source: openxla/xla
`xla/literal.cc`, `xla/util.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.ir.element_types import (
    bits_view,
    exact_digits,
    payload_bits,
    quiet_payload,
    significant_digits,
)
from hlo_passes.ir.shapes import COMPLEX, FLOATING

if TYPE_CHECKING:
    import numpy as np

#: From this rank on blocks are preceded by their index.
_INDEXED_RANK: Final = 4
#: Wide types are first tried with fewer digits.
_TRIED_SHORT: Final = ("f32", "f64")


def array_text(values: np.ndarray[Any, Any], element_type: str) -> str:
    """An array of any rank."""
    rank = values.ndim
    texts = element_texts(values.reshape(-1), element_type, scalar=rank == 0)
    return texts[0] if rank == 0 else nested_text(texts, values.shape)


def nested_text(texts: Sequence[str], dims: Sequence[int]) -> str:
    """Braces around element texts, given row-major."""
    rank, last = len(dims), dims[-1]
    blocks = [
        ", ".join(texts[k * last : (k + 1) * last]) for k in range(prod(dims[:-1]))
    ]
    pad = " " if rank > 1 and last > 1 else ""
    blocks = [f"{{{pad}{block}{pad}}}" for block in blocks]
    for depth in range(rank - 2, -1, -1):
        size = dims[depth]
        joined = (
            ", ".join(blocks[k * size : (k + 1) * size])
            for k in range(prod(dims[:depth]))
        )
        blocks = [
            f"{_opening(rank, depth, k, dims)}{block} }}"
            for k, block in enumerate(joined)
        ]
    return blocks[0]


def _opening(rank: int, depth: int, k: int, dims: Sequence[int]) -> str:
    if rank < _INDEXED_RANK or depth == 0:
        return "{ "
    blank = " " if dims[depth] > 0 else ""
    return f"{{ /*i{depth - 1}={k % dims[depth - 1]}*/{blank}"


def element_texts(
    values: np.ndarray[Any, Any], element_type: str, *, scalar: bool = False
) -> list[str]:
    """Texts of the elements of a flat array; `scalar`: of rank 0 in the HLO."""
    if element_type == "pred":
        words = ("false", "true") if scalar else ("0", "1")
        return [words[v] for v in values.tolist()]
    if element_type in FLOATING:
        return _float_texts(values, element_type)
    if element_type in COMPLEX:
        part = "f32" if element_type == "c64" else "f64"
        pairs = zip(
            _float_texts(values.real.copy(), part),
            _float_texts(values.imag.copy(), part),
            strict=True,
        )
        return [f"({real}, {imaginary})" for real, imaginary in pairs]
    return [str(int(v)) for v in values.tolist()]


def _float_texts(values: np.ndarray[Any, Any], element_type: str) -> list[str]:
    import numpy as np

    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = values.astype(np.float64)
    numbers = wide.tolist()
    long = f"%.{significant_digits(element_type)}g"
    if element_type in _TRIED_SHORT:
        short = f"%.{exact_digits(element_type)}g"
        texts = [short % v for v in numbers]
        back = np.array(list(map(float, texts)), np.float64)
        with np.errstate(over="ignore"):
            same = back.astype(values.dtype) == values
        for k in np.flatnonzero(~same).tolist():
            texts[k] = long % numbers[k]
    else:
        texts = [long % v for v in numbers]
    if element_type == "f8e8m0fnu":
        texts = ["5.8e-39" if text == "5.9e-39" else text for text in texts]
    for k in np.flatnonzero((wide == 0) & np.signbit(wide)).tolist():
        texts[k] = "-0.0"
    nans = np.flatnonzero(np.isnan(wide))
    if nans.size:
        signs = np.signbit(wide[nans]).tolist()
        bits = bits_view(values[nans]).tolist()
        for k, negative, raw in zip(nans.tolist(), signs, bits, strict=True):
            texts[k] = _nan_text(element_type, negative, raw)
    return texts


def _nan_text(element_type: str, negative: bool, raw: int) -> str:
    sign = "-" if negative else ""
    width = payload_bits(element_type)
    payload = raw & ((1 << width) - 1)
    if not width or payload == quiet_payload(element_type):
        return f"{sign}nan"
    return f"{sign}nan(0x{payload:x})"
