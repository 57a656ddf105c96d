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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """Report elements of a loop's state that are a start on one way only.

    Complexity: linear in the elements and in what looks at them.
    """
    if not hands_over(loop) or len(loop.operands) != 1 or body.root is None:
        return
    if len(body.parameters) != 1:
        return
    (given,), inside = loop.operands, body.parameters[0]
    going_in = (("is given", given), ("gets back from its body", body.root))
    coming_out = (
        ("its body", inside, _fates(inside)),
        ("its caller", loop, _fates(loop)),
    )
    for index in _in_flight((given, body.root), (fates for *_, fates in coming_out)):
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
        for who, state, fates in coming_out:
            fate = fates.get(index, _Fate())
            if not fate.ends and not fate.carries and _is_taken_apart(state):
                report.add(
                    loop, "V501",
                    f"element {index} is a start in flight, but {who} does not end it",
                )  # fmt: skip
            elif len(fate.ends) > 1 or (fate.ends and fate.carries):
                names = ", ".join(f"%{each.name}" for each in fate.ends + fate.carries)
                report.add(
                    loop, "V501",
                    f"element {index} is one start in flight, but {who} ends it or "
                    f"carries it on several times: {names}",
                )  # fmt: skip


def check_handed_in(half: Instruction, element: Instruction, report: Report) -> None:
    """Check an update or done of what a loop was given or has left."""
    elements = element.shape.elements
    if not element.shape.is_tuple or len(elements) < 2 or not elements[0].is_tuple:
        report.add(
            half, "V502",
            f"%{element.name} is {element.shape}, which no start returns",
        )  # fmt: skip
    elif _half(half) == "done" and not compatible(half.shape, elements[1]):
        report.add(
            half, "V505",
            f"{half.opcode} returns {elements[1]}, not {half.shape}",
        )  # fmt: skip


def may_cross(half: Instruction) -> bool:
    """Whether its other half may be in another computation, so callers matter."""
    if _half(half) != "done" and any(user.opcode == "tuple" for user in half.users):
        return True
    return bool(half.operands) and half.operands[0].opcode == "get-tuple-element"


def _half(instruction: Instruction) -> str:
    row = facts(instruction.opcode)
    return row.half if row.spelling == "generic" else ""


@dataclass(slots=True)
class _Fate:
    """What becomes of an element of a state: what ends it, and what takes it along."""

    ends: list[Instruction] = field(default_factory=list)
    carries: list[Instruction] = field(default_factory=list)


def _fates(state: Instruction) -> dict[int, _Fate]:
    """By element, as far as something reads it."""
    found: dict[int, _Fate] = {}
    for element in state.users:
        index = _index(element)
        if index is None:
            continue
        fate = found.setdefault(index, _Fate())
        for user in element.users:
            if _ends(user, element):
                fate.ends.append(user)
            elif user.opcode == "tuple":
                fate.carries.append(user)
    return found


def _in_flight(
    states: Iterable[Instruction], fates: Iterable[Mapping[int, _Fate]]
) -> list[int]:
    """The elements that are started or ended on any way into or out of the loop."""
    found = {
        index
        for state in states
        if state.opcode == "tuple"
        for index, element in enumerate(state.operands)
        if _half(element) in ("start", "update")
    }
    for each in fates:
        found |= {index for index, fate in each.items() if fate.ends}
    return sorted(found)


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
