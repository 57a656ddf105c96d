"""What each device does, in order: communications that begin and are waited for.

    %s = all-gather-start(...)      begin on the lane of collectives
    %d = all-gather-done(%s)        wait
    %r = all-reduce(...)            begin on the program's own lane, and wait
    while(...)                      condition and body twice: a trip meets the next
    conditional(...)                the device's branch; if it is unknown, every
                                    branch in turn, as all devices take the same

A loop is assumed to make equally many trips on all devices. A computation is read once
for each set of facts that a device knows of its operands, however often it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    begun_collective,
    is_done,
    is_fusion,
    is_start,
    is_transfer,
    start_of,
    work_of,
)
from hlo_passes.ir.calls import runs_callees, scheduled_computations
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
from hlo_passes.scheduler.checker.rank_values import Context, Frame

#: Trips of a loop that are followed: what one trip leaves open meets the next.
_TRIPS: Final = 2
#: Steps of one computation that are all followed; of more, each one at most twice.
_MOST_STEPS: Final = 8192
#: Contexts in which a computation is read; beyond them its operands count as unknown.
_MOST_CONTEXTS: Final = 64
_PROGRAM: Final = "program"
_IDS: Final = frozenset({"partition-id", "replica-id"})
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


Steps = tuple[Step, ...]
#: Steps by computation, and by what is known of its operands.
_Known = dict[Computation, dict[Context, Steps]]


@dataclass(slots=True)
class _Facts:
    """What is in a computation, or in what it calls.

    Attributes:
        communicates: something that meets other devices.
        chooses: a conditional one branch of which communicates.
        asks_who: the id of the device; fusions and reductions count, too.
    """

    communicates: bool = False
    chooses: bool = False
    asks_who: bool = False


class ProgramReader:
    """Reads the steps of devices from one module."""

    def __init__(
        self, module: Module, machine: Machine, *, by_name: bool = False
    ) -> None:
        """`by_name`: those that meet have one name, as devices run other modules."""
        self.module = module
        self.machine = machine
        self.by_name = by_name
        self._meetings: dict[Instruction, tuple[Meeting, ...]] = {}
        self._facts: dict[Computation, _Facts] = {}
        self._post_order = build_call_graph(module).post_order
        for computation in self._post_order:
            self._facts[computation] = self._read_facts(computation)
        #: Steps of computations that are the same in every call, on every device.
        self._plain: dict[Computation, Steps] = {}
        self._shared: Steps | None = None

    @property
    def is_the_same_everywhere(self) -> bool:
        """Whether all devices have the same steps."""
        entry = self._facts[self.module.entry]
        return not (entry.chooses and entry.asks_who)

    def all_meetings(self) -> Iterator[Meeting]:
        """The meetings that begin anywhere in the program."""
        for computation in scheduled_computations(self.module):
            for instruction in computation.instructions:
                if (
                    is_start(instruction)
                    or instruction.opcode in opcodes.SYNC_COLLECTIVES
                    or self._is_fused(instruction)
                ):
                    yield from self.meetings(instruction)

    def steps(self, device: int) -> Steps:
        """The steps of a device; one list for all if they are the same."""
        if self._shared is not None:
            return self._shared
        self._read_plain()
        frame = Frame(*divmod(device, self.machine.partitions))
        steps = self._computation(self.module.entry, frame, {})
        if self.is_the_same_everywhere:
            self._shared = steps
        return steps

    def _read_facts(self, computation: Computation) -> _Facts:
        facts = _Facts()
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if (
                is_start(instruction)
                or is_done(instruction)
                or begun_collective(opcode)
            ):
                facts.communicates = True
            if opcode in _IDS:
                facts.asks_who = True
            runs = runs_callees(instruction)
            has_part = runs or is_fusion(instruction)
            for callee in instruction.called_computations:
                inner = self._facts[callee]
                facts.asks_who = facts.asks_who or inner.asks_who
                if has_part and inner.communicates:
                    facts.communicates = True
                    facts.chooses = (
                        facts.chooses or inner.chooses or opcode == "conditional"
                    )
        return facts

    def _read_plain(self) -> None:
        """Read what makes no choice, callees first."""
        frame = Frame(0, 0)
        for computation in () if self._plain else self._post_order:
            facts = self._facts[computation]
            if facts.communicates and not facts.chooses:
                self._plain[computation] = self._own_steps(computation, frame, {})

    def _computation(
        self, computation: Computation, frame: Frame, known: _Known
    ) -> Steps:
        """The steps of one call; `known` are those of the device's earlier calls."""
        if not self._facts[computation].communicates:
            return ()
        plain = self._plain.get(computation)
        if plain is not None:
            return plain
        read = known.setdefault(computation, {})
        context = frame.context
        if context not in read:
            if len(read) >= _MOST_CONTEXTS:
                context, frame = (), frame.inside({})
            if context not in read:
                read[context] = self._own_steps(computation, frame, known)
        return read[context]

    def _own_steps(
        self, computation: Computation, frame: Frame, known: _Known
    ) -> Steps:
        steps: list[Step] = []
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if is_start(instruction):
                for meeting in self.meetings(instruction):
                    steps.append(Step(meeting, waits=False))
                    if meeting.lane == _PROGRAM:
                        steps.append(Step(meeting, waits=True))
            elif is_done(instruction):
                ended = self.meetings(start_of(instruction))
                steps += [Step(meeting, waits=True) for meeting in ended]
            elif opcode in opcodes.SYNC_COLLECTIVES or self._is_fused(instruction):
                for meeting in self.meetings(instruction):
                    steps.append(Step(meeting, waits=False))
                    steps.append(Step(meeting, waits=True))
            elif runs_callees(instruction):
                for part in self._calls(instruction, frame, known):
                    steps += part
        return tuple(steps if len(steps) <= _MOST_STEPS else _twice_at_most(steps))

    def _is_fused(self, instruction: Instruction) -> bool:
        """Whether it is a fusion with a collective inside."""
        return instruction.opcode == "fusion" and any(
            self._facts[body].communicates for body in instruction.called_computations
        )

    def _calls(
        self, instruction: Instruction, frame: Frame, known: _Known
    ) -> Iterator[Steps]:
        callees = instruction.called_computations
        if not any(self._facts[callee].communicates for callee in callees):
            return
        operands = instruction.operands
        if instruction.opcode == "call":
            inner = frame.inside(dict(enumerate(operands)))
            yield self._computation(callees[0], inner, known)
        elif instruction.opcode == "while":
            body, condition = callees
            for _ in range(_TRIPS):
                # The values that the loop carries are unknown.
                yield self._computation(condition, frame.inside({}), known)
                yield self._computation(body, frame.inside({}), known)
        else:
            chosen = _branch(instruction, callees, frame)
            for number, branch in enumerate(callees):
                if chosen in (None, number):
                    given = {0: operands[number + 1]}
                    yield self._computation(branch, frame.inside(given), known)

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


def _twice_at_most(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step up to twice: what one round leaves open meets the next."""
    counts: dict[Step, int] = {}
    for step in steps:
        count = counts[step] = counts.get(step, 0) + 1
        if count <= _TRIPS:
            yield step


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
