"""Who begins and who ends: the halves of asynchronous operations.

    all-gather-start(...) -> all-gather-done(...)         native and copy pairs
    async-start -> async-update ... -> async-done         generic, and its sugar
    send -> send-done, recv -> recv-done                  by operand, or through a loop

Source: openxla/xla `xla/hlo/ir/hlo_opcode.h`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.ir import opcodes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction


def begins(instruction: Instruction) -> bool:
    """Whether an asynchronous operation begins here."""
    return opcodes.facts(instruction.opcode).half == "start"


def goes_on(instruction: Instruction) -> bool:
    """Whether this is an update of an asynchronous operation."""
    return opcodes.facts(instruction.opcode).half == "update"


def ends(instruction: Instruction) -> bool:
    """Whether an asynchronous operation ends here."""
    return opcodes.facts(instruction.opcode).half == "done"


def beginning_of(half: Instruction) -> Instruction | None:
    """The start of an update or done; None where another computation holds it."""
    while goes_on(half) or ends(half):
        if not half.operands:
            return None
        half = half.operands[0]
    return half if begins(half) else None


def work_of(half: Instruction) -> str:
    """The opcode of what is done asynchronously: 'all-gather', 'send', 'fusion'."""
    work = opcodes.facts(half.opcode).work
    if work:
        return work
    start = beginning_of(half)
    callees = start.called_computations if start is not None else ()
    return callees[0].root.opcode if callees else ""


@dataclass(frozen=True, slots=True)
class Flight:
    """One asynchronous operation in the order of one computation.

    Attributes:
        start: None where it began in another computation or trip.
        done: None where it ends in another one.
        begin: position of the start, -1 without one.
        end: position of the done, the number of instructions without one.
    """

    start: Instruction | None
    done: Instruction | None
    begin: int
    end: int

    @property
    def half(self) -> Instruction:
        """The start, or the done where there is no start."""
        found = self.start or self.done
        assert found is not None
        return found


def flights(computation: Computation) -> list[Flight]:
    """The asynchronous operations of a computation, by where they begin."""
    instructions = computation.instructions
    opened: dict[Instruction, int] = {}
    found: list[Flight] = []
    closed: set[Instruction] = set()
    for position, instruction in enumerate(instructions):
        if begins(instruction):
            opened[instruction] = position
        elif ends(instruction):
            start = beginning_of(instruction)
            closed.add(start) if start is not None else None
            # A done in front of its start has no extent: that is a finding of its own.
            begin = opened.get(start, position) if start is not None else -1
            found.append(Flight(start, instruction, begin, position))
    found += [
        Flight(start, None, begin, _leaves(start, instructions, begin))
        for start, begin in opened.items()
        if start not in closed
    ]
    return sorted(found, key=lambda flight: (flight.begin, flight.end))


def _leaves(
    start: Instruction, instructions: tuple[Instruction, ...], begin: int
) -> int:
    """Where an operation that does not end here passes into a loop, or the end."""
    carriers = {start}
    for position in range(begin + 1, len(instructions)):
        instruction = instructions[position]
        if carriers.isdisjoint(instruction.operands):
            continue
        if instruction.opcode == "while":
            return position
        carriers.add(instruction)
    return len(instructions)
