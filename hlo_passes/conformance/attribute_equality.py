"""Whether two instructions are equal, apart from operands and names.

replica_groups={{0,1},{2,3}}        equals   replica_groups=[2,2]<=[4]
metadata={op_name="a" stack_frame_id=7}      equals   metadata={op_name="a"}
backend_config={"a":1,"b":2}        equals   backend_config={"b":2,"a":1}

A `deduplicated_name` may be missing if no text showed it before its instruction was
named for the scheduler.
"""

from __future__ import annotations

from typing import Any

from hlo_passes.ir.attribute_values import canonical_text, parse_value
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES


def attribute_difference(ours: Instruction, theirs: Instruction) -> str:
    """The first attribute in which two instructions of one opcode differ, in words.

    '' when there is none. Called computations are compared elsewhere.
    """
    mine, yours = ours.attributes, theirs.attributes
    for name in dict.fromkeys((*mine, *yours)):
        if name in CALLEE_ATTRIBUTES or mine.get(name) == yours.get(name):
            continue
        opcode = ours.opcode
        if name == "metadata" and _lacks_unprinted_name(ours, theirs):
            continue
        if _comparable(name, mine.get(name), opcode) != _comparable(
            name, yours.get(name), opcode
        ):
            return (
                f"{name}: {_shown(mine.get(name))}, expected {_shown(yours.get(name))}"
            )
    return ""


def _lacks_unprinted_name(ours: Instruction, theirs: Instruction) -> bool:
    """Whether ours lacks only a `deduplicated_name` that no text had before.

    XLA does not print metadata that hold only this name; with a `scheduling_name` it
    does. Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc`.
    """
    mine, yours = ours.metadata, theirs.metadata
    if mine is None or yours is None or mine.deduplicated_name:
        return False
    mine, yours = mine.replace(stack_frame_id=0), yours.replace(stack_frame_id=0)
    return (
        mine == yours.replace(deduplicated_name="")
        and not yours.replace(scheduling_name="").is_printed
    )


def _shown(text: str | None) -> str:
    return "none" if text is None else text


def _comparable(name: str, text: str | None, opcode: str) -> Any:
    """A value that is equal for texts that mean the same; None for an unprinted one."""
    if text is None or canonical_text(name, text, opcode) is None:
        return None
    value = parse_value(name, text, opcode)
    if name == "metadata":
        bare = value.replace(stack_frame_id=0)
        return bare if bare.is_printed else None
    if name == "backend_config":
        return value.json() if value.is_json_dict else value.value
    if name == "replica_groups":
        return value.groups
    return canonical_text(name, text, opcode)
