"""Halves of asynchronous operations, however they are spelled.

    all-gather-start                    start of all-gather
    async-done of a wrapped fusion      done of fusion
    reduce-scatter-update               update of reduce-scatter
    send -> send-done                   start and done of send, maybe through a loop
    add                                 not a half

An opcode's row says which half it is (`opcodes.facts`). This module says what a half
does, where its operation starts and ends, and what it wraps. Nothing else looks at how
a half is spelled.

Source: openxla/xla `hlo_opcode.h`, `hlo_instruction.cc`, `latency_hiding_scheduler.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_passes.ir.opcodes import Half, facts

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction


def half(instruction: Instruction) -> Half:
    """'start', 'update', 'done' or ''; send and recv are starts."""
    return facts(instruction.opcode).half


def is_start(instruction: Instruction) -> bool:
    """Whether an asynchronous operation starts here."""
    return facts(instruction.opcode).half == "start"


def is_update(instruction: Instruction) -> bool:
    """Whether it continues an asynchronous operation."""
    return facts(instruction.opcode).half == "update"


def is_done(instruction: Instruction) -> bool:
    """Whether an asynchronous operation ends here."""
    return facts(instruction.opcode).half == "done"


def is_transfer(instruction: Instruction) -> bool:
    """Whether it is a send, a recv or one of their dones."""
    return facts(instruction.opcode).spelling == "transfer"


def is_host_transfer(instruction: Instruction) -> bool:
    """Whether a send, a recv or one of their dones exchanges with the host."""
    return instruction.attributes.get("is_host_transfer") == "true"


def is_generic(instruction: Instruction) -> bool:
    """Whether it is async-start, async-done or sugar of one; an update is not."""
    row = facts(instruction.opcode)
    return row.spelling == "generic" and row.half != "update"


def work_of(instruction: Instruction) -> str:
    """The opcode of what it does; for a half, that of the whole operation.

    'all-gather' for all-gather-start, 'fusion' for async-done of a wrapped fusion, its
    own opcode for what is not a half; '' for a generic half without a computation.
    """
    work = facts(instruction.opcode).work
    if work:
        return work
    wrapped = wrapped_computation(instruction)
    return "" if wrapped is None else wrapped.root.opcode


def is_collective(instruction: Instruction) -> bool:
    """Whether what it does is a collective: one, or any half of one.

    send and recv are not collectives.
    """
    row = facts(instruction.opcode)
    if row.work:
        return row.is_collective
    return facts(work_of(instruction)).is_collective


def begun_collective(opcode: str) -> str:
    """The synchronous opcode of a collective or of a start that names one, else ''.

    'all-gather' for all-gather and all-gather-start, 'all-to-all' for all-to-all-start;
    '' for updates and dones, and for async-start, whose opcode does not name its work.
    """
    row = facts(opcode)
    return row.work if row.is_collective and row.half in ("", "start") else ""


def is_fusion(instruction: Instruction) -> bool:
    """Whether it is a fusion or the sugar that starts one."""
    row = facts(instruction.opcode)
    return row.work == "fusion" and row.half in ("", "start")


def start_of(instruction: Instruction) -> Instruction:
    """The start that an update or done follows; the instruction itself without one.

    A `recv-done` whose `recv` is in another computation or trip has no start that could
    be found.
    """
    step = instruction
    while facts(step.opcode).half in ("update", "done"):
        if not step.operands:
            return instruction
        step = step.operands[0]
    return step if is_start(step) else instruction


def done_of(start: Instruction) -> Instruction | None:
    """The done that a start or update leads to; None without one in its computation."""
    work = list(start.users)
    for user in work:
        role = half(user)
        if role == "done":
            return user
        if role == "update":
            work.extend(user.users)
    return None


def is_pair(start: Instruction, done: Instruction) -> bool:
    """Whether a start and a done are of the same kind of work."""
    return (
        facts(done.opcode).half == "done"
        and facts(start.opcode).half == "start"
        and work_of(done) == work_of(start)
    )


def thread_of(instruction: Instruction) -> str:
    """The thread that a generic half runs its computation on; 'main' by default."""
    start = start_of(instruction)
    thread = start.attributes.get("async_execution_thread")
    if thread is not None:
        return thread.strip('"')
    wrapped = wrapped_computation(start)
    return "main" if wrapped is None else wrapped.execution_thread


def wrapped_computation(instruction: Instruction) -> Computation | None:
    """What a generic half runs; None for sugar, which names no computation of its own.

    The computation that sugar may name is an adder or the body of a fusion.
    """
    start = start_of(instruction)
    if start.opcode != "async-start":
        return None
    return next(iter(start.called_computations), None)


def wrapped_instruction(instruction: Instruction) -> Instruction:
    """The instruction that a generic half runs; of sugar, the start itself."""
    computation = wrapped_computation(instruction)
    return start_of(instruction) if computation is None else computation.root
