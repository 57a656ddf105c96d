"""Reads `.mlir` files: StableHLO becomes a Module."""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.module import Module
from hlo_passes.runtime import jax_private
from hlo_passes.source import Location
from hlo_passes.text.reader import parse

#: MLIR's parser calls itself for each bracket; some thousands end the process.
MAXIMUM_NESTING: Final = 2000
_BYTECODE: Final = b"ML\xefR"
#: What is no bracket, then brackets that open and that close.
_TOKEN: Final = re.compile(
    rb'"(?:[^"\\]|\\.)*"|//[^\n]*|->|(?P<opens>[(\[{<])|(?P<closes>[)\]}>])',
    re.DOTALL,
)


def read_module(data: bytes, filename: str) -> Module:
    """Read StableHLO, as text or bytecode.

    Raises:
        ParseError: P042, it is not StableHLO; P011, nested too deeply.
    """
    if not data.startswith(_BYTECODE):
        _check_nesting(data, filename)
    try:
        proto = jax_private.stablehlo_to_proto(data)
    except (RuntimeError, ValueError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ParseError(
            f"jaxlib cannot read this as StableHLO: {first}",
            code="P042",
            location=Location(filename, 1, 1),
        ) from problem
    return parse(jax_private.proto_to_text(proto), filename=filename)


def _check_nesting(data: bytes, filename: str) -> None:
    """Refuse text whose brackets are nested too deeply; P011."""
    if sum(map(data.count, (b"(", b"[", b"{", b"<"))) <= MAXIMUM_NESTING:
        return  # most small modules
    depth = 0
    for token in _TOKEN.finditer(data):
        depth += (token["opens"] is not None) - (token["closes"] is not None)
        if depth > MAXIMUM_NESTING:
            at = token.start()
            line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
            raise ParseError(
                f"brackets are nested deeper than {MAXIMUM_NESTING}",
                code="P011",
                location=Location(filename, line, column),
            )
