"""Streams whose works slow each other down on the links that they share.

    two all-gathers over NVLink, 100 us each, on two streams at once: both take 200 us
    one over NVLink and one over the network: 100 us each

The model, off by default: the work at the front of its stream runs at speed 1/n, where
n works run on the same link at that moment: NVLink inside a partition, the network
between partitions, the host link for copies to and from the host. Works without a link
(device copies, asynchronous compute) run at full speed. An estimator's latency is
taken as the time at full speed. One device represents all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.lanes import RESOLUTION_US, Signature, Ticket
from hlo_passes.scheduler.simulation.program import Work
from hlo_passes.scheduler.sums import sequential_sum

#: Rounding may leave this share of a step of a work that has run.
_SLIVER: Final = 1e-12


@dataclass(slots=True)
class _Job:
    ticket: Ticket
    remaining_us: float


@dataclass(slots=True)
class SharedLinkLanes:
    """First in, first out on every stream; the fronts of all streams share links."""

    time_us: float = 0.0
    queues: dict[Stream, deque[_Job]] = field(default_factory=dict)
    last: dict[Stream, Work] = field(default_factory=dict)

    def issue(self, work: Work, duration: float, now: Sequence[float]) -> Ticket:
        """Put a work at the end of its stream."""
        stream = work.stream
        assert stream is not None
        self._advance(now[0])
        queue = self.queues.setdefault(stream, deque())
        ticket = Ticket(work, [now[0]], [now[0]], [now[0]])
        if queue:
            ticket.behind = self.last[stream]
        self.last[stream] = work
        if duration > 0.0 or queue:
            queue.append(_Job(ticket, duration))
        return ticket

    def finish(self, ticket: Ticket) -> list[float]:
        """Advance time until the work has run."""
        queue = self.queues.get(ticket.work.stream) if ticket.work.stream else None
        while queue and any(job.ticket is ticket for job in queue):
            self._step(None)
        return ticket.end

    def signature(self, now: Sequence[float]) -> Signature:
        """What every stream still has to run."""
        self._advance(now[0])
        return tuple(
            (stream.kind, stream.number, tuple(job.remaining_us for job in queue))
            for stream, queue in sorted(self.queues.items())
            if sequential_sum(job.remaining_us for job in queue) > RESOLUTION_US
        )

    def shift(self, now: Sequence[float], by: float) -> None:
        """Advance time without running anything."""
        self._advance(now[0])
        self.time_us += by

    def drained_at(self, now: Sequence[float]) -> list[float]:
        """Let everything run."""
        while any(self.queues.values()):
            self._step(None)
        return [max(now[0], self.time_us)]

    def _advance(self, until_us: float) -> None:
        while self.time_us < until_us:
            if not any(self.queues.values()):
                self.time_us = until_us
                return
            self._step(until_us)

    def _step(self, until_us: float | None) -> None:
        """Run to the next end of a work, or to `until_us` if that comes first."""
        fronts = [queue[0] for queue in self.queues.values() if queue]
        users: dict[str, int] = {}
        for job in fronts:
            link = job.ticket.work.link
            users[link] = users.get(link, 0) + 1
        slow = [users[link] if (link := j.ticket.work.link) else 1 for j in fronts]
        step = min(j.remaining_us * n for j, n in zip(fronts, slow, strict=True))
        if until_us is not None and self.time_us + step > until_us:
            step = until_us - self.time_us
            self.time_us = until_us
        else:
            self.time_us += step
        for job, n in zip(fronts, slow, strict=True):
            # A work that ends now ends exactly; rounding must not leave a remainder.
            left = job.remaining_us - step / n
            job.remaining_us = left if left > _SLIVER * step else 0.0
        self._retire()

    def _retire(self) -> None:
        """Remove works that have run, and let the next ones begin."""
        for queue in self.queues.values():
            while queue and queue[0].remaining_us <= 0.0:
                queue.popleft().ticket.end = [self.time_us]
                if queue:
                    queue[0].ticket.begin = [self.time_us]
