"""Cuts a computation into steps, each a program of its own.

    %s = f32[8] all-reduce-start(%a)     one step: nothing can be handed over
    %b = f32[8] cosine(%a)               while the all-reduce is under way
    %d = f32[8] all-reduce-done(%s)
    %t = (f32[8], f32[8]) tuple(%b, %d)  no step, nothing runs
    %w = ... while(%t)                   followed into its body, once per iteration

A step ends after a collective or a transfer, before and after a loop, call or
conditional that is followed, and where it has become long. It does not end between a
start and its done, nor between the send and the recv of one channel, which only move
data together. What gives no value at all (a token that nobody reads) is no step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_passes.ir import async_form
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

#: A step with more instructions than this ends at the next place that allows it: all
#: values of a step are alive at its end.
_MOST_INSTRUCTIONS: Final = 128

_FORWARDED: Final = frozenset({"tuple", "get-tuple-element"})
#: What moves data: the value of a recv is that of the send of its channel.
_SIDES: Final = frozenset({"send", "recv"})


@dataclass(frozen=True, slots=True)
class Forward:
    """A tuple, or an element of one, of values that are there: nothing runs."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Follow:
    """A loop, call or conditional whose computations are cut as well."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Straight:
    """Instructions that run as one program.

    Attributes:
        instructions: in text order.
        inputs: values from before, in the order of the program's parameters.
        outputs: values that are handed over or looked at, in text order.
    """

    instructions: tuple[Instruction, ...]
    inputs: tuple[Instruction, ...]
    outputs: tuple[Instruction, ...]


Step: TypeAlias = Forward | Follow | Straight


def cut(
    computation: Computation, follow: Callable[[Instruction], bool], *, each: bool
) -> tuple[Step, ...]:
    """The steps of a computation.

    Args:
        computation: as it is; its text order is kept.
        follow: whether to follow a loop, call or conditional.
        each: look at every value; else at those of collectives.
    """
    return _Cutter(computation, each=each).steps(follow)


def can_be_handed_over(instruction: Instruction) -> bool:
    """Whether its value is made of arrays, and there when it has run."""
    if async_form.is_start(instruction) or async_form.is_update(instruction):
        return False
    return all(leaf.is_array for _, leaf in instruction.shape.leaves())


@dataclass(slots=True)
class _Cutter:
    computation: Computation
    each: bool
    _steps: list[Step] = field(default_factory=list)
    _pending: dict[Instruction, None] = field(default_factory=dict)
    #: Values that cannot be handed over and have readers to come.
    _open: set[Instruction] = field(default_factory=set)
    #: Where the last transfer of a channel is that has begun.
    _channels_end: int = -1

    def steps(self, follow: Callable[[Instruction], bool]) -> tuple[Step, ...]:
        instructions = self.computation.instructions
        last_use = {o: k for k, i in enumerate(instructions) for o in i.operands}
        last_transfer = {
            i.channel_id: k for k, i in enumerate(instructions) if i.opcode in _SIDES
        }
        for place, instruction in enumerate(instructions):
            if instruction.opcode == "parameter":
                continue
            if instruction.opcode in _FORWARDED and not any(
                o in self._pending for o in instruction.operands
            ):
                self._steps.append(Forward(instruction))
                continue
            if follow(instruction) and not self._is_open(place):
                self._end()
                self._steps.append(Follow(instruction))
                continue
            self._pending[instruction] = None
            for operand in instruction.operands:
                if last_use[operand] == place:
                    self._open.discard(operand)
            if not can_be_handed_over(instruction) and instruction in last_use:
                self._open.add(instruction)
            if instruction.opcode in _SIDES:
                end = last_transfer[instruction.channel_id]
                self._channels_end = max(self._channels_end, end)
            is_long = len(self._pending) >= _MOST_INSTRUCTIONS
            if not self._is_open(place) and (is_long or communicates(instruction)):
                self._end()
        self._end()
        return tuple(self._steps)

    def _is_open(self, place: int) -> bool:
        """Whether something has begun that only ends after this place."""
        return bool(self._open) or place < self._channels_end

    def _end(self) -> None:
        """Make a step of what is pending."""
        pending, self._pending = self._pending, {}
        if not pending:
            return
        inputs = dict.fromkeys(
            o for i in pending for o in i.operands if o not in pending
        )
        root = self.computation.root
        outputs = [
            i
            for i in pending
            if i is root
            or any(user not in pending for user in i.users)
            or (self._is_looked_at(i) and can_be_handed_over(i))
        ]
        if outputs:
            self._steps.append(Straight(tuple(pending), tuple(inputs), tuple(outputs)))

    def _is_looked_at(self, instruction: Instruction) -> bool:
        if instruction.opcode in _FORWARDED:
            return False
        return self.each or communicates(instruction)


def communicates(instruction: Instruction) -> bool:
    """Whether it is a collective or a transfer, or a half of one."""
    return async_form.is_collective(instruction) or async_form.is_transfer(instruction)
