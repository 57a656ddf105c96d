"""Runs programs: one event after the other, on the compute lane and the streams.

    now += cost                          Compute
    stream.issue(work, now)              Start
    now = max(now, work.end)             Done: the difference is exposed
    now += latency                       Sync: all of it is exposed
    now += iterations x body             Call

All devices run the same program. One clock is enough for all of them, unless a
collective leaves devices out; then each has its own clock, and groups meet.

An iteration that begins with idle streams is simulated once and multiplied. One that
begins while its streams are still busy (with work that the caller or the iteration
before issued) is simulated by itself, until the times repeat. A body that only computes
takes the same time with busy streams: if it is many runs, it is simulated once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.simulation.lanes import (
    RESOLUTION_US,
    FifoLanes,
    Lanes,
    Signature,
    Ticket,
    meet,
)
from hlo_passes.scheduler.simulation.program import (
    Call,
    Compute,
    Done,
    OuterDone,
    Program,
    ProgramBuilder,
    Start,
    Sync,
    Work,
)
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.shared_links import SharedLinkLanes
from hlo_passes.scheduler.sums import sequential_sum

#: Iterations that are simulated one by one before the time of the last is multiplied.
MOST_ITERATIONS: Final = 64
#: Runs of computations that a body may be before they are summarized.
_MANY_RUNS: Final = 4096


@dataclass(slots=True, eq=False)
class Run:
    """One execution of a program.

    Attributes:
        program: the program that ran.
        origin: when it began, per device, us.
        elapsed: how long it took, per device.
        lane_end: the same without works that nobody waits for (the entry waits for
            all).
        compute_us: how long it computed, including what it called.
        item_starts: per item, when it began, per device.
        tickets: by number of a work.
        waits: by number of a work, how long the compute lane waited for it or ran it.
        outer_waits: by position of a done, how long it waited for works of other runs.
        done_at: by number of a work, when the compute lane asked for its result.
        called: by position of a caller, what it ran, how often (or how probably), and
            how long that took all together.
        bodies: by number of a work that runs a computation, its run.
        leaves_idle: whether nothing was in flight at the end.
    """

    program: Program
    origin: list[float]
    elapsed: list[float] = field(default_factory=list)
    lane_end: list[float] = field(default_factory=list)
    compute_us: float = 0.0
    item_starts: list[list[float]] = field(default_factory=list)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    waits: dict[int, list[float]] = field(default_factory=dict)
    outer_waits: dict[int, list[float]] = field(default_factory=dict)
    done_at: dict[int, list[float]] = field(default_factory=dict)
    called: dict[int, list[tuple[Run, float]]] = field(default_factory=dict)
    bodies: dict[int, Run] = field(default_factory=dict)
    leaves_idle: bool = True


@dataclass(slots=True)
class _State:
    """Clocks and streams at one moment.

    `pending` holds the works that another computation or iteration waits for.
    """

    now: list[float]
    lanes: Lanes
    pending: dict[Instruction, Ticket] = field(default_factory=dict)

    def signature(self) -> tuple[Signature, tuple[tuple[str, float], ...], bool]:
        """What is in flight and how the clocks differ; see `is_idle`."""
        first = self.now[0]
        waiting = tuple(
            (owner.name, max(ticket.end) - first)
            for owner, ticket in self.pending.items()
            if any(e > n for e, n in zip(ticket.end, self.now, strict=True))
        )
        aligned = all(n == first for n in self.now)
        return self.lanes.signature(self.now), waiting, aligned

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight and all clocks agree."""
        return self.signature() == ((), (), True)


@dataclass(slots=True)
class Engine:
    """Runs the programs of one module under one set of rules."""

    builder: ProgramBuilder
    rules: Rules
    devices: int = 1
    _cold: dict[Computation, Run] = field(default_factory=dict)
    _runs: dict[Computation, float] = field(default_factory=dict)

    def cold(self, computation: Computation) -> Run:
        """A run that begins at 0 with idle streams; the same one every time."""
        known = self._cold.get(computation)
        if known is None:
            state = _State([0.0] * self.devices, self._lanes())
            known = self._run(computation, state)
            known.leaves_idle = state.is_idle
            self._cold[computation] = known
        return known

    def known_cold(self, computation: Computation) -> Run | None:
        """The run from idle streams, if it was needed before."""
        return self._cold.get(computation)

    def entry(self, computation: Computation) -> Run:
        """The whole step: a cold run that ends when everything in flight has ended."""
        state = _State([0.0] * self.devices, self._lanes())
        run = self._run(computation, state)
        run.elapsed = state.lanes.drained_at(state.now)
        self._cold[computation] = run
        return run

    def _lanes(self) -> Lanes:
        if self.rules.share_links:
            return SharedLinkLanes()
        return FifoLanes(self.rules.queueing)

    def _run(self, computation: Computation, state: _State) -> Run:
        program = self.builder.of(computation)
        run = Run(program, list(state.now))
        steps: dict[type, Callable[..., None]] = {
            Compute: self._compute,
            Start: self._start,
            Done: self._done,
            OuterDone: self._outer_done,
            Sync: self._sync,
            Call: self._call,
        }
        for item in program.items:
            run.item_starts.append(list(state.now))
            steps[type(item)](item, run, state)
        run.elapsed = [n - o for n, o in zip(state.now, run.origin, strict=True)]
        run.lane_end = run.elapsed
        return run

    def _compute(self, item: Compute, run: Run, state: _State) -> None:
        state.now = [n + item.cost_us for n in state.now]
        run.compute_us += item.cost_us

    def _start(self, item: Start, run: Run, state: _State) -> None:
        work = item.work
        now = state.now
        if self.rules.xla_statistic:
            # XLA keeps the time of a start as a whole number.
            now = [float(int(n)) for n in now]
        ticket = state.lanes.issue(work, self._duration(work, run), now)
        run.tickets[work.number] = ticket
        if work.done is None or work.owner is not work.instruction:
            # Another iteration or computation waits for it.
            state.pending[work.owner] = ticket

    def _duration(self, work: Work, run: Run) -> float:
        if work.body is None:
            return work.price.us
        body = run.bodies[work.number] = self.cold(work.body)
        return max(body.elapsed)

    def _done(self, item: Done, run: Run, state: _State) -> None:
        number = item.work.number
        end = state.lanes.finish(run.tickets[number])
        run.done_at[number] = state.now
        run.waits[number], state.now = _wait(state.now, end)

    def _outer_done(self, item: OuterDone, run: Run, state: _State) -> None:
        ticket = state.pending.pop(item.owner, None)
        if ticket is not None:
            end = state.lanes.finish(ticket)
            run.outer_waits[item.position], state.now = _wait(state.now, end)

    def _sync(self, item: Sync, run: Run, state: _State) -> None:
        work = item.work
        begin, end = meet(work.groups, state.now, work.price.us)
        run.tickets[work.number] = Ticket(work, state.now, begin, end)
        run.done_at[work.number] = state.now
        run.waits[work.number], state.now = _wait(state.now, end)

    # -- calls --------------------------------------------------------------

    def _call(self, item: Call, run: Run, state: _State) -> None:
        if len(item.callees) > 1 or item.probabilities:
            ran = self._conditional(item, state)
        else:
            ran = [
                part
                for callee in item.callees
                for part in self._loop(callee, item.trip_count, state)
            ]
        run.called[item.position] = ran
        run.compute_us += sequential_sum(part.compute_us * times for part, times in ran)

    def _loop(
        self, body: Computation, trips: int, state: _State
    ) -> list[tuple[Run, float]]:
        """Iterations of a body, and how many iterations each of them represents."""
        ran: list[tuple[Run, float]] = []
        before = None
        left = trips
        while left > 0:
            signature = state.signature()
            is_steady = before is not None and _alike(signature, before)
            if ran and (is_steady or len(ran) >= MOST_ITERATIONS):
                last, times = ran[-1]
                ran[-1] = (last, times + left)
                self._skip(state, [e * left for e in last.elapsed])
                return ran
            before = signature
            if (state.is_idle and self.cold(body).leaves_idle) or (
                self._computing_runs(body) > _MANY_RUNS
            ):
                cold = self.cold(body)
                ran.append((cold, float(left)))
                state.now = [
                    n + e * left for n, e in zip(state.now, cold.elapsed, strict=True)
                ]
                return ran
            ran.append((self._run(body, state), 1.0))
            left -= 1
        return ran

    def _computing_runs(self, computation: Computation) -> float:
        """Runs of computations in one run; 0 if anything in them does not compute."""
        known = self._runs.get(computation)
        if known is None:
            known = 1.0
            for item in self.builder.of(computation).items:
                if isinstance(item, Call):
                    inner = [self._computing_runs(callee) for callee in item.callees]
                    iterations = min(item.trip_count, MOST_ITERATIONS)
                    only_computes = known > 0.0 and min(inner) > 0.0
                    known = known + max(inner) * iterations if only_computes else 0.0
                elif not isinstance(item, Compute):
                    known = 0.0
            self._runs[computation] = known
        return known

    def _skip(self, state: _State, by: Sequence[float]) -> None:
        """Skip the iterations that leave everything as they found it."""
        now = state.now
        state.lanes.shift(now, max(by))
        for owner, ticket in state.pending.items():
            ahead = [e > n for e, n in zip(ticket.end, now, strict=True)]
            if any(ahead):
                end = [
                    e + b if is_ahead else e
                    for e, b, is_ahead in zip(ticket.end, by, ahead, strict=True)
                ]
                state.pending[owner] = replace(ticket, end=end)
        state.now = [n + b for n, b in zip(now, by, strict=True)]

    def _conditional(self, item: Call, state: _State) -> list[tuple[Run, float]]:
        """The branches that run: the most expensive one, or all of them in parts."""
        if not item.probabilities:
            costs = [max(self.cold(branch).elapsed) for branch in item.callees]
            costliest = item.callees[costs.index(max(costs))]
            return self._loop(costliest, 1, state)
        ran = [
            (self.cold(branch), share)
            for branch, share in zip(item.callees, item.probabilities, strict=True)
            if share > 0.0
        ]
        for part, share in ran:
            state.now = [
                n + e * share for n, e in zip(state.now, part.elapsed, strict=True)
            ]
        return ran


def _wait(now: list[float], end: list[float]) -> tuple[list[float], list[float]]:
    """(how long each device waits for `end`, its clock after that)."""
    after = [max(n, e) for n, e in zip(now, end, strict=True)]
    return [a - n for a, n in zip(after, now, strict=True)], after


def _alike(one: object, other: object) -> bool:
    """Whether two signatures differ by rounding only."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= RESOLUTION_US
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other
