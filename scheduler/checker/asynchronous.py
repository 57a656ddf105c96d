"""Flights: which part of an order each asynchronous operation spans.

    all-gather-start(...) -> all-gather-done(...)         native and copy pairs
    async-start -> async-update ... -> async-done         generic, and its sugar
    send -> send-done, recv -> recv-done                  by operand, or through a loop

The checker takes what a half is from the IR, and nothing from the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.ir.async_form import is_done, is_start, start_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction


@dataclass(frozen=True, slots=True)
class Flight:
    """One asynchronous operation in the order of one computation.

    Attributes:
        start: None if it began in another computation or trip.
        done: None if it ends in another one.
        begin: position of the start, -1 without one.
        end: position of the done, the number of instructions without one.
    """

    start: Instruction | None
    done: Instruction | None
    begin: int
    end: int

    @property
    def half(self) -> Instruction:
        """The start, or the done if there is no start."""
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
        if is_start(instruction):
            opened[instruction] = position
        elif is_done(instruction):
            start = start_of(instruction)
            if not is_start(start):
                found.append(Flight(None, instruction, -1, position))
                continue
            closed.add(start)
            # A done before its start has no extent: that is a finding of its own.
            begin = opened.get(start, position)
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
    """Where an operation that does not end here enters a loop, or the end."""
    carriers = {start}
    for position in range(begin + 1, len(instructions)):
        instruction = instructions[position]
        if carriers.isdisjoint(instruction.operands):
            continue
        if instruction.opcode == "while":
            return position
        carriers.add(instruction)
    return len(instructions)
