"""Custom-calls that XLA:TPU makes in its last modules.

%c = custom-call(%d, %e), custom_call_target="ConcatBitcast"    parts side by side
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction

#: The target, as printed, of what joins parts that lie side by side.
JOINS: Final = '"ConcatBitcast"'


def joins_parts(instruction: Instruction) -> bool:
    """Whether it makes one array of parts that lie side by side."""
    target = instruction.attributes.get("custom_call_target")
    return instruction.opcode == "custom-call" and target == JOINS
