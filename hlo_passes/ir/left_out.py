"""A value that text leaves out, and the constant of the module's proto that has it.

%c = f32[4000] constant({...})          a pass gives another constant this literal:
%c.copy = f32[4000] constant({...})     both have the value of %c in the proto
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.module import Module

#: How HLO text spells it.
LEFT_OUT: Final = "{...}"


class LeftOut(str):
    """The literal of a constant that was read without its value.

    Attributes:
        computation: of the constant that has the value, by name.
        constant: its name.
    """

    __slots__ = ("computation", "constant")

    computation: str
    constant: str

    def __new__(cls, computation: str, constant: str) -> LeftOut:
        """Spelled as any value that is left out."""
        found = super().__new__(cls, LEFT_OUT)
        found.computation = computation
        found.constant = constant
        return found


def mark_left_out(module: Module) -> None:
    """Let each constant without its value name the one of the proto that has it."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.literal == LEFT_OUT and instruction.opcode == "constant":
                instruction.literal = LeftOut(computation.name, instruction.name)
