"""When each instruction of one run takes place, on the clock of its computation.

placement.start_us(k), placement.end_us(k)     instruction at position k
placement.issue_us(work), .begin_us(work), .wait_us(work)
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from hlo_passes.ir.async_form import is_done
from hlo_passes.scheduler.simulation.engine import Run, slowed_end
from hlo_passes.scheduler.simulation.program import (
    Call,
    Compute,
    Done,
    Item,
    OuterDone,
    Start,
    Sync,
    Work,
)
from hlo_passes.scheduler.sums import sequential_sum

_NOTHING: Final = 0.0


class Placement:
    """The times of one run on one device.

    Attributes:
        run: what ran.
        device: whose clock is read.
        starts_us: per position, when the compute lane reaches the instruction.
        ends_us: per position, when the compute lane has finished it.
        busy_us: per position, how long it computes; for a call with all that it runs.
    """

    def __init__(self, run: Run, device: int) -> None:
        """Read the times of all instructions from the items."""
        self.run = run
        self.device = device
        self._origin = run.origin[device]
        self._handing = {work.position for work in run.program.works}
        self._done_positions = {
            item.work.number: item.position
            for item in run.program.items
            if isinstance(item, Done)
        }
        count = len(run.program.order)
        self.starts_us = [_NOTHING] * count
        self.ends_us = [_NOTHING] * count
        self.busy_us = list(run.program.costs_us)
        items = zip(run.program.items, run.item_starts, strict=True)
        for number, (item, times) in enumerate(items):
            if number in run.slow_until:
                assert isinstance(item, Compute), "nothing else is slowed down"
                self._place_slowed(item, times[device], run.slow_until[number][device])
            else:
                self._place(item, times[device] - self._origin)
        self._busy_before = [0.0, *accumulate(self.busy_us)]

    def _place(self, item: Item, at: float) -> None:
        starts, ends = self.starts_us, self.ends_us
        if isinstance(item, Compute):
            costs = self.run.program.costs_us
            for k in range(item.first, item.last + 1):
                starts[k] = at
                at += costs[k]
                ends[k] = at
            return
        if isinstance(item, Start):
            k, took = item.work.position, 0.0
        elif isinstance(item, Done):
            k, took = item.position, self.wait_us(item.work)
        elif isinstance(item, OuterDone):
            k = item.position
            took = self.run.outer_waits.get(k, self._zeros())[self.device]
        elif isinstance(item, Sync):
            k, took = item.work.position, self.wait_us(item.work)
        else:
            k, took = item.position, self.called_us(item)
            self.busy_us[k] = took
        # Under XLA's rules a start or done has already run as compute.
        if ends[k] <= starts[k]:
            starts[k] = at
        ends[k] = at + took

    def _place_slowed(self, item: Compute, at: float, until: float) -> None:
        """Place compute that runs beside communication."""
        for k in range(item.first, item.last + 1):
            cost = self.run.program.costs_us[k]
            end = slowed_end(at, cost, until, self.run.speed)
            self.starts_us[k] = at - self._origin
            self.ends_us[k] = end - self._origin
            self.busy_us[k] = end - at
            at = end

    def _zeros(self) -> list[float]:
        return [0.0] * (self.device + 1)

    def start_us(self, k: int) -> float:
        """When the compute lane reaches the instruction at position `k`."""
        return self.starts_us[k]

    def end_us(self, k: int) -> float:
        """When the compute lane has finished the instruction at position `k`."""
        return self.ends_us[k]

    def takes_time(self, k: int) -> bool:
        """Whether it takes time on the compute lane, or is a done."""
        instruction = self.run.program.order[k]
        return self.ends_us[k] > self.starts_us[k] or is_done(instruction)

    def hands_over(self, k: int) -> bool:
        """Whether it starts something asynchronous."""
        return k in self._handing

    def called_us(self, call: Call) -> float:
        """How long a caller takes with everything that it runs."""
        ran = self.run.called.get(call.position, ())
        return sequential_sum(part.elapsed[self.device] * times for part, times in ran)

    def wait_us(self, work: Work) -> float:
        """How long the compute lane waits for a work, or runs it itself."""
        return self.run.waits.get(work.number, self._zeros())[self.device]

    def issue_us(self, work: Work) -> float:
        """When the compute lane hands a work to its stream."""
        ticket = self.run.tickets[work.number]
        return ticket.issued[self.device] - self._origin

    def begin_us(self, work: Work) -> float:
        """When its stream begins to run it."""
        ticket = self.run.tickets[work.number]
        return ticket.begin[self.device] - self._origin

    def finish_us(self, work: Work) -> float:
        """When its stream has run it."""
        ticket = self.run.tickets[work.number]
        return ticket.end[self.device] - self._origin

    def asked_us(self, work: Work) -> float:
        """When the compute lane asks for its result; its end if nobody does."""
        asked = self.run.done_at.get(work.number)
        return (
            self.finish_us(work) if asked is None else asked[self.device] - self._origin
        )

    def busy_beside(self, work: Work) -> float:
        """Compute time between the start and the done of a work."""
        done_at = self._done_positions.get(work.number)
        return 0.0 if done_at is None else self.busy_between(work.position, done_at)

    def busy_between(self, first: int, last: int) -> float:
        """Compute time of the instructions strictly between two positions."""
        return max(0.0, self._busy_before[last] - self._busy_before[first + 1])
