"""NumPy types of HLO element types; those that NumPy lacks come from ml_dtypes."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

_BY_NAME: Final[dict[str, np.dtype]] = {
    "pred": np.dtype(np.bool_),
    **{f"s{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "s2": np.dtype(ml_dtypes.int2),
    "s4": np.dtype(ml_dtypes.int4),
    "u2": np.dtype(ml_dtypes.uint2),
    "u4": np.dtype(ml_dtypes.uint4),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3b11fnuz": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn),
}
#: Names of the types that NumPy has.
ELEMENT_TYPES: Final = frozenset(_BY_NAME)
_BY_DTYPE: Final = {dtype: name for name, dtype in _BY_NAME.items()}


def numpy_dtype(element_type: str) -> np.dtype:
    """The NumPy type; KeyError for a type that has none (f6, one-bit integers)."""
    return _BY_NAME[element_type]


def element_type_of(dtype: np.dtype) -> str:
    """The HLO type of a NumPy type; KeyError if there is none."""
    return _BY_DTYPE[np.dtype(dtype)]


def is_native(dtype: np.dtype) -> bool:
    """Whether NumPy itself has the type (so that `.npz` files can hold it)."""
    return np.dtype(dtype).isbuiltin == 1
