"""The send or recv that owns an asynchronous transfer pipelined through a loop.

    s0 = send(x, t)                        the owner
    w = while(tuple(s0, ...)), body=b      b: d = send-done(get-tuple-element(p, 0))
                                              s1 = send(y, t)     belongs to s0
    d0 = send-done(get-tuple-element(w, 0))

Source: openxla/xla `xla/service/collective_opt_utils.cc` (Aug 2026).
"""

from __future__ import annotations

from hlo_passes.analysis import transfer_attributes
from hlo_passes.ir.async_form import is_host_transfer, is_start, is_transfer
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction


def owner_of_transfer(instruction: Instruction) -> Instruction:
    """The send or recv whose stream a send, recv or one of their dones uses.

    A transfer that is not pipelined in the one way that XLA knows owns itself.
    """
    module = instruction.computation.module
    if any(
        caller.opcode == "async-start"
        for caller in module.callers(instruction.computation)
    ):
        return instruction
    slot = (
        _slot_of_start(instruction)
        if is_start(instruction)
        else _slot_of_done(instruction)
    )
    if isinstance(slot, Instruction):
        return slot
    if slot is None:
        return instruction
    loop, index = slot
    initial = loop.operands[0]
    if initial.opcode != "tuple" or index >= len(initial.operands):
        return instruction
    owner = initial.operands[index]
    return owner if _begins_transfer(owner) else instruction


def is_pipelined_transfer(instruction: Instruction) -> bool:
    """A send, recv or done between devices that is pipelined through a loop."""
    return (
        is_transfer(instruction)
        and not is_host_transfer(instruction)
        and transfer_attributes.PIPELINE in instruction.frontend_attributes
    )


def _begins_transfer(instruction: Instruction) -> bool:
    return is_transfer(instruction) and is_start(instruction)


_Slot = tuple[Instruction, int]


def _slot_of_start(start: Instruction) -> _Slot | Instruction | None:
    """The loop and tuple index that a send or recv feeds; itself if it has a done."""
    if len(start.users) != 1:
        return start
    (user,) = start.users
    if user.opcode != "tuple":
        return start
    index = user.operands.index(start)
    loop = _only_while(user.computation) if user.is_root else _while_among(user.users)
    return (loop, index) if loop is not None else None


def _slot_of_done(done: Instruction) -> _Slot | Instruction | None:
    operand = done.operands[0]
    if _begins_transfer(operand):
        return operand
    if operand.opcode != "get-tuple-element":
        return None
    source = operand.operands[0]
    loop: Instruction | None = None
    if source.opcode == "parameter":
        loop = _only_while(source.computation)
    elif source.opcode == "while":
        loop = source
    return (loop, operand.tuple_index) if loop is not None else None


def _only_while(body: Computation) -> Instruction | None:
    callers = body.module.callers(body)
    if len(callers) == 1 and callers[0].opcode == "while":
        return callers[0]
    return None


def _while_among(users: tuple[Instruction, ...]) -> Instruction | None:
    if len(users) == 1 and users[0].opcode == "while":
        return users[0]
    return None
