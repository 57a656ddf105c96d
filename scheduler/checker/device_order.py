"""Do all devices reach their communications in orders that let each of them end?

    device 0: all-reduce A, all-reduce B        C040: device 0 waits for 1 in A,
    device 1: all-reduce B, all-reduce A              device 1 waits for 0 in B

Every device has its program and one queue per lane. A program begins a communication by
putting it into its lane's queue, and continues. The head of a queue has arrived; it
ends when every device that it waits for has arrived. A done holds the program until its
communication has ended; one without asynchronous halves runs in the program. If nothing
moves any more and a device has not ended, the orders are at fault: following the
devices that wait for each other leads to a cycle (C040), or to a device that never
arrives (C041). Devices that meet must do the same there (C042): exchange data of one
shape for one purpose.

Where all devices have the same steps, and nothing but collectives and permutes in them,
each of them arrives in each communication with all others: nothing is left to run.

Several communications may share a channel: XLA gives channel 1 to all that it makes
from permutes. Meetings are counted as at run time: the nth one of a channel in a group,
and the nth one of a channel from one device to another in permutes and transfers. A
send waits for its receive and the reverse (as NCCL does beyond small messages).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.async_form import is_done
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.participants import (
    Devices,
    Machine,
    Participants,
)
from hlo_passes.scheduler.checker.programs import Meeting, ProgramReader, Steps

#: Waits of a cycle that a message names.
_MOST_NAMED: Final = 16


@dataclass(frozen=True, slots=True)
class Wait:
    """A device that waits in a communication for another one."""

    device: int
    other: int
    instruction: Instruction

    def __str__(self) -> str:
        """'device 0 waits for device 1 in %a'."""
        return (
            f"device {self.device} waits for device {self.other} in "
            f"%{self.instruction.name}"
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a run cannot end, or ends with wrong data.

    Attributes:
        code: C040, C041 or C042.
        message: which device waits for which, and where.
        instruction: the first of these places.
    """

    code: str
    message: str
    instruction: Instruction


def _cycle(waits: Sequence[Wait]) -> Fault:
    listed = "; ".join(map(str, waits[:_MOST_NAMED]))
    if len(waits) > _MOST_NAMED:
        listed += f"; and {len(waits) - _MOST_NAMED} more"
    return Fault(
        "C040",
        f"devices wait for each other in a cycle: {listed}",
        waits[0].instruction,
    )


def _absence(wait: Wait) -> Fault:
    return Fault("C041", f"{wait}; it never arrives there", wait.instruction)


#: A group by its number, or (source, target).
_Who = int | tuple[int, int]
#: Where devices meet: the meeting's key, who meets there, and a count.
_Place = tuple[str, _Who, int]
#: One side of a device in one meeting: (place, role, device).
_Side = tuple[_Place, str, int]


@dataclass(slots=True, eq=False)
class _Occurrence:
    """A device's arrival at a meeting: its group, or all devices it exchanges with.

    Attributes:
        own: the places of the device in it.
        awaited: the devices that must have arrived, for each of `own`; () for a group.
        group: its members.
    """

    device: int
    meeting: Meeting
    own: tuple[_Side, ...]
    awaited: tuple[_Side, ...] = ()
    group: Devices = ()
    over: bool = False


@dataclass(slots=True)
class _Device:
    steps: Steps
    at: int = 0
    queues: dict[str, deque[_Occurrence]] = field(default_factory=dict)
    counts: dict[tuple[str, _Who, str], int] = field(default_factory=dict)
    open: dict[tuple[str, str], list[_Occurrence]] = field(default_factory=dict)
    waits_for: _Occurrence | None = None


def run_devices(modules: Sequence[Module], machine: Machine) -> Fault | None:
    """Run one module per device; None if all devices end and met correctly.

    Several devices may share a module. With different modules, those that meet must
    come from instructions with one name; in one module, from equal instructions (as in
    two branches).
    """
    by_name = any(module is not modules[0] for module in modules)
    readers: dict[Module, ProgramReader] = {}
    for module in modules:
        if module not in readers:
            readers[module] = ProgramReader(module, machine, by_name=by_name)
    if not by_name and _all_keep_step(readers[modules[0]]):
        return None
    return _Run([readers[m].steps(device) for device, m in enumerate(modules)]).result()


def _all_keep_step(reader: ProgramReader) -> bool:
    """Whether every device arrives in every communication with all others."""
    return reader.is_the_same_everywhere and all(
        meeting.role == "all" and meeting.participants.are_among(reader.machine.devices)
        for meeting in reader.all_meetings()
    )


class _Run:
    """All devices, step by step."""

    def __init__(self, programs: Sequence[Steps]) -> None:
        self.devices = [_Device(steps) for steps in programs]
        self.groups: dict[Devices, int] = {}
        self.numbers: dict[Participants, list[int]] = {}
        self.sides: dict[_Side, _Occurrence] = {}
        self.arrivals: dict[_Place, int] = {}
        self.mismatch: Fault | None = None
        self.runnable = deque(range(len(programs)))

    def result(self) -> Fault | None:
        while self.runnable and self.mismatch is None:
            self._advance(self.runnable.popleft())
        if self.mismatch is not None:
            return self.mismatch
        stuck = [n for n, d in enumerate(self.devices) if self._stands_in(d)]
        return self._explain(stuck) if stuck else None

    # -- advancing ---------------------------------------------------------------

    def _advance(self, number: int) -> None:
        """Advance a device until it waits or ends."""
        device = self.devices[number]
        device.waits_for = None
        while device.at < len(device.steps):
            step = device.steps[device.at]
            side = (step.meeting.key, step.meeting.role)
            if step.waits:
                # A done of an earlier trip, or of an unknown start, holds no device.
                pending = [o for o in device.open.get(side, ()) if not o.over]
                device.open[side] = pending
                if not is_done(step.meeting.instruction):
                    # Of those that share a channel, what its own start began.
                    pending = [o for o in pending if o.meeting is step.meeting]
                if pending:
                    device.waits_for = pending[-1]
                    return
            else:
                self._begin(number, device, step.meeting, side)
            device.at += 1

    def _begin(
        self, number: int, device: _Device, meeting: Meeting, side: tuple[str, str]
    ) -> None:
        occurrence = self._come(number, device, meeting)
        if occurrence is None:
            return
        device.open.setdefault(side, []).append(occurrence)
        queue = device.queues.setdefault(meeting.lane, deque())
        queue.append(occurrence)
        if queue[0] is occurrence:
            self._arrive(occurrence)

    def _arrive(self, first: _Occurrence) -> None:
        """Let the head of a queue arrive; end what can end, and whatever follows."""
        coming = [first]
        while coming:
            occurrence = coming.pop()
            for side in occurrence.own:
                self.sides[side] = occurrence
            for ended in self._ended_by(occurrence):
                ended.over = True
                device = self.devices[ended.device]
                queue = device.queues[ended.meeting.lane]
                queue.popleft()
                if queue:
                    coming.append(queue[0])
                if device.waits_for is ended:
                    self.runnable.append(ended.device)

    def _ended_by(self, occurrence: _Occurrence) -> list[_Occurrence]:
        """Occurrences for which this arrival was the last that they waited for."""
        group = occurrence.group
        if group:
            ((place, role, _),) = occurrence.own
            for other in group[:2]:
                self._compare(occurrence, self.sides.get((place, role, other)))
            count = self.arrivals.get(place, 0) + 1
            self.arrivals[place] = count
            if count < len(group):
                return []
            return [self.sides[place, role, member] for member in group]
        candidates = {occurrence: None}
        for side in occurrence.awaited:
            found = self.sides.get(side)
            self._compare(occurrence, found)
            if found is not None and not found.over:
                candidates[found] = None
        return [c for c in candidates if not self._missing(c)]

    def _missing(self, occurrence: _Occurrence) -> list[int]:
        """Devices that an arrived occurrence still waits for."""
        if not occurrence.group:
            return [s[-1] for s in occurrence.awaited if s not in self.sides]
        ((place, role, _),) = occurrence.own
        return [m for m in occurrence.group if (place, role, m) not in self.sides]

    def _compare(self, one: _Occurrence, other: _Occurrence | None) -> None:
        """Report that two devices meet in different operations."""
        if other is None or one.meeting.content == other.meeting.content:
            return
        mine, theirs = one.meeting.instruction, other.meeting.instruction
        self.mismatch = self.mismatch or Fault(
            "C042",
            f"device {one.device} in %{mine.name} meets device {other.device} in "
            f"%{theirs.name}: these are different communications",
            mine,
        )

    # -- arriving ----------------------------------------------------------------

    def _numbers_of(self, participants: Participants) -> list[int]:
        """The number of each group; equal groups have one number."""
        known = self.numbers.get(participants)
        if known is None:
            groups = participants.members
            known = [self.groups.setdefault(g, len(self.groups)) for g in groups]
            self.numbers[participants] = known
        return known

    def _come(
        self, number: int, device: _Device, meeting: Meeting
    ) -> _Occurrence | None:
        """The next arrival of a device at a meeting; None if it takes no part."""

        def place(who: _Who, role: str) -> _Place:
            counted = (meeting.key, who, role)
            count = device.counts.get(counted, 0)
            device.counts[counted] = count + 1
            return (meeting.key, who, count)

        participants = meeting.participants
        if participants.groups:
            at = participants.group_numbers.get(number)
            if at is None:
                return None
            who = self._numbers_of(participants)[at]
            own = (place(who, meeting.role), meeting.role, number)
            group = participants.members[at]
            return _Occurrence(number, meeting, (own,), group=group)
        sends = participants.targets.get(number, ()) if meeting.role != "recv" else ()
        receives = (
            participants.sources.get(number, ()) if meeting.role != "send" else ()
        )
        there = [(place((number, b), "send"), "send", b) for b in sends]
        here = [(place((a, number), "recv"), "recv", a) for a in receives]
        if not there and not here:
            return None
        return _Occurrence(
            number,
            meeting,
            tuple((at, role, number) for at, role, _ in (*there, *here)),
            (
                *((at, "recv", other) for at, _, other in there),
                *((at, "send", other) for at, _, other in here),
            ),
        )

    # -- nothing moves any more
    # ---------------------------------------------------------

    def _stands_in(self, device: _Device) -> _Occurrence | None:
        """The arrived communication that a device waits in; None if it has ended."""
        if device.waits_for is not None:
            return device.queues[device.waits_for.meeting.lane][0]
        return next((queue[0] for queue in device.queues.values() if queue), None)

    def _explain(self, stuck: list[int]) -> Fault:
        """Follow the waiting devices, beginning with the first that waits."""
        chain: list[Wait] = []
        seen: dict[int, int] = {}
        number = stuck[0]
        while number not in seen:
            seen[number] = len(chain)
            occurrence = self._stands_in(self.devices[number])
            if occurrence is None:  # it ended without arriving here
                return _absence(chain[-1])
            missing = self._missing(occurrence)
            beyond = [m for m in missing if not 0 <= m < len(self.devices)]
            if beyond:  # no device runs these replicas or partitions
                wait = Wait(number, beyond[0], occurrence.meeting.instruction)
                there_are = f"the module is for {len(self.devices)} devices"
                return Fault("C041", f"{wait}; {there_are}", wait.instruction)
            waiting = [m for m in missing if self._stands_in(self.devices[m])]
            other = (waiting or missing)[0]
            chain.append(Wait(number, other, occurrence.meeting.instruction))
            number = other
        return _cycle(chain[seen[number] :])
