"""The streams beside the compute lane: first in, first out.

    lanes = FifoLanes(devices=1)
    ticket = lanes.issue(work, ready=[10.0])
    ticket.begin, ticket.end          when its stream runs it, per device
    lanes.finish(ticket)              when it has run

Devices of one group begin together. A device outside all groups takes no part. If
nothing queues, a work begins as soon as it is issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.program import Work

#: Times closer than this, us, count as one when a loop is checked for repetition.
RESOLUTION_US: Final = 1e-6


@dataclass(slots=True)
class Ticket:
    """A work that was issued.

    Attributes:
        work: what runs.
        issued: when the compute lane issued it, per device, us.
        begin: when its stream begins to run it; known once it has begun.
        end: when it has run; known once it has ended.
        behind: what its stream ran last before it, None if the stream was idle.
    """

    work: Work
    issued: list[float]
    begin: list[float]
    end: list[float]
    behind: Work | None = None


Signature = tuple[tuple[str, int, tuple[float, ...]], ...]


class Lanes(Protocol):
    """Streams beside the compute lane."""

    def issue(self, work: Work, duration: float, now: Sequence[float]) -> Ticket:
        """Put a work on its stream."""
        ...

    def finish(self, ticket: Ticket) -> list[float]:
        """When a work has run, per device."""
        ...

    def signature(self, now: Sequence[float]) -> Signature:
        """What is in flight, relative to `now`; () when all streams are idle."""
        ...

    def shift(self, now: Sequence[float], by: float) -> None:
        """Move everything in flight at `now` into the future."""
        ...

    def drained_at(self, now: Sequence[float]) -> list[float]:
        """When everything that was issued has run, per device; not before `now`."""
        ...


@dataclass(slots=True)
class FifoLanes:
    """Streams that run one work after the other at full speed."""

    queueing: bool = True
    free: dict[Stream, list[float]] = field(default_factory=dict)
    last: dict[Stream, Work] = field(default_factory=dict)
    latest: list[float] = field(default_factory=list)

    def issue(self, work: Work, duration: float, now: Sequence[float]) -> Ticket:
        """Put a work at the end of its stream."""
        stream = work.stream
        assert stream is not None
        free = self.free.get(stream)
        ready, behind = list(now), None
        if self.queueing and free is not None:
            ready = [max(n, f) for n, f in zip(now, free, strict=True)]
            if ready != list(now):
                behind = self.last.get(stream)
        begin, end = meet(work.groups, ready, duration)
        if self.queueing:
            self.free[stream] = end if free is None else list(map(max, free, end))
            self.last[stream] = work
        self.latest = list(map(max, self.latest, end)) if self.latest else list(end)
        return Ticket(work, list(now), begin, end, behind)

    def finish(self, ticket: Ticket) -> list[float]:
        """The end, known since the work was issued."""
        return ticket.end

    def signature(self, now: Sequence[float]) -> Signature:
        """Streams that are busy beyond `now`, and for how long."""
        return tuple(
            (stream.kind, stream.number, rest)
            for stream, free in sorted(self.free.items())
            for rest in (_rest(free, now),)
            if any(rest)
        )

    def shift(self, now: Sequence[float], by: float) -> None:
        """Streams that are busy beyond `now` stay busy for longer."""
        for stream, free in self.free.items():
            self.free[stream] = [
                f + by if f > n else f for f, n in zip(free, now, strict=True)
            ]
        self.latest = [
            x + by if x > n else x for x, n in zip(self.latest, now, strict=False)
        ]

    def drained_at(self, now: Sequence[float]) -> list[float]:
        """When the last work ends."""
        return list(map(max, now, self.latest)) if self.latest else list(now)


def meet(
    groups: tuple[tuple[int, ...], ...] | None, ready: list[float], duration: float
) -> tuple[list[float], list[float]]:
    """(begin, end) of a work per device: groups begin when all their devices are ready.

    Without groups every device has the same clock, or all meet. Of pairs (a permute), a
    device waits for those that it exchanges with. A device outside
    all groups needs no time.
    """
    if groups is None:
        start = max(ready)
        begin = [start] * len(ready)
        return begin, [start + duration] * len(ready)
    begin = list(ready)
    busy = [False] * len(ready)
    for group in groups:
        start = max(ready[d] for d in group)
        for d in group:
            begin[d] = max(begin[d], start)
            busy[d] = True
    end = [b + duration if is_in else b for b, is_in in zip(begin, busy, strict=True)]
    return begin, end


def _rest(free: Sequence[float], now: Sequence[float]) -> tuple[float, ...]:
    return tuple(
        f - n if f - n > RESOLUTION_US else 0.0 for f, n in zip(free, now, strict=True)
    )
