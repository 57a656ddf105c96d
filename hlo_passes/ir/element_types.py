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
from hlo_passes.ir.shapes import FLOATING, SIGNED, UNSIGNED

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
