"""Reads `.mlir` files: StableHLO becomes a Module."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hlo_passes.errors import ParseError
from hlo_passes.files import utf8_text
from hlo_passes.ir.module import Module
from hlo_passes.runtime import jax_private
from hlo_passes.source import Location
from hlo_passes.text.reader import parse

NO_MAIN: Final = "it has no function main with a body"
#: Where MLIR's parser stops, and why, in the words of either function of jaxlib.
_PLACE: Final = re.compile(r'-"?:(\d+):(\d+): (?:error: )?(.*)')
_Result = TypeVar("_Result")

#: MLIR's parser calls itself for each bracket; some thousands end the process.
MAXIMUM_NESTING: Final = 2000
_BYTECODE: Final = b"ML\xefR"
#: `%0#2147483648`: MLIR's parser makes room for all results up to that one.
_LATE_RESULT: Final = rb"%[A-Za-z0-9_$.-]+#[0-9]{6,}"
_HAS_LATE_RESULT: Final = re.compile(_LATE_RESULT)
#: What is no bracket, then brackets that open and that close.
_TOKEN: Final = re.compile(
    rb'"(?:[^"\\]|\\.)*"|//[^\n]*|->|(?P<opens>[(\[{<])|(?P<closes>[)\]}>])'
    rb"|(?P<result>" + _LATE_RESULT + rb")",
    re.DOTALL,
)


def read_module(data: bytes, filename: str) -> Module:
    """Read StableHLO, as text or bytecode.

    Raises:
        ParseError: P042, it is not StableHLO; P011, nested too deeply; P040, not UTF-8.
    """
    proto = _read_with(_proto_of, data, filename)
    return parse(jax_private.proto_to_text(proto), filename=filename)


def parse_module(data: bytes, filename: str) -> Any:
    """The same as a module of MLIR's, for XLA to compile; errors as `read_module`."""
    return _read_with(jax_private.parse_stablehlo, data, filename)


def main_of(module: Any) -> Any:
    """The function main of MLIR's module, with its body; None if there is none."""
    for operation in module.body.operations:
        if (
            operation.operation.name == "func.func"
            and operation.attributes["sym_name"].value == "main"
            and len(operation.regions[0].blocks)
        ):
            return operation
    return None


def _proto_of(data: bytes) -> bytes:
    """What jaxlib makes of it; ValueError for a main without a body, which ends it."""
    module = None
    with contextlib.suppress(ValueError):  # jaxlib's conversion knows more dialects
        module = jax_private.parse_stablehlo(data)
    if module is not None and main_of(module) is None:
        raise ValueError(NO_MAIN)
    return jax_private.stablehlo_to_proto(data)


def not_stablehlo(why: str, filename: str) -> ParseError:
    """P042 for a file that is not StableHLO; `why` may begin with MLIR's place."""
    place = _PLACE.search(why)
    line, column = (int(place[1]), int(place[2])) if place else (1, 1)
    return ParseError(
        f"jaxlib cannot read this as StableHLO: {place[3] if place else why}",
        code="P042",
        location=Location(filename, line, column),
    )


def _read_with(
    reader: Callable[[bytes], _Result], data: bytes, filename: str
) -> _Result:
    if not data.startswith(_BYTECODE):
        # A message that quotes other bytes would end jaxlib.
        utf8_text(data, filename)
        _check_bounds(data, filename)
    try:
        return reader(data)
    except (RuntimeError, ValueError, MemoryError) as problem:
        words = str(problem)
        first = (words.splitlines() or [type(problem).__name__])[0]
        place = _PLACE.search(words)
        raise not_stablehlo(place[0] if place else first, filename) from problem


def _check_bounds(data: bytes, filename: str) -> None:
    """Refuse text on which MLIR's parser runs out of stack (P011) or memory (P042)."""
    brackets = sum(map(data.count, (b"(", b"[", b"{", b"<")))
    if brackets <= MAXIMUM_NESTING and not _HAS_LATE_RESULT.search(data):
        return  # most small modules
    depth = 0
    for token in _TOKEN.finditer(data):
        depth += (token["opens"] is not None) - (token["closes"] is not None)
        if depth > MAXIMUM_NESTING:
            message = f"brackets are nested deeper than {MAXIMUM_NESTING}"
            raise ParseError(
                message, code="P011", location=_location(data, token.start(), filename)
            )
        if token["result"] is not None:
            raise ParseError(
                "no operation has so many results",
                code="P042",
                location=_location(data, token.start(), filename),
            )


def _location(data: bytes, at: int, filename: str) -> Location:
    line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
    return Location(filename, line, column)
