"""Serialised HloModuleProto and HloProto, through jaxlib. The only file that loads it.

module = module_from_proto(pathlib.Path("m.pb").read_bytes())
data = module_to_proto(module)
"""

from __future__ import annotations

import re
from typing import Any

from hlo_passes.errors import ParseError, UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.proto_edit import edited
from hlo_passes.proto_messages import (
    device_counts,
    with_device_counts,
    without_sugar,
)
from hlo_passes.source import Location
from hlo_passes.text.reader import parse

_LENGTH_DELIMITED = 2

#: A proto lists every device: five megabytes for so many.
_MOST_DEVICES = 1 << 20


def _jaxlib_hlo() -> Any:
    try:
        from jaxlib import _hlo  # type: ignore[attr-defined]
    except ImportError as problem:
        raise UnsupportedHloError(
            "this release of jaxlib has no module _hlo, which reads protos",
            code="S001",
            hint="jaxlib 0.10.2 and 0.12.0.1 have it",
        ) from problem
    return _hlo


def module_text_from_proto(data: bytes, *, filename: str = "<proto>") -> str:
    """HLO text of a serialised HloModuleProto, constants in full; P042 if none."""
    return _read(data, filename=filename, large_constants=True)[1]


def _read(data: bytes, *, filename: str, large_constants: bool) -> tuple[bytes, str]:
    """The HloModuleProto itself, and its text."""
    hlo = _jaxlib_hlo()
    reason = "it is empty"
    for candidate in (data, _unwrapped(data)):
        if candidate is None:
            continue
        try:
            printed, stopper = without_sugar(candidate)
            module = hlo.HloModule.from_serialized_hlo_module_proto(printed)
        except Exception as problem:
            reason = str(problem).splitlines()[0] if str(problem) else "unreadable"
            continue
        options = hlo.HloPrintOptions()
        options.print_large_constants = large_constants
        text = module.to_string(options)
        if stopper:
            text = re.sub(rf"^.*%{stopper}.*\n", "", text, flags=re.MULTILINE)
        return candidate, text
    raise ParseError(
        f"this is no serialised HloModuleProto or HloProto: {reason}",
        code="P042",
        location=Location(filename, 1, 1),
    )


def module_from_proto(
    data: bytes, *, filename: str = "<proto>", large_constants: bool = True
) -> Module:
    """Read a serialised HloModuleProto or HloProto.

    Args:
        data: the bytes; the module keeps them, `module_to_proto` needs them.
        filename: for messages.
        large_constants: give constants of more than ten elements in full; else they
            read `{...}`, and keep their value in the proto.

    Raises:
        ParseError: P042, it is neither of the two.
        UnsupportedHloError: S001, jaxlib cannot read protos.
    """
    proto, text = _read(data, filename=filename, large_constants=large_constants)
    # Text has no place for what the compilation fixed: the header tells passes.
    header, newline, rest = text.partition("\n")
    counts = zip(("replica_count", "num_partitions"), device_counts(proto), strict=True)
    for name, count in counts:
        if count > 1 and f", {name}=" not in header:
            header += f", {name}={count}"
    module = parse(f"{header}{newline}{rest}", filename=filename)
    module.proto = proto
    return module


def module_to_proto(module: Module) -> bytes:
    """The serialised HloModuleProto of a module.

    For one that came from a proto it is that proto, changed where the module was
    changed (see proto_edit.py); else XLA's reading of its text. The header's counts
    of replicas and partitions, of which XLA's reading keeps nothing, stand in the
    proto's device assignment.

    Raises:
        UnsupportedHloError: S015, a new constant without its value; S001.
        ParseError: P043, XLA cannot read the module's text, or its counts of devices
            are none that a proto can list.
    """
    if module.proto is None:
        data = _proto_of_text(module.to_text())
    else:
        data = edited(module, module.proto, _proto_of_text)
    counts = (module.replica_count, module.num_partitions)
    if counts == device_counts(data):
        return data
    if min(counts) < 1 or counts[0] * counts[1] > _MOST_DEVICES:
        raise ParseError(
            f"a proto lists 1 to {_MOST_DEVICES} devices, not {counts[0]} replicas x "
            f"{counts[1]} partitions",
            code="P043",
            location=Location("<module>", 1, 1),
        )
    return with_device_counts(data, *counts)


def _proto_of_text(text: str) -> bytes:
    try:
        parsed = _jaxlib_hlo().hlo_module_from_text(text)
    except Exception as problem:
        raise ParseError(
            f"XLA cannot read the module: {problem}",
            code="P043",
            location=Location("<module>", 1, 1),
        ) from problem
    return parsed.as_serialized_hlo_module_proto()


def _unwrapped(data: bytes) -> bytes | None:
    """Field 1 of a message that opens with it: an HloProto's module."""
    if not data or data[0] != (1 << 3 | _LENGTH_DELIMITED):
        return None
    length, shift, at = 0, 0, 1
    while at < len(data) and shift < 64:
        length |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return data[at : at + length]
        shift += 7
    return None
