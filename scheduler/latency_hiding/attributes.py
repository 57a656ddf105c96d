"""Attributes that control scheduling, read without splitting the others.

frontend_attributes={scheduler_hint="force_delay",_scheduling_group_id="3"}
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction

HINT: Final = "scheduler_hint"
DELAY_PRIORITY: Final = "scheduler_delay_priority"
GROUP_ID: Final = "_scheduling_group_id"
KEEP_ORDER: Final = "keep_original_sequence_order_in_group"
STREAM_ANNOTATION: Final = "_xla_stream_annotation"
COLLECTIVES_GROUP: Final = "_collectives_group"


def frontend(instruction: Instruction, name: str) -> str | None:
    """A frontend attribute; None if there is none."""
    if not instruction.mentions(name):
        return None
    return instruction.frontend_attributes.get(name)
