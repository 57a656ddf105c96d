"""The value of an instruction in a plain module: arrays, and trees of them.

    %t = (f32[8], (s32[], token[])) tuple(%a, %u)     ->  (a, (u, TOKEN))

Plain modules have tuples only if an opcode demands one: otherwise tuples are Python
tuples here and disappear. Tokens order side effects, and in a plain module only
collectives have any, so tokens disappear as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.runtime.plain.refusals import refuse


class Token:
    """The value of a token; `TOKEN` is the only one."""

    __slots__ = ()


TOKEN: Final = Token()


@dataclass(frozen=True, slots=True)
class Pending:
    """A started operation: it runs in the place of its done.

    Attributes:
        start: the `*-start` instruction of the source module.
        operands: its operands' values.
    """

    start: Instruction
    operands: tuple[Value, ...]


Value: TypeAlias = "Instruction | tuple[Value, ...] | Token | Pending"


def arrays(value: Value) -> list[Instruction]:
    """The arrays of a tree, depth first; tokens are left out.

    Raises UnsupportedHloError S010 for a start whose done is elsewhere.
    """
    if isinstance(value, Instruction):
        return [value]
    if isinstance(value, tuple):
        return [array for element in value for array in arrays(element)]
    if isinstance(value, Pending):
        refuse(value.start, "something else than its done takes what it started")
    return []


def tree(shape: Shape, leaves: list[Instruction]) -> Value:
    """The tree of a shape from its arrays, depth first; removes them from the list."""
    if shape.is_tuple:
        return tuple(tree(element, leaves) for element in shape.elements)
    if shape.is_token:
        return TOKEN
    return leaves.pop(0)


def array_leaves(shape: Shape) -> list[Shape]:
    """The array shapes of a tree, depth first, without layouts."""
    return [plain_shape(leaf) for _, leaf in shape.leaves() if leaf.is_array]


def plain_shape(shape: Shape) -> Shape:
    """The same array in the default layout."""
    return array_shape(shape.element_type, shape.dimensions)
