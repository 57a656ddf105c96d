"""Arrays in `.npz` files and as checksums.

    0         float32 (8, 4, 16)                     key: number of the array
    1         uint8 (8, 4, 16, 2)                    bfloat16: its bytes, on a last axis
    1.dtype   'bfloat16'

Types of one byte keep their shape; int4 is stored with one element per byte.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence

import ml_dtypes  # noqa: F401  (gives NumPy the names of the types it lacks)
import numpy as np

from hlo_passes.errors import UsageError
from hlo_passes.files import (
    LARGER,
    TooLargeError,
    most_opened_bytes,
    require_file,
    write_bytes,
)
from hlo_passes.runtime.dtypes import element_type_of, is_native, numpy_dtype


def write_arrays(path: str, arrays: Sequence[np.ndarray]) -> None:
    """Write a file in full or not at all; UsageError U003 if it cannot be written."""
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


def read_arrays(path: str, *, name: str | None = None) -> list[np.ndarray]:
    """Read what `write_arrays` wrote; keys must run from 0.

    Args:
        path: of the file.
        name: the name for messages, if it is not the path.

    Raises:
        UsageError: U001 if there is no such file, U022 if it has another form.
    """
    shown = name or path
    require_file(path)
    limit = most_opened_bytes()
    try:
        # Open it as an archive: np.load also accepts a bare array.
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > max(limit, os.path.getsize(path)):
            raise TooLargeError
        with np.load(path, allow_pickle=False) as file:
            entries = {key: file[key] for key in file.files}
    except TooLargeError:
        raise UsageError(
            f"{shown} opens to more than {limit >> 20} MiB", code="U022", hint=LARGER
        ) from None
    except Exception as problem:  # of the archive, its codec, or a header's Python
        # NumPy's message is advice for its own callers (to allow pickles, say).
        raise UsageError(
            f"{shown} is not an .npz file of arrays",
            code="U022",
            hint="numpy.savez writes one: arrays of numbers by the keys 0, 1, ...",
        ) from problem
    count = sum(not key.endswith(".dtype") for key in entries)
    keys = [str(number) for number in range(count)]
    if entries.keys() - {f"{key}.dtype" for key in keys} != set(keys):
        raise UsageError(
            f"the keys of {shown} are {', '.join(entries)}",
            code="U022",
            hint="they must be 0, 1, ... in the order of the parameters",
        )
    return [_array(shown, entries, number) for number in range(count)]


def _array(path: str, entries: dict[str, np.ndarray], number: int) -> np.ndarray:
    stored = entries[str(number)]
    # NumPy hands out the bytes of what does not begin like an array.
    kind = getattr(stored, "dtype", None)
    if kind is None or not _is_of_hlo(kind.newbyteorder("=")):
        raise UsageError(
            f"{path}: {number} is {'no array' if kind is None else f'of type {kind}'}",
            code="U022",
            hint="numpy.savez writes arrays; HLO has numbers and booleans",
        )
    name = entries.get(f"{number}.dtype")
    if name is None:
        return stored
    try:
        dtype = np.dtype(str(name))
    except TypeError:
        dtype = None
    if dtype is None or not _is_of_hlo(dtype):
        raise UsageError(
            f"{path}: {number}.dtype is {name}, which is not an HLO type", code="U022"
        )
    octets = () if dtype.itemsize == 1 else (dtype.itemsize,)
    if stored.dtype != np.uint8 or stored.shape[stored.ndim - len(octets) :] != octets:
        raise UsageError(
            f"{path}: {number} is {stored.dtype}{list(stored.shape)}, which is not "
            f"the bytes of {dtype.name}",
            code="U022",
            hint="use uint8, with the bytes of an element on a separate last axis",
        )
    if not octets:
        return np.ascontiguousarray(stored).view(dtype).reshape(stored.shape)
    return np.ascontiguousarray(stored).view(dtype)[..., 0]


def _is_of_hlo(dtype: np.dtype) -> bool:
    try:
        element_type_of(dtype)
    except KeyError:
        return False
    return True


def checksum(array: np.ndarray) -> str:
    """SHA-256 of the little-endian, C-contiguous bytes, in hexadecimal."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(little).view(np.uint8)
    return hashlib.sha256(octets.tobytes()).hexdigest()


def dtype_name(element_type: str) -> str:
    """NumPy's name of an HLO type, as `run --json` prints it."""
    return numpy_dtype(element_type).name
