"""The form in which a file holds a module: its last suffix decides, without `.gz`.

m.hlo, m.txt, -    HLO text
m.pb               a serialized HloModuleProto, through jaxlib
m.mlir             StableHLO, which is only read
"""

from __future__ import annotations

import pathlib

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module

PROTO = ".pb"
STABLEHLO = ".mlir"


def form_of(path: str | None) -> str:
    """The suffix that decides a file's form; '' for stdin, stdout and other names."""
    suffixes = pathlib.PurePath(path or "").suffixes
    return next((s for s in reversed(suffixes) if s != ".gz"), "")


def check_form(path: str | None) -> None:
    """Refuse a form that cannot be written, before the work for it is done; U002."""
    if form_of(path) == STABLEHLO:
        raise UsageError(
            f"cannot write {path}: StableHLO is only read",
            code="U002",
            hint="write HLO text (m.hlo) or a proto (m.pb)",
        )


def module_contents(path: str | None, module: Module) -> str | bytes:
    """The contents of a file of that name for a module: text, or the bytes of a proto.

    Raises:
        UsageError: U002, StableHLO.
        ParseError: P043, UnsupportedHloError: S001, S015: from `Module.to_proto`.
    """
    check_form(path)
    return module.to_proto() if form_of(path) == PROTO else module.to_text()
