"""Order within a computation: operands, control edges, pairs, scheduling groups.

C010 an operand after its user           C020 a done before its start
C011 a control predecessor after it       C021 a start without its one done
                                         C070 a scheduling group in pieces
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import half, is_done, is_start, is_transfer
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.tpu_config import is_handed_on
from hlo_passes.verify.finding import Report

#: Opcodes that may be inside a scheduling group without belonging to it: no work.
_WEIGHTLESS: Final = frozenset(
    "get-tuple-element bitcast constant parameter broadcast iota tuple".split()
)
_GROUP: Final = "_scheduling_group_id"
_NO_GROUP: Final = "noop"


def check_order(computation: Computation, report: Report) -> None:
    """Report instructions that come before something that they need."""
    position = {i: k for k, i in enumerate(computation.instructions)}
    for here, instruction in enumerate(computation.instructions):
        for operand in dict.fromkeys(instruction.operands):
            there = position.get(operand)
            if there is None:
                report.add(
                    instruction, "C010",
                    f"its operand %{operand.name} is not in the computation",
                )  # fmt: skip
            elif there >= here:
                _note_late_operand(instruction, operand, report)
        for predecessor in instruction.control_predecessors:
            if position.get(predecessor, here) >= here:
                report.add(
                    instruction, "C011",
                    f"its control predecessor %{predecessor.name} comes after it",
                )  # fmt: skip
        if is_start(instruction):
            _check_pair(instruction, report)


def _note_late_operand(
    instruction: Instruction, operand: Instruction, report: Report
) -> None:
    if _follows(instruction, operand):
        report.add(
            instruction, "C020",
            f"{instruction.opcode} comes before its {operand.opcode} "
            f"%{operand.name}",
        )  # fmt: skip
    else:
        report.add(instruction, "C010", f"its operand %{operand.name} comes after it")


def _follows(instruction: Instruction, earlier: Instruction) -> bool:
    """Whether one continues or ends the asynchronous operation of the other."""
    return (
        half(instruction) in ("update", "done")
        and instruction.operands[:1] == (earlier,)
        and half(earlier) in ("start", "update")
    )


def _check_pair(start: Instruction, report: Report) -> None:
    """Follow a start through its updates to its one done."""
    step = start
    while True:
        following = [u for u in step.users if _follows(u, step)]
        if len(following) != 1:
            break
        step = following[0]
        if is_done(step):
            return
    if not following and (is_handed_on(start) or (is_transfer(start) and step.users)):
        return  # its done is in a loop, or in the next trip
    report.add(
        start, "C021",
        f"{start.opcode} has {len(following) or 'no'} ends, but needs exactly one",
    )  # fmt: skip


def check_groups(computation: Computation, report: Report) -> None:
    """Report scheduling groups whose members are not together.

    Fusion bodies are not checked: their instructions become one.
    """
    instructions = computation.instructions
    members: dict[str, list[int]] = {}
    for position, instruction in enumerate(instructions):
        if _GROUP not in instruction.attributes.get("frontend_attributes", ""):
            continue
        group = instruction.frontend_attributes.get(_GROUP, _NO_GROUP)
        if group != _NO_GROUP:
            members.setdefault(group, []).append(position)
    for group, positions in members.items():
        inside = set(positions)
        for position in range(positions[0], positions[-1]):
            stranger = instructions[position]
            if position not in inside and stranger.opcode not in _WEIGHTLESS:
                report.add(
                    stranger, "C070",
                    f"is inside scheduling group {group}, to which it does not "
                    "belong",
                )  # fmt: skip
                break
