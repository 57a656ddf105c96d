"""Flags among the frontend attributes, in both their spellings.

    frontend_attributes={xla_disable_while_loop_dce="true"}
    frontend_attributes={xla.disable_while_loop_dce="1"}

Source: openxla/xla `xla/frontend_attributes.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction


def is_flag_set(instruction: Instruction, flag: str) -> bool:
    """Whether `xla_FLAG` or `xla.FLAG` is true, 1 or yes, in upper or lower case."""
    if "frontend_attributes" not in instruction.attributes:
        return False
    given = instruction.frontend_attributes
    return any(
        given.get(prefix + flag, "").lower() in ("true", "1", "yes")
        for prefix in ("xla_", "xla.")
    )
