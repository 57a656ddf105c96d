"""Reads `.mlir` files: StableHLO becomes a Module."""

from __future__ import annotations

from hlo_passes.errors import ParseError
from hlo_passes.ir.module import Module
from hlo_passes.runtime import jax_private
from hlo_passes.source import Location
from hlo_passes.text.reader import parse


def read_module(data: bytes, filename: str) -> Module:
    """Read StableHLO, as text or bytecode.

    Raises:
        ParseError: P042, it is not StableHLO.
    """
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
