"""Attributes of an instruction: known, readable, complete.

    V101 XLA does not know the attribute   V103 the value cannot be read
    V102 a required one is missing     V104 the list cannot be read

Values are read by the parsers of `ir/attribute_values.py`, once per distinct text.
Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_tables import attribute_kind, opcode_attributes
from hlo_passes.ir.attribute_values import parse_value
from hlo_passes.ir.printed_values import is_as_printed
from hlo_passes.verify.finding import Fault

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report

_REMEMBERED: Final = 200_000
_SHOWN_CHARACTERS: Final = 60


@cache
def _required(opcode: str) -> tuple[str, ...]:
    return tuple(name for name, must in opcode_attributes(opcode).items() if must)


@lru_cache(maxsize=_REMEMBERED)
def value_fault(opcode: str, name: str, text: str) -> Fault | None:
    """What is wrong with one attribute; None if it is correct."""
    if name not in opcode_attributes(opcode):
        return Fault(
            "V101",
            f"XLA does not know an attribute {name} of {opcode}",
            severity="unknown",
        )
    if is_as_printed(attribute_kind(name, opcode), text):
        return None
    try:
        parse_value(name, text, opcode)
    except HloError as problem:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:57]}..."
        return Fault("V103", f"{name}={shown}: {problem.message}", problem.hint)
    return None


def check_attributes(
    instruction: Instruction, report: Report
) -> Mapping[str, str] | None:
    """The attributes; None if they cannot be read; faults are reported."""
    try:
        attributes = instruction.attributes
    except HloError as problem:
        report.add(instruction, "V104", problem.message, problem.hint)
        return None
    opcode = instruction.opcode
    readable = True
    for name, text in attributes.items():
        if name == "metadata" and is_as_printed(name, text):
            continue  # not worth remembering: most are different
        fault = value_fault(opcode, name, text)
        if fault is not None:
            report.add_faults(instruction, (fault,))
            readable = readable and fault.severity == "unknown"
    for name in _required(opcode):
        if name not in attributes:
            report.add(instruction, "V102", f"{opcode} needs {name}=")
            readable = False
    for name, wanted in _by_operand(instruction):
        if wanted != (name in attributes):
            what = "needs" if wanted else "does not take"
            report.add(instruction, "V102", f"{opcode} {what} {name}= here")
            readable = False
    return attributes if readable else None


def _by_operand(instruction: Instruction) -> tuple[tuple[str, bool], ...]:
    """(attribute, whether it is required) if the first operand decides."""
    if not instruction.operands:
        return ()
    first = instruction.operands[0].shape
    if instruction.opcode == "broadcast" and first.rank:
        return (("dimensions", True),)
    if instruction.opcode == "conditional":
        flag = first.element_type == "pred"
        return (
            ("true_computation", flag),
            ("false_computation", flag),
            ("branch_computations", not flag),
        )
    return ()
