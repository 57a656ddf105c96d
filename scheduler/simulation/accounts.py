"""The sums of a run: exposed, communication, serial time and the lower bound.

    exposed          waits of the compute lane, synchronous collectives included
    serial           the sum if everything ran one after the other
    lower bound      the greatest of
        compute        all that the compute lane itself has to run
        one stream       all that a communication or compute stream has to run
        critical path  the longest chain of instructions that depend on each other
        overlap        compute and one stream, less what of them can run at once: of
                       all, or of what has to run between a head and a tail

Loops count with their trips, and in all of these bounds but the second a
loop counts with the bound of its body. No order of the instructions makes the step
shorter, as long as the streams and the synchronous collectives stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.bound import (
    COMPUTE_AND,
    Bound,
    chain_bound,
    lane_bound,
    stream_bound,
    the_greatest,
)
from hlo_passes.scheduler.simulation.engine import Run
from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair
from hlo_passes.scheduler.simulation.program import (
    COMMUNICATION,
    Call,
    Program,
    Work,
)
from hlo_passes.scheduler.simulation.section_bound import (
    Lanes,
    Section,
    bound_of,
    longest_section,
)
from hlo_passes.scheduler.sums import sequential_sum

#: From this share of a bound on, time that is not compute is named with it.
_TOLD: Final = 0.05
#: Relative difference up to which two sums are the same.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Account:
    """The times of one run and of what it called, on one device; us.

    Attributes:
        step_us: how long it took.
        compute_us: on the compute lane.
        exposed_us: the rest of it.
        other_exposed_us: of that, waits for copies and asynchronous computations.
        communication_us: latencies of collectives, sends and receives.
        serial_us: everything run one after the other.
        bound: the lower bound.
        streams: by stream, the time of what it has to run.
        is_closed: whether everything started in it also ends in it.
        is_certain: whether all that it calls runs as a whole, not in parts as probable
            branches do, whose streams nothing else queues behind.
    """

    step_us: float
    compute_us: float
    exposed_us: float
    other_exposed_us: float
    communication_us: float
    serial_us: float
    bound: Bound
    streams: dict[Stream, float]
    is_closed: bool
    is_certain: bool


#: What a section follows from, besides the device: a program, whether it is the entry,
#: and the times of what it calls, of which streams have some for themselves, and of
#: pairs.
_Times = tuple[Program, bool, tuple[float, ...], tuple[float, ...], tuple[float, ...]]


@dataclass(slots=True)
class _Own:
    """Sums over the works of one run; see `Account`."""

    exposed_us: float = 0.0
    other_exposed_us: float = 0.0
    communication_us: float = 0.0
    synchronous_us: float = 0.0
    streams: dict[Stream, float] = field(default_factory=dict)


@dataclass(slots=True)
class Accounts:
    """Accounts of runs, each made once.

    Attributes:
        device: whose clock is read.
        queueing: whether a stream runs one thing after the other.
        entry: the run that leaves nothing in flight.
    """

    device: int
    queueing: bool
    entry: Run
    _known: dict[Run, Account] = field(default_factory=dict)
    _overlaps: dict[Program, Overlaps] = field(default_factory=dict)
    _sections: dict[_Times, Section] = field(default_factory=dict)

    def of(self, run: Run) -> Account:
        """The account of a run."""
        if run not in self._known:
            self._known[run] = self._make(run)
        return self._known[run]

    def takes_part(self, work: Work) -> bool:
        """Whether the device is in one of the groups of a work."""
        return work.groups is None or any(self.device in g for g in work.groups)

    def duration_us(self, run: Run, work: Work) -> float:
        """How long a work takes by itself on this device."""
        if not self.takes_part(work):
            return 0.0
        body = run.bodies.get(work.number)
        return work.price.us if body is None else body.elapsed[self.device]

    def _make(self, run: Run) -> Account:
        program, own = run.program, self._own(run)
        parts = [
            (self.of(part), times) for ran in run.called.values() for part, times in ran
        ]
        streams = dict(own.streams)
        for part, times in parts:
            for stream, busy in part.streams.items():
                streams[stream] = streams.get(stream, 0.0) + busy * times
        lane_us = sequential_sum(program.costs_us) + own.synchronous_us
        in_order_us = lane_us + sequential_sum(p.bound.us * n for p, n in parts)
        lane = self._lane_name(run, in_order_us, own.synchronous_us)
        closed = not program.hands_over and all(p.is_closed for p, _ in parts)
        certain = all(p.is_certain for p, _ in parts) and not any(
            isinstance(item, Call) and item.probabilities for item in program.items
        )
        found = [lane_bound(in_order_us, lane)]
        queues = self.queueing and certain
        if queues and (closed or run is self.entry):
            found += [stream_bound(us, str(s)) for s, us in sorted(streams.items())]
        found.append(chain_bound(self._critical_path(run)))
        step = run.elapsed[self.device]
        bound = the_greatest(found)
        if queues and bound.us < step * (1.0 - _ROUNDING):
            section = self._section_bound(run)
            if section is not None:
                bound = the_greatest([*found, section])
        serial = (
            lane_us
            + sequential_sum(own.streams.values())
            + sequential_sum(p.serial_us * n for p, n in parts)
        )
        return Account(
            step_us=step,
            compute_us=run.compute_on(self.device),
            exposed_us=own.exposed_us
            + sequential_sum(p.exposed_us * n for p, n in parts),
            other_exposed_us=own.other_exposed_us
            + sequential_sum(p.other_exposed_us * n for p, n in parts),
            communication_us=own.communication_us
            + sequential_sum(p.communication_us * n for p, n in parts),
            serial_us=_or_step(serial, step),
            bound=replace(bound, us=_or_step(bound.us, step)),
            streams=streams,
            is_closed=closed,
            is_certain=certain,
        )

    def _own(self, run: Run) -> _Own:
        """Sums over the works of one run, without those of what it calls."""
        own = _Own()
        for work in run.program.works:
            duration = self.duration_us(run, work)
            waits = run.waits.get(work.number)
            waited = 0.0 if waits is None else waits[self.device]
            own.exposed_us += waited
            if work.kind in COMMUNICATION:
                own.communication_us += duration
            else:
                own.other_exposed_us += waited
            if work.stream is None:
                own.synchronous_us += duration
            else:
                own.streams[work.stream] = own.streams.get(work.stream, 0.0) + duration
        own.exposed_us += sequential_sum(
            wait[self.device] for wait in run.outer_waits.values()
        )
        if run is self.entry:
            # A work that nobody waits for still has to end before the step does.
            own.exposed_us += run.elapsed[self.device] - run.lane_end[self.device]
        return own

    def _section_bound(self, run: Run) -> Bound | None:
        """What cannot overlap a stream, or has to run between a head and a tail."""
        program = run.program
        pairs, names = self._pairs(run)
        if not pairs:
            return None
        lane = list(program.costs_us)
        for work in program.works:
            if work.stream is None:
                lane[work.position] += self.duration_us(run, work)
        room = {k: us for k, us in enumerate(lane) if us > 0.0}
        rooms = dict.fromkeys(pairs, room)
        called = run.called if any(run.called.values()) else {}
        for k, ran in called.items():
            lane[k] += sequential_sum(self.of(part).bound.us * n for part, n in ran)
        for number, stream in enumerate(names):
            if called and number in pairs:
                own = {k: self._room_us(ran, stream) for k, ran in called.items()}
                rooms[number] = room | own
        key = (
            program,
            run is self.entry,
            tuple(lane[k] for k in called),
            tuple(rooms[number].get(k, 0.0) for number in pairs for k in called),
            tuple(pair.us for own in pairs.values() for pair in own),
        )
        section = self._sections.get(key)
        if section is None:
            lanes = Lanes(self._overlaps_of(program, pairs), lane, rooms, pairs)
            section = self._sections[key] = longest_section(lanes)
        return bound_of(section, [str(stream) for stream in names], bool(run.called))

    def _pairs(self, run: Run) -> tuple[dict[int, list[Pair]], list[Stream]]:
        """The pairs of each stream, by its number, and the streams."""
        program = run.program
        place = {i: k for k, i in enumerate(program.order)} if program.works else {}
        by_stream: dict[Stream, list[Pair]] = {}
        for work in program.works:
            us = self.duration_us(run, work)
            # The entry waits at its end for what nobody else waits for.
            if work.stream is None or us <= 0.0:
                continue
            if work.done is None and run is not self.entry:
                continue
            done = -1 if work.done is None else place[work.done]
            pair = Pair(work.position, done, us)
            by_stream.setdefault(work.stream, []).append(pair)
        names = sorted(by_stream)
        return {number: by_stream[stream] for number, stream in enumerate(names)}, names

    def _overlaps_of(
        self, program: Program, pairs: Mapping[int, Sequence[Pair]]
    ) -> Overlaps:
        overlaps = self._overlaps.get(program)
        if overlaps is None:
            place = {i: k for k, i in enumerate(program.order)}
            preds = [
                [place[p] for p in (*i.operands, *i.control_predecessors)]
                for i in program.order
            ]
            every = [pair for own in pairs.values() for pair in own]
            overlaps = self._overlaps[program] = Overlaps(preds, every)
        return overlaps

    def _room_us(self, ran: Iterable[tuple[Run, float]], stream: Stream) -> float:
        """How long a caller leaves a stream to others: while it does not use it."""
        room = 0.0
        for run, times in ran:
            part = self.of(run)
            own = part.streams.get(stream, 0.0) if part.is_closed else 0.0
            room += max(0.0, part.bound.us - own) * times
        return room

    def _lane_name(self, run: Run, in_order_us: float, sync_us: float) -> str:
        """What the compute lane's own bound consists of: compute, and what else."""
        others = [(sync_us, "synchronous collectives")]
        for ran in run.called.values():
            for part, times in ran:
                inner = self.of(part)
                name = _located(inner.bound.by, part.program.computation.name)
                others.append(((inner.bound.us - inner.compute_us) * times, name))
        most, name = max(others, key=lambda other: other[0])
        return f"{COMPUTE_AND}{name}" if most > _TOLD * in_order_us else "compute"

    def _critical_path(self, run: Run) -> float:
        """The longest chain through operands and control edges, us."""
        program = run.program
        added = dict(zip(program.order, program.costs_us, strict=True))
        for position, ran in run.called.items():
            added[program.order[position]] = sequential_sum(
                self.of(part).bound.us * times for part, times in ran
            )
        in_flight: dict[Instruction, tuple[Instruction, float]] = {}
        for work in program.works:
            duration = self.duration_us(run, work)
            if work.stream is None:
                added[work.instruction] = duration
            elif work.done is not None:
                in_flight[work.done] = (work.instruction, duration)
        ends: dict[Instruction, float] = {}
        for instruction, cost in added.items():
            begin = 0.0
            for before in instruction.operands:
                end = ends[before]
                if end > begin:
                    begin = end
            for before in instruction.control_predecessors:
                begin = max(begin, ends[before])
            if instruction in in_flight:
                start, duration = in_flight[instruction]
                begin = max(begin, ends[start] + duration)
            ends[instruction] = begin + cost
        return max(ends.values(), default=0.0)


def _or_step(us: float, step_us: float) -> float:
    """A sum of the same times in another order: the step, if only rounding differs."""
    return step_us if math.isclose(us, step_us, rel_tol=_ROUNDING) else us


def executions(entry: Run) -> dict[Run, tuple[float, float]]:
    """Per run: how often a step runs it, and how often on the compute lane."""
    counts: dict[Run, tuple[float, float]] = {}
    for run in _callers_first(entry):
        often, on_lane = counts.get(run, (1.0, 1.0) if run is entry else (0.0, 0.0))
        counts[run] = (often, on_lane)
        for ran in run.called.values():
            for part, times in ran:
                had = counts.get(part, (0.0, 0.0))
                counts[part] = (had[0] + often * times, had[1] + on_lane * times)
        for body in run.bodies.values():
            had = counts.get(body, (0.0, 0.0))
            counts[body] = (had[0] + often, had[1])
    return counts


def _callers_first(entry: Run) -> list[Run]:
    """All runs, each after every run that called it."""
    order: list[Run] = []
    seen: set[Run] = set()
    stack: list[tuple[Run, bool]] = [(entry, False)]
    while stack:
        run, is_left = stack.pop()
        if is_left:
            order.append(run)
            continue
        if run in seen:
            continue
        seen.add(run)
        stack.append((run, True))
        inner = [part for ran in run.called.values() for part, _ in ran]
        stack += [(part, False) for part in (*inner, *run.bodies.values())]
    return order[::-1]


def _located(bound_by: str, computation: str) -> str:
    """A callee's bound for its caller: what it is, and in which callee."""
    what = bound_by.removeprefix(COMPUTE_AND)
    return what if " in %" in what else f"{what} in %{computation}"
