"""The integers of constants: scalars, and tables with one dimension.

    s32[] constant(4)                  4
    s32[4]{0} constant({0, 8, 4, 2})   (0, 8, 4, 2)

Constants of other types, and those whose value was left out (`{...}`), have none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literals import parse_literal
from hlo_passes.ir.shapes import INTEGRAL, Shape, array_shape

#: Texts of constants of which the values are remembered.
_REMEMBERED: Final = 1024


def constant_integers(instruction: Instruction) -> tuple[int, ...] | None:
    """All elements of an integer or boolean constant, row by row; None for others."""
    shape, text = instruction.shape, instruction.literal
    if (
        instruction.opcode != "constant"
        or text is None
        or shape.element_type not in INTEGRAL | {"pred"}
    ):
        return None
    found = _read(text, shape)
    if found is None and shape.element_count == 1:
        # XLA reads one element without its braces, too.
        found = _read(text, array_shape(shape.element_type))
    return found


@lru_cache(maxsize=_REMEMBERED)
def _read(text: str, shape: Shape) -> tuple[int, ...] | None:
    try:
        literal = parse_literal(text, shape)
    except HloError:
        return None
    if literal.array is None:
        return None
    return tuple(int(value) for value in literal.array.reshape(-1))


def constant_integer(instruction: Instruction) -> int | None:
    """The value of an integer constant with one element, None for anything else."""
    shape = instruction.shape
    if not shape.is_array or shape.element_count != 1:
        return None
    values = constant_integers(instruction)
    return values[0] if values else None
