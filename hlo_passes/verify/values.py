"""Values against shapes: literals of constants, shardings.

    V404 the literal does not fit the shape     V801 the sharding does not fit

Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`, `xla/hlo/ir/hlo_sharding.cc`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hlo_passes.ir.shapes import Shape
from hlo_passes.verify.finding import Fault

_REMEMBERED: Final = 65_536


def check_constant(literal: str | None, shape: Shape) -> tuple[Fault, ...]:
    """What is wrong with a constant."""
    if literal is None:
        return (Fault("V404", "the constant has no literal"),)
    return ()


@lru_cache(maxsize=_REMEMBERED)
def check_sharding(text: str, shape: Shape, partitions: int) -> tuple[Fault, ...]:
    """What is wrong with a sharding of a value."""
    return ()
