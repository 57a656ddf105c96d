"""Arrays in `.npz` files and as checksums.

    0         float32 (8, 4, 16)                     key: number of the array
    1         uint8 (8, 4, 16, 2)                    bfloat16: its bytes, on a last axis
    1.dtype   'bfloat16'

Types of one byte, int4 among them (one per byte), keep their shape.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence

import ml_dtypes  # noqa: F401  (gives NumPy the names of the types it lacks)
import numpy as np

from hlo_passes.cli.files import write_bytes
from hlo_passes.errors import UsageError
from runtime.dtypes import element_type_of, is_native, numpy_dtype


def write_arrays(path: str, arrays: Sequence[np.ndarray]) -> None:
    """Write a file whole or not at all; UsageError U003 when that cannot be done."""
    entries: dict[str, np.ndarray] = {}
    for number, array in enumerate(arrays):
        if is_native(array.dtype):
            entries[str(number)] = array
            continue
        octets = np.ascontiguousarray(array).view(np.uint8)
        if array.itemsize > 1:
            octets = octets.reshape(*array.shape, array.itemsize)
        entries[str(number)] = octets.reshape(octets.shape)
        entries[f"{number}.dtype"] = np.array(array.dtype.name)
    buffer = io.BytesIO()
    np.savez(buffer, **entries)  # pyright: ignore[reportArgumentType]
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str) -> list[np.ndarray]:
    """Read what `write_arrays` wrote; keys must run from 0.

    Raises:
        UsageError: U001 for no such file, U022 for one that is not of this form.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}", code="U001") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise UsageError(
            f"{path} is no .npz file of arrays: {problem}", code="U022"
        ) from problem
    numbers = sorted(int(name) for name in entries if name.isdecimal())
    if numbers != list(range(len(numbers))):
        raise UsageError(
            f"the keys of {path} are {', '.join(entries)}",
            code="U022",
            hint="they must be 0, 1, ... in the order of the parameters",
        )
    return [_array(path, entries, number) for number in numbers]


def _array(path: str, entries: dict[str, np.ndarray], number: int) -> np.ndarray:
    stored = entries[str(number)]
    name = entries.get(f"{number}.dtype")
    if name is None:
        return stored
    try:
        dtype = np.dtype(str(name))
        element_type_of(dtype)
    except (TypeError, KeyError):
        raise UsageError(
            f"{path}: {number}.dtype is {name}, which is no type of HLO", code="U022"
        ) from None
    if dtype.itemsize == 1:
        return np.ascontiguousarray(stored).view(dtype)
    return np.ascontiguousarray(stored).view(dtype)[..., 0]


def checksum(array: np.ndarray) -> str:
    """SHA-256 of the little-endian, C-contiguous bytes, in hexadecimal."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(little).view(np.uint8)
    return hashlib.sha256(octets.tobytes()).hexdigest()


def dtype_name(element_type: str) -> str:
    """NumPy's name of an HLO type, as `run --json` prints it."""
    return numpy_dtype(element_type).name
