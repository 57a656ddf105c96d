"""Starts, updates and dones: each start needs its one done, each done its start.

    V501 a start needs one user, its done      V504 wrapped computation
    V502 a done needs its start                V505 shape of a generic start
    V503 used where only a done may            V506 execution threads differ
    V507 send or recv without its done         V508 channel or host flag differs

The rules cover the native pairs, copy-start, `async-*` with a computation, sugar, send
and recv. A loop of XLA:TPU may hand the start of an `async-*` from one iteration to the
next, as any loop may hand over a send or recv.
Source: openxla/xla `hlo_verifier.cc` (VerifyAsynchronousInstructionPairs,
CheckAsyncOp, VerifyChannels), `hlo_parser.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.async_form import is_host_transfer, start_of
from hlo_passes.ir.opcodes import ROWS, Half, facts
from hlo_passes.ir.shape_inference import Signature, compatible
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.ir.tpu_config import is_handed_in, is_handed_on
from hlo_passes.verify.handed_over import check_handed_in

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report

#: The other opcode of a native start or done, and of a send, recv or their dones.
_PARTNER: Final = {
    opcode: other
    for opcode, row in ROWS.items()
    for other, others in ROWS.items()
    if row.spelling in ("native", "transfer")
    and {row.half, others.half} == {"start", "done"}
    and row.work == others.work
}


def generic_half(opcode: str) -> Half:
    """The half that `async-*` or sugar is; '' for any other opcode."""
    row = facts(opcode)
    return row.half if row.spelling == "generic" else ""


def _real_users(instruction: Instruction) -> list[Instruction]:
    """Users, without custom-calls that only fix an order."""
    return [
        user
        for user in instruction.users
        if not (
            user.opcode == "custom-call"
            and user.attributes.get("custom_call_target") == '"control_dep"'
        )
    ]


def check_pair(
    instruction: Instruction,
    attributes: Mapping[str, str],
    report: Report,
    *,
    wrapped_root: bool,
) -> None:
    """Report what is wrong with one half of a pair.

    `wrapped_root`: whether it is the root of a computation that an async-start calls
    (a send or recv needs no user there).
    """
    opcode = instruction.opcode
    half, spelling = facts(opcode).half, facts(opcode).spelling
    if (half, spelling) == ("start", "native"):
        _check_single_user(instruction, (_PARTNER[opcode],), report)
    elif (half, spelling) == ("done", "native"):
        _check_operand(instruction, (_PARTNER[opcode],), report)
    elif (half, spelling) == ("start", "transfer"):
        if not wrapped_root:
            _check_single_user(instruction, (_PARTNER[opcode], "tuple"), report)
            if "channel_id" in attributes and instruction.user_count != 1:
                report.add(
                    instruction, "V507",
                    f"{opcode} with a channel needs one user, but it has "
                    f"{instruction.user_count}",
                )  # fmt: skip
    elif (half, spelling) == ("done", "transfer"):
        _check_transfer_done(instruction, attributes, report)
    elif half == "start":
        _check_generic_user(instruction, report)
    else:
        _check_generic_operand(instruction, attributes, report)


def _check_single_user(
    instruction: Instruction, expected: tuple[str, ...], report: Report
) -> None:
    users = _real_users(instruction)
    if len(users) != 1:
        report.add(
            instruction, "V501",
            f"{instruction.opcode} needs one user, {' or '.join(expected)}, but it has "
            f"{len(users)}",
        )  # fmt: skip
    elif users[0].opcode not in expected:
        report.add(
            instruction, "V501",
            f"the user of {instruction.opcode} must be {' or '.join(expected)}, but "
            "it is "
            f"{users[0].opcode} %{users[0].name}",
        )  # fmt: skip


def _check_operand(
    instruction: Instruction, expected: tuple[str, ...], report: Report
) -> None:
    operands = instruction.operands
    if len(operands) == 1 and operands[0].opcode not in expected:
        report.add(
            instruction, "V502",
            f"the operand of {instruction.opcode} must be {' or '.join(expected)}, "
            "but it "
            f"is {operands[0].opcode} %{operands[0].name}",
        )  # fmt: skip


def _check_transfer_done(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    opcode = instruction.opcode
    expected = _PARTNER[opcode]
    _check_operand(instruction, (expected, "get-tuple-element"), report)
    if not instruction.operands or instruction.operands[0].opcode != expected:
        return
    start = instruction.operands[0]
    channel = start.attributes.get("channel_id")
    if channel != attributes.get("channel_id"):
        report.add(
            instruction, "V508",
            f"{opcode} has channel {attributes.get('channel_id', 'none')}, its "
            f"{expected} {'none' if channel is None else channel}",
        )  # fmt: skip
    if is_host_transfer(start) != is_host_transfer(instruction):
        report.add(
            instruction,
            "V508",
            f"{opcode} and its {expected} differ in is_host_transfer",
        )


# -- async-start, -update, -done and sugar --------------------------------------


def _check_generic_user(instruction: Instruction, report: Report) -> None:
    users = _real_users(instruction)
    if is_handed_on(instruction):
        return
    followers = [u for u in users if generic_half(u.opcode) in ("update", "done")]
    if len(users) != 1 or len(followers) != 1:
        listed = ", ".join(f"{u.opcode} %{u.name}" for u in users[:3]) or "none"
        report.add(
            instruction, "V501",
            f"{instruction.opcode} needs one user, its update or done, but it has "
            f"{listed}",
        )  # fmt: skip


def _check_generic_operand(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    """An update or done follows a start or update of the same operation."""
    opcode = instruction.opcode
    if generic_half(opcode) == "update":
        _check_generic_user(instruction, report)
    operands = instruction.operands
    if not operands:
        report.add(instruction, "V502", f"{opcode} needs its start as operand")
        return
    previous = operands[0]
    if is_handed_in(instruction):
        check_handed_in(instruction, previous, report)
        return
    if generic_half(previous.opcode) not in ("start", "update"):
        report.add(
            instruction, "V502",
            f"operand 0 of {opcode} must be a start or update, but it is "
            f"{previous.opcode} %{previous.name}",
        )  # fmt: skip
        return
    if generic_half(opcode) == "done" and len(operands) != 1:
        report.add(
            instruction,
            "V502",
            f"{opcode} takes one operand, but it has {len(operands)}",
        )
    start = generic_start_of(previous)
    if start is None:
        return
    mine, other = facts(opcode).work, wrapped_kind(start)
    if mine and other is not None and mine != other:
        report.add(instruction, "V502", f"{opcode} ends an asynchronous {other}")
    _check_inherited(instruction, attributes, start, report)


def wrapped_kind(start: Instruction) -> str | None:
    """The opcode that a generic start wraps; None if it cannot be determined."""
    if start.opcode != "async-start":
        return facts(start.opcode).work
    name = start.attributes.get("calls", "").removeprefix("%")
    computation = start.computation.module.computation(name)
    return computation.root.opcode if computation is not None else None


def _check_inherited(
    instruction: Instruction,
    attributes: Mapping[str, str],
    start: Instruction,
    report: Report,
) -> None:
    """Check what an update or done repeats against what its start says."""
    for name, default in (("async_execution_thread", '"main"'), ("calls", None)):
        text = attributes.get(name)
        if text is None:
            continue
        theirs = start.attributes.get(name, default)
        if theirs is None or text.removeprefix("%") != theirs.removeprefix("%"):
            report.add(
                instruction, "V506",
                f"{name}={text}, but %{start.name} has {theirs or 'none'}",
            )  # fmt: skip


def generic_start_of(instruction: Instruction) -> Instruction | None:
    """The generic start of an update or done (a start: itself); None where none is."""
    start = start_of(instruction)
    return start if generic_half(start.opcode) == "start" else None


def sugar_signature(start: Instruction) -> Signature | None:
    """Parameters and result of the operation that sugar spells.

    Operands and result may be bound step by step: the last update or done decides, as
    in XLA's reader.
    """
    last, parameters, result = start, (), None
    while last is not None:
        shape = last.shape
        if generic_half(last.opcode) == "done":
            result = shape
            break
        if not shape.is_tuple or len(shape.elements) < 2:
            return None
        parameters, result = shape.elements[0].elements, shape.elements[1]
        last = next(
            (u for u in last.users if generic_half(u.opcode) in ("update", "done")),
            None,
        )
    return None if result is None else Signature(parameters, result)


def check_generic_form(instruction: Instruction, report: Report) -> bool:
    """Whether a start or update returns ((operands), result, ...), as it must."""
    opcode, shape = instruction.opcode, instruction.shape
    elements = shape.elements
    if generic_half(opcode) == "done" or (
        shape.is_tuple and len(elements) >= 2 and elements[0].is_tuple
    ):
        return True
    report.add(
        instruction, "V505",
        f"{opcode} returns ((operands), result, ...), not {shape}",
    )  # fmt: skip
    return False


def check_generic_shape(
    instruction: Instruction, signature: Signature, report: Report
) -> None:
    """Report what is wrong with the shape of a generic start, update or done.

    Its form is known to be right. `signature` is that of the wrapped computation; a
    start or update binds a prefix of its parameters and result, a done needs all of
    them.
    """
    opcode, shape = instruction.opcode, instruction.shape
    if generic_half(opcode) == "done":
        _check_done_shape(instruction, signature, report)
        return
    elements = shape.elements
    bound = elements[0].elements
    if generic_half(opcode) == "start":
        operands = tuple(o.shape for o in instruction.operands)
        if len(bound) != len(operands) or not all(map(compatible, bound, operands)):
            report.add(
                instruction, "V505",
                f"the operands of {opcode} are not those in its shape {shape}",
            )  # fmt: skip
    elif instruction.operands:
        _check_update_shape(instruction, report)
    if not is_prefix(elements[0], tuple_shape(signature.parameters)):
        report.add(
            instruction, "V505",
            f"the wrapped computation does not take {elements[0]}",
        )  # fmt: skip
    if not is_prefix(elements[1], signature.result):
        report.add(
            instruction, "V505",
            f"the wrapped computation returns {signature.result}, not {elements[1]}",
        )  # fmt: skip


def is_prefix(part: Shape, whole: Shape) -> bool:
    """Whether a shape equals another, or is a tuple that begins like it."""
    if not part.is_tuple:
        return compatible(part, whole)
    if not part.elements:
        return True
    return (
        whole.is_tuple
        and len(part.elements) <= len(whole.elements)
        and all(map(is_prefix, part.elements, whole.elements))
    )


def _check_update_shape(instruction: Instruction, report: Report) -> None:
    """Check that an update repeats the shape before it; more operands bind more."""
    before, after = instruction.operands[0].shape, instruction.shape
    if not before.is_tuple or len(before.elements) < 2:
        return
    added = [o.shape for o in instruction.operands[1:]]
    bound = after.elements[0].elements
    if (
        not is_prefix(before.elements[0], after.elements[0])
        or not is_prefix(before.elements[1], after.elements[1])
        or len(bound) != len(before.elements[0].elements) + len(added)
        or not all(map(compatible, bound[len(bound) - len(added) :], added))
    ):
        report.add(
            instruction, "V505", f"{instruction.opcode} makes {after} of {before}"
        )


def _check_done_shape(
    instruction: Instruction, signature: Signature, report: Report
) -> None:
    """Check that all parameters are bound, and that the result is the computation's."""
    opcode = instruction.opcode
    if instruction.operands:
        before = instruction.operands[0].shape
        bound = before.elements[0].elements if before.elements else ()
        if len(bound) != len(signature.parameters):
            report.add(
                instruction, "V505",
                f"{opcode}: {len(bound)} of {len(signature.parameters)} operands are "
                "bound",
            )  # fmt: skip
    if not compatible(instruction.shape, signature.result):
        report.add(
            instruction, "V505",
            f"{opcode} returns {signature.result}, not {instruction.shape}",
        )  # fmt: skip


def check_uses(computation: Computation, report: Report) -> None:
    """Check that starts and updates are used only as operand 0 of an update or done."""
    opcodes = {i.opcode for i in computation.instructions}
    if not any(map(generic_half, opcodes)):
        return
    for instruction in computation.instructions:
        role = generic_half(instruction.opcode)
        if role not in ("start", "update"):
            continue
        if is_handed_on(instruction):
            continue
        for user in instruction.users:
            follows = generic_half(user.opcode) in ("update", "done")
            for k, operand in enumerate(user.operands):
                if operand is instruction and not (follows and k == 0):
                    report.add(
                        user, "V503",
                        f"%{instruction.name} may only be operand 0 of its update or "
                        f"done, it is operand {k} of {user.opcode}",
                    )  # fmt: skip
