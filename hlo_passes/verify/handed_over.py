"""Transfers that a loop of XLA:TPU takes from one iteration to the next.

    %body {
      %given = (...) get-tuple-element(%b), index=1    // V501: nothing in here ends it
      %begun = (...) async-start(...)
      ROOT %t = (...) tuple(%next, %begun)             // V502: or no start comes back
    }
    %in = (...) tuple(%zero, %first)                   // V502: or none goes in
    %w = (...) while(%in), body=%body, ...
    %left = (...) get-tuple-element(%w), index=1       // V501: nothing ends it here

An element of what the loop carries is a start before the first iteration and after
each. The body ends the one that it is given, and the caller ends the last. Either may
carry it on in a tuple instead. XLA:TPU's verifier is not public: these rules follow
from what a start is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shape_inference import compatible
from hlo_passes.ir.tpu_config import hands_over
from hlo_passes.whole_numbers import whole_number

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report


def check_loop(loop: Instruction, body: Computation, report: Report) -> None:
    """Report elements of a loop's state that are a start on one way only."""
    if not hands_over(loop) or len(loop.operands) != 1 or body.root is None:
        return
    if len(body.parameters) != 1:
        return
    (given,), inside = loop.operands, body.parameters[0]
    going_in = (("is given", given), ("gets back from its body", body.root))
    coming_out = (("its body", inside), ("its caller", loop))
    for index in _in_flight(going_in, coming_out):
        for verb, state in going_in:
            if state.opcode != "tuple" or index >= len(state.operands):
                continue
            element = state.operands[index]
            if not _may_be_in_flight(element):
                report.add(
                    loop, "V502",
                    f"element {index} is a start in flight, but %{loop.name} {verb} "
                    f"{element.opcode} %{element.name}",
                )  # fmt: skip
        for who, state in coming_out:
            if _is_taken_apart(state) and not any(
                _ends(user, element) or user.opcode == "tuple"
                for element in _elements(state, index)
                for user in element.users
            ):
                report.add(
                    loop, "V501",
                    f"element {index} is a start in flight, but {who} does not end it",
                )  # fmt: skip


def check_handed_in(done: Instruction, element: Instruction, report: Report) -> None:
    """Check a done of what a loop was given or has left."""
    elements = element.shape.elements
    if not element.shape.is_tuple or len(elements) < 2 or not elements[0].is_tuple:
        report.add(
            done, "V502",
            f"%{element.name} is {element.shape}, which no start returns",
        )  # fmt: skip
        return
    if not compatible(done.shape, elements[1]):
        report.add(
            done, "V505",
            f"{done.opcode} returns {elements[1]}, not {done.shape}",
        )  # fmt: skip
    dones = [user for user in element.users if _half(user) == "done"]
    if len(dones) != 1:
        names = ", ".join(f"%{other.name}" for other in dones)
        report.add(done, "V501", f"one start has several dones: {names}")


def may_cross(half: Instruction) -> bool:
    """Whether its other half may be in another computation, so callers matter."""
    if _half(half) != "done" and any(user.opcode == "tuple" for user in half.users):
        return True
    return bool(half.operands) and half.operands[0].opcode == "get-tuple-element"


def _half(instruction: Instruction) -> str:
    row = facts(instruction.opcode)
    return row.half if row.spelling == "generic" else ""


def _in_flight(
    going_in: Iterable[tuple[str, Instruction]],
    coming_out: Iterable[tuple[str, Instruction]],
) -> list[int]:
    """The elements that are started or ended on any way into or out of the loop."""
    found = {
        index
        for _, state in going_in
        if state.opcode == "tuple"
        for index, element in enumerate(state.operands)
        if _half(element) in ("start", "update")
    }
    for _, state in coming_out:
        for element in state.users:
            index = _index(element)
            if index is not None and any(_ends(u, element) for u in element.users):
                found.add(index)
    return sorted(found)


def _elements(state: Instruction, index: int) -> list[Instruction]:
    return [user for user in state.users if _index(user) == index]


def _index(element: Instruction) -> int | None:
    if element.opcode != "get-tuple-element":
        return None
    return whole_number(element.attributes.get("index", ""))


def _ends(user: Instruction, element: Instruction) -> bool:
    return _half(user) in ("update", "done") and user.operands[0] is element


def _may_be_in_flight(element: Instruction) -> bool:
    """Whether it is a start, or comes from somewhere else that may hold one."""
    if element.opcode in ("get-tuple-element", "parameter"):
        return True
    return _half(element) in ("start", "update")


def _is_taken_apart(state: Instruction) -> bool:
    """Whether nothing takes the state as a whole, so every end is in sight."""
    if state.computation.root is state:
        return False
    return all(user.opcode == "get-tuple-element" for user in state.users)
