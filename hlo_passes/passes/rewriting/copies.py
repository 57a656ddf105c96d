"""Copies of instructions as XLA's passes make them.

    copy_of(%all-gather, (%x,), shape)       the same attributes, channel id included
    derive(%new, %all-reduce)                metadata, frontend attributes and sharding
                                             of %all-reduce, or none

Control edges are not copied. Called computations are shared.
Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc` (CloneWithNewOperands,
SetupDerivedInstruction).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape

_DERIVED = ("metadata", "frontend_attributes", "sharding")


def copy_of(
    instruction: Instruction,
    operands: Iterable[Instruction],
    shape: Shape | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Instruction:
    """A copy with other operands, at the end of the same computation.

    Args:
        instruction: not a fusion, whose body would have to be copied too.
        operands: of the copy.
        shape: of the copy; the same one when not given.
        attributes: values that differ.
    """
    return instruction.computation.new(
        instruction.opcode,
        shape or instruction.shape,
        operands,
        {**instruction.attributes, **(attributes or {})},
        name=instruction.name,
        literal=instruction.literal,
    )


def derive(new: Instruction, source: Instruction) -> Instruction:
    """Give an instruction the description of another; returns it.

    What `source` does not have is taken away. A backend config is handed on between
    instructions of one opcode, where the new one has none.
    """
    for name in _DERIVED:
        new.set_attribute(name, source.attributes.get(name))
    config = source.attributes.get("backend_config")
    if new.opcode == source.opcode and "backend_config" not in new.attributes:
        new.set_attribute("backend_config", config)
    return new
