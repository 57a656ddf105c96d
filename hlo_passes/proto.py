"""Serialised HloModuleProto and HloProto, through jaxlib. The only file that loads it.

module = module_from_proto(pathlib.Path("m.pb").read_bytes())
data = module_to_proto(module)
"""

from __future__ import annotations

from typing import Any

from hlo_passes.errors import ParseError, UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.source import Location
from hlo_passes.text.reader import parse

_LENGTH_DELIMITED = 2


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
    hlo = _jaxlib_hlo()
    reason = "it is empty"
    for candidate in (data, _unwrapped(data)):
        if candidate is None:
            continue
        try:
            module = hlo.HloModule.from_serialized_hlo_module_proto(candidate)
        except Exception as problem:
            reason = str(problem).splitlines()[0] if str(problem) else "unreadable"
            continue
        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        return module.to_string(options)
    raise ParseError(
        f"this is no serialised HloModuleProto or HloProto: {reason}",
        code="P042",
        location=Location(filename, 1, 1),
    )


def module_from_proto(data: bytes, *, filename: str = "<proto>") -> Module:
    """Read a serialised HloModuleProto or HloProto."""
    return parse(module_text_from_proto(data, filename=filename), filename=filename)


def module_to_proto(module: Module) -> bytes:
    """The serialised HloModuleProto of a module, through jaxlib's parser."""
    parsed = _jaxlib_hlo().hlo_module_from_text(module.to_text())
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
