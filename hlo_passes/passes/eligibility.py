"""What a pass may touch: instructions whose every attribute it knows.

%a = f32[8] collective-permute(%x), source_target_pairs={{0,1}}, novel_flag=true
                                                     unknown: left as it is
"""

from __future__ import annotations

from hlo_passes.ir.attribute_tables import opcode_attributes
from hlo_passes.ir.instruction import Instruction


def unknown_attribute(instruction: Instruction) -> str | None:
    """The first attribute that XLA's opcode of that name does not have, or None."""
    known = opcode_attributes(instruction.opcode)
    return next((name for name in instruction.attributes if name not in known), None)
