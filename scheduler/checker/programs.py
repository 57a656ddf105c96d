"""What each device does, in order: communications that begin and are waited for.

    %s = all-gather-start(...)      begin on the lane of collectives
    %d = all-gather-done(%s)        wait
    %r = all-reduce(...)            begin on the program's own lane, and wait
    while(...)                      condition and body twice: a trip meets the next
    conditional(...)                the device's branch; if it is unknown, every
                                    branch in turn, as all devices take the same

A loop is assumed to make equally many trips on all devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    begun_collective,
    is_done,
    is_start,
    is_transfer,
    start_of,
    work_of,
)
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import is_marked_sync, operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.overlap import lane_of
from hlo_passes.scheduler.checker.participants import (
    Machine,
    Participants,
    collectives_in,
    participants_of,
    transfer_pairs,
)
from hlo_passes.scheduler.checker.rank_values import Frame

#: Trips of a loop that are followed: what one trip leaves open meets the next.
_TRIPS: Final = 2
_PROGRAM: Final = "program"
#: Attributes of collectives that must be equal on all devices of a group.
_AGREED: Final = (
    "replica_groups", "source_target_pairs", "dimensions", "split_dimension",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """One communication in the text.

    Attributes:
        key: equal on all devices that meet: kind and channel, or kind and name.
            Several may share a key.
        instruction: where it begins.
        lane: the queue in which it runs.
        participants: the devices that meet.
        content: equal on all devices that meet: what they exchange.
        role: 'all', or 'send' or 'recv' for one side of a transfer.
    """

    key: str
    instruction: Instruction
    lane: str
    participants: Participants
    content: tuple[str, ...]
    role: str = "all"


@dataclass(frozen=True, slots=True)
class Step:
    """Begin a meeting, or wait until it is over."""

    meeting: Meeting
    waits: bool


@dataclass(slots=True)
class ProgramReader:
    """Reads the steps of devices from one module.

    `by_name`: those that meet must have one name (devices run different modules).
    """

    module: Module
    machine: Machine
    by_name: bool = False
    _meetings: dict[Instruction, tuple[Meeting, ...]] = field(default_factory=dict)
    _communicates: dict[Computation, bool] = field(default_factory=dict)

    def steps(self, device: int) -> list[Step]:
        """The steps of a device."""
        frame = Frame(*divmod(device, self.machine.partitions))
        return list(self._computation(self.module.entry, frame))

    def _computation(self, computation: Computation, frame: Frame) -> Iterator[Step]:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if is_start(instruction):
                for meeting in self.meetings(instruction):
                    yield Step(meeting, waits=False)
                    if meeting.lane == _PROGRAM:
                        yield Step(meeting, waits=True)
            elif is_done(instruction):
                for meeting in self.meetings(start_of(instruction)):
                    yield Step(meeting, waits=True)
            elif opcode in opcodes.SYNC_COLLECTIVES:
                (meeting,) = self.meetings(instruction)
                yield Step(meeting, waits=False)
                yield Step(meeting, waits=True)
            elif runs_callees(instruction):
                yield from self._calls(instruction, frame)

    def _calls(self, instruction: Instruction, frame: Frame) -> Iterator[Step]:
        callees = instruction.called_computations
        if not any(map(self.communicates, callees)):
            return
        operands = instruction.operands
        if instruction.opcode == "call":
            inner = frame.inside(dict(enumerate(operands)))
            yield from self._computation(callees[0], inner)
        elif instruction.opcode == "while":
            body, condition = callees
            for _ in range(_TRIPS):
                # The values that the loop carries are unknown.
                yield from self._computation(condition, frame.inside({}))
                yield from self._computation(body, frame.inside({}))
        else:
            chosen = _branch(instruction, callees, frame)
            for number, branch in enumerate(callees):
                if chosen in (None, number):
                    given = {0: operands[number + 1]}
                    yield from self._computation(branch, frame.inside(given))

    def communicates(self, computation: Computation) -> bool:
        """Whether anything in a computation, or below it, meets other devices."""
        known = self._communicates.get(computation)
        if known is None:
            known = any(
                is_start(i) or is_done(i) or begun_collective(i.opcode) != ""
                or (runs_callees(i)
                    and any(map(self.communicates, i.called_computations)))
                for i in computation.instructions
            )  # fmt: skip
            self._communicates[computation] = known
        return known

    def meetings(self, instruction: Instruction) -> tuple[Meeting, ...]:
        """The meetings that begin at an instruction, or end at a done without start."""
        found = self._meetings.get(instruction)
        if found is None:
            found = tuple(self._read(instruction))
            self._meetings[instruction] = found
        return found

    def _read(self, instruction: Instruction) -> Iterator[Meeting]:
        if is_transfer(instruction):
            pairs = transfer_pairs(instruction, self.machine)
            key = f"transfer on channel {instruction.attributes.get('channel_id')}"
            lane = lane_of(instruction)
            data, role = _data(instruction), work_of(instruction)
            yield Meeting(key, instruction, lane, pairs, data, role=role)
            return
        lane = _PROGRAM
        if is_start(instruction) and not is_marked_sync(instruction):
            lane = lane_of(instruction)
            stream = operation_queue_id(instruction)
            lane = f"{lane} on stream {stream}" if stream else lane
        for collective in collectives_in(instruction):
            channel = collective.attributes.get("channel_id")
            named = f"channel {channel}" if channel else f"%{collective.name}"
            yield Meeting(
                f"{begun_collective(collective.opcode)} {named}",
                instruction,
                lane,
                participants_of(collective, self.machine),
                (collective.name,) if self.by_name else _content(collective),
            )


def _data(transfer: Instruction) -> tuple[str, ...]:
    """Type and number of the elements that a send or recv hands over."""
    if is_done(transfer):
        return ()
    is_send = transfer.opcode == "send"
    shape = transfer.operands[0].shape if is_send else transfer.shape.elements[0]
    return (shape.element_type, str(shape.element_count)) if shape.is_array else ()


def _content(collective: Instruction) -> tuple[str, ...]:
    """The facts that devices must agree on when they meet in a collective."""
    attributes = collective.attributes
    reduction = collective.called_computations[:1]
    return (
        *(o.shape.text for o in collective.operands),
        *(attributes.get(name, "") for name in _AGREED),
        *(c.root.opcode for c in reduction),
    )


def _branch(
    instruction: Instruction, callees: tuple[Computation, ...], frame: Frame
) -> int | None:
    """The branch that the device takes; None if that is unknown."""
    index = frame.scalar(instruction.operands[0])
    if index is None:
        return None
    if instruction.operands[0].shape.element_type == "pred":
        return 0 if index else 1
    # An index out of range takes the last branch.
    return index if 0 <= index < len(callees) else len(callees) - 1
