"""Gives the IR the functions of higher rooms that its methods are doors to.

    module.to_text()                text/printer.py
    Module.from_proto(data)         proto.py
    computation.replace(old, new)   analysis/effects.py says which operands may go too

The IR imports none of them. `hlo_passes/__init__.py` connects them, so that it is done
before any module of the package can be used.
"""

from __future__ import annotations

from hlo_passes.analysis.effects import is_removable
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Formats, Module
from hlo_passes.text.canonical_printer import canonical_module_text
from hlo_passes.text.printer import module_text
from hlo_passes.text.reader import parse


def connect() -> None:
    """Connect the IR with what is above it."""
    Computation.is_removable = is_removable
    Module.formats = Formats(
        parse=parse,
        text=module_text,
        canonical_text=canonical_module_text,
        from_proto=_from_proto,
        to_proto=_to_proto,
    )


# Only who reads or writes protos waits for the import.


def _from_proto(data: bytes, *, filename: str = "<proto>") -> Module:
    from hlo_passes.proto import module_from_proto

    return module_from_proto(data, filename=filename)


def _to_proto(module: Module) -> bytes:
    from hlo_passes.proto import module_to_proto

    return module_to_proto(module)
