"""Element types as NumPy sees them: dtypes, digits, NaN payloads.

NumPy and ml_dtypes are imported when a literal is first read or made. Types that NumPy
lacks come from ml_dtypes (a dependency of jaxlib). s1 and u1 are stored in bytes.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from math import ceil, log10
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.shapes import BITS, COMPLEX, FLOATING, SIGNED, UNSIGNED

if TYPE_CHECKING:
    import numpy as np

_NUMPY_NAMES: Final = {
    "pred": "bool", "s1": "int8", "u1": "uint8",
    **{f"s{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    "f16": "float16", "f32": "float32", "f64": "float64",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_ML_DTYPES_NAMES: Final = {
    "s2": "int2", "u2": "uint2", "s4": "int4", "u4": "uint4", "bf16": "bfloat16",
    "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3", "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e3m4": "float8_e3m4",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e8m0fnu": "float8_e8m0fnu", "f4e2m1fn": "float4_e2m1fn",
    "f6e2m3fn": "float6_e2m3fn", "f6e3m2fn": "float6_e3m2fn",
}  # fmt: skip

#: Bits of the significand, the hidden one included.
PRECISION: Final = {
    "f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e5m2": 3, "f8e4m3": 4,
    "f8e4m3fn": 4, "f8e4m3b11fnuz": 4, "f8e3m4": 5, "f8e5m2fnuz": 3, "f8e4m3fnuz": 4,
    "f8e8m0fnu": 1, "f4e2m1fn": 2, "f6e2m3fn": 4, "f6e3m2fn": 3,
}  # fmt: skip
#: Types whose NaNs carry a payload; it has the stored bits of the significand.
PAYLOAD_TYPES: Final = frozenset({"f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3",
                                  "f8e3m4"})  # fmt: skip


@cache
def numpy_dtype(element_type: str) -> np.dtype[Any]:
    """The dtype of an element type. UnsupportedHloError S010 where there is none."""
    import numpy as np

    name = _NUMPY_NAMES.get(element_type)
    if name is not None:
        return np.dtype(name)
    name = _ML_DTYPES_NAMES.get(element_type)
    if name is None:
        raise UnsupportedHloError(f"{element_type} has no NumPy form", code="S020")
    try:
        return np.dtype(getattr(import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        raise UnsupportedHloError(
            f"{element_type} needs ml_dtypes with {name}",
            code="S020",
            hint="pip install --upgrade ml_dtypes",
        ) from None


def element_type_of(dtype: np.dtype[Any]) -> str:
    """The element type of a dtype. UnsupportedHloError S010 where there is none."""
    for table in (_NUMPY_NAMES, _ML_DTYPES_NAMES):
        for element_type, name in table.items():
            if name == dtype.name and element_type not in ("s1", "u1"):
                return element_type
    raise UnsupportedHloError(f"{dtype} has no element type", code="S020")


def significant_digits(element_type: str) -> int:
    """Decimal digits that distinguish neighboring values (C's max_digits10)."""
    return ceil(PRECISION[element_type] * log10(2) + 1)


def exact_digits(element_type: str) -> int:
    """Decimal digits that always survive (C's digits10)."""
    return int((PRECISION[element_type] - 1) * log10(2))


def payload_bits(element_type: str) -> int:
    """Bits of a NaN's payload, 0 for types without."""
    return PRECISION[element_type] - 1 if element_type in PAYLOAD_TYPES else 0


def quiet_payload(element_type: str) -> int:
    """The payload of the NaN that is written without one."""
    return 1 << (payload_bits(element_type) - 1)


def integer_range(element_type: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    bits = int(element_type[1:])
    if element_type in UNSIGNED:
        return 0, (1 << bits) - 1
    assert element_type in SIGNED
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def is_floating(element_type: str) -> bool:
    """Whether it is a floating type of any width."""
    return element_type in FLOATING


def bits_view(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The raw bits of an array, as unsigned integers of its item size."""
    return values.view(f"u{values.dtype.itemsize}")


def converts_without_loss(old: str, new: str) -> bool:
    """Whether every value of a type is one of another, which it converts to.

    Source: openxla/xla `xla/primitive_util.cc` (CastPreservesValues).
    """
    if old == new or old == "pred":
        return new != "f8e8m0fnu" or old == new
    if new in ("pred", "f8e8m0fnu"):
        return False
    if new in COMPLEX:
        part = {"c64": "f32", "c128": "f64"}
        return converts_without_loss(part.get(old, old), part[new])
    if old in FLOATING:
        return new in FLOATING and _float_holds_float(old, new)
    if old not in SIGNED | UNSIGNED:
        return False
    # An integer's digits, its sign apart.
    digits = BITS[old] - (old in SIGNED)
    if new in FLOATING:
        return digits <= PRECISION[new] and BITS[old] - 1 < _float_limits(new)[1]
    if new in UNSIGNED:
        return old in UNSIGNED and digits <= BITS[new]
    return new in SIGNED and digits <= BITS[new] - 1


def _float_holds_float(old: str, new: str) -> bool:
    (smallest, largest), (least, greatest) = _float_limits(old), _float_limits(new)
    return (
        PRECISION[old] <= PRECISION[new]
        and BITS[old] - PRECISION[old] <= BITS[new] - PRECISION[new]
        and (old not in WITH_INFINITY or new in WITH_INFINITY)
        and (old not in _WITH_NAN or new in _WITH_NAN)
        and (old not in _WITH_NEGATIVE_ZERO or new in _WITH_NEGATIVE_ZERO)
        and smallest - PRECISION[old] >= least - PRECISION[new]
        and largest <= greatest
    )


def _float_limits(element_type: str) -> tuple[int, int]:
    """The exponents of the smallest normal number and of the first one too large."""
    if element_type == "f64":
        return -1021, 1024
    from ml_dtypes import finfo

    limits = finfo(numpy_dtype(element_type))
    return int(limits.minexp) + 1, int(limits.maxexp)


_WITH_NAN: Final = FLOATING - {"f4e2m1fn", "f6e2m3fn", "f6e3m2fn"}
#: Floating types whose largest value is infinity.
WITH_INFINITY: Final = PAYLOAD_TYPES
_WITH_NEGATIVE_ZERO: Final = frozenset(
    t for t in FLOATING if not t.endswith("fnuz") and t != "f8e8m0fnu"
)
