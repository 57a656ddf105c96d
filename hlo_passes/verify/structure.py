"""Names, uses, order, parameters, roots and control edges of one computation.

    V001 name used twice            V006 operand count
    V002 name not allowed           V007 root
    V004 operand from elsewhere     V008 parameter numbers
    V005 operand not defined before V013 control predecessor not before

In the text every operand and control predecessor must come before its use, scheduled or
not; this also rules out cycles. Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`,
`hlo_verifier.cc` (VerifyHloStructure), `xla/hlo/ir/hlo_schedule.cc`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_passes.ir.computation import NUMBERS
from hlo_passes.ir.opcodes import VARIADIC, facts
from hlo_passes.ir.shapes import PRIMITIVE_TYPES
from hlo_passes.whole_numbers import whole_number

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NAMES = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]*\n)*")


class _Arities(dict[str, int]):
    """The number of operands by opcode, for quick looks."""

    def __missing__(self, opcode: str) -> int:
        """Words that are no opcodes are not kept: a text may hold any."""
        row = facts(opcode)
        if row.is_known:
            self[opcode] = row.arity
        return row.arity


_ARITIES = _Arities()


def check_structure(computation: Computation, report: Report) -> None:
    """Report what is wrong with names, uses, order and parameters."""
    instructions = computation.instructions
    if not instructions:
        report.add(None, "V012", f"%{computation.name} is empty")
        return
    _check_names(instructions, report)
    check_order(instructions, report)
    _check_parameters(instructions, report)
    root = computation.root
    if root is None or root.removed or root.computation is not computation:
        report.add(None, "V007", f"the root of %{computation.name} is not in it")


def _check_names(instructions: tuple[Instruction, ...], report: Report) -> None:
    names = [i.name for i in instructions]
    distinct = set(names)
    joined = "\n".join(names) + "\n"
    if (
        len(distinct) == len(names)
        and _NAMES.fullmatch(joined)
        and not distinct & PRIMITIVE_TYPES
        and "\n__" not in joined
        and not joined.startswith("__")
    ):
        return
    seen: dict[str, Instruction] = {}
    for instruction in instructions:
        name = instruction.name
        if name in seen:
            line = seen[name].line
            report.add(
                instruction, "V001", f"instruction %{name} is defined already",
                f"the first is in line {line}" if line else "",
            )  # fmt: skip
        seen[name] = instruction
        if name in PRIMITIVE_TYPES:
            report.add(
                instruction, "V002", f"{name} is an element type and cannot be a name",
                f"write {name}_",
            )  # fmt: skip
        elif not _NAME.fullmatch(name):
            report.add(instruction, "V002", f"{name!r} cannot be a name")
        elif name.startswith("__") and not name.startswith("__xla_"):
            report.add(
                instruction, "V003", "names that begin with __ are reserved for XLA: "
                    f"%{name}",
                "only __xla_ is allowed",
            )  # fmt: skip


def check_order(instructions: tuple[Instruction, ...], report: Report) -> None:
    """Check that operands and control predecessors come before their uses."""
    before: set[Instruction] = set()
    arities = _ARITIES
    for instruction in instructions:
        operands = instruction.operands
        for operand in operands:
            if operand not in before:
                _report_use(instruction, operand, report)
        arity = arities[instruction.opcode]
        if arity != len(operands) and arity != VARIADIC:
            report.add(
                instruction, "V006",
                f"{instruction.opcode} takes {arity} operands, but it has "
                f"{len(operands)}",
            )  # fmt: skip
        if instruction._control_predecessors:
            for predecessor in instruction._control_predecessors:
                if predecessor not in before:
                    report.add(
                        instruction, "V013",
                        f"control predecessor %{predecessor.name} is not "
                        f"before %{instruction.name} in the same computation",
                    )  # fmt: skip
        before.add(instruction)


def _report_use(instruction: Instruction, operand: Instruction, report: Report) -> None:
    if operand.removed or operand.computation is not instruction.computation:
        state = "was removed" if operand.removed else "is in another computation"
        report.add(
            instruction,
            "V004",
            f"operand %{operand.name} of %{instruction.name} {state}",
        )
    else:
        report.add(
            instruction, "V005",
            f"operand %{operand.name} is not before %{instruction.name}",
            "an operand is defined before it is used, in the schedule too",
        )  # fmt: skip


def _check_parameters(instructions: tuple[Instruction, ...], report: Report) -> None:
    """Check that parameter numbers are 0..n-1, each once."""
    parameters = [i for i in instructions if i.opcode == "parameter"]
    if [p.literal for p in parameters] == NUMBERS[: len(parameters)]:
        return
    numbers: dict[int, Instruction] = {}
    for parameter in parameters:
        literal = parameter.literal or ""
        number = whole_number(literal)
        if number is None:
            report.add(parameter, "V008", f"parameter({literal}) has no number")
            continue
        if number in numbers:
            report.add(
                parameter, "V008",
                f"parameter {number} is %{numbers[number].name} already",
            )  # fmt: skip
        elif number >= len(parameters):
            report.add(
                parameter, "V008",
                f"parameter {number} of {len(parameters)}: numbers run from 0 without "
                "a gap",
            )  # fmt: skip
        numbers[number] = parameter
