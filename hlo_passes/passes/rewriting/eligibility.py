"""What a pass may change: instructions of which it knows every attribute.

%a = f32[8] collective-permute(%x), source_target_pairs={{0,1}}, novel_flag=true
                                                     unknown: left unchanged
"""

from __future__ import annotations

from hlo_passes.ir.attribute_tables import opcode_attributes
from hlo_passes.ir.instruction import Instruction


def unknown_attribute(instruction: Instruction) -> str | None:
    """The first attribute that XLA does not know for the opcode, or None."""
    known = opcode_attributes(instruction.opcode)
    return next((name for name in instruction.attributes if name not in known), None)
