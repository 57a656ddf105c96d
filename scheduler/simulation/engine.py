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

With contention the compute lane runs at 1 - contention of its speed while communication
is in flight; that which waits for other devices counts, since its kernel runs. (A body
of many runs that is simulated once is not slowed down.)
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
    COMMUNICATION,
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
from hlo_passes.scheduler.simulation.setting import PLAIN, Setting
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
        slow_until: by number of an item that computes, until when it is slowed down,
            per device.
        speed: of the compute lane while it is slowed down.
        lost_us: how much longer it computed for that, with what it called, per device.
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
    slow_until: dict[int, list[float]] = field(default_factory=dict)
    speed: float = 1.0
    lost_us: list[float] = field(default_factory=list)

    def compute_on(self, device: int) -> float:
        """How long a device computed, including what was called."""
        return self.compute_us + (self.lost_us[device] if self.lost_us else 0.0)

    def lose(self, us: Sequence[float], times: float = 1.0) -> None:
        """Count compute that took longer, per device; nothing if `us` is empty."""
        had = self.lost_us or [0.0] * len(us)
        self.lost_us = [h + u * times for h, u in zip(had, us, strict=False)]


@dataclass(slots=True)
class _State:
    """Clocks and streams at one moment.

    `pending` holds the works that another computation or iteration waits for.
    `slow_until` is when the last communication issued ends, where that slows compute.
    """

    now: list[float]
    lanes: Lanes
    pending: dict[Instruction, Ticket] = field(default_factory=dict)
    slow_until: list[float] = field(default_factory=list)

    def signature(
        self,
    ) -> tuple[Signature, tuple[tuple[str, float], ...], bool, tuple[float, ...]]:
        """What is in flight and how the clocks differ; see `is_idle`."""
        first = self.now[0]
        waiting = tuple(
            (owner.name, max(ticket.end) - first)
            for owner, ticket in self.pending.items()
            if any(e > n for e, n in zip(ticket.end, self.now, strict=True))
        )
        aligned = all(n == first for n in self.now)
        slow = tuple(
            max(0.0, until - n)
            for until, n in zip(self.slow_until, self.now, strict=False)
        )
        return (
            self.lanes.signature(self.now),
            waiting,
            aligned,
            slow if any(slow) else (),
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight and all clocks agree."""
        return self.signature() == ((), (), True, ())


@dataclass(slots=True)
class Engine:
    """Runs the programs of one module under one set of rules, in one setting."""

    builder: ProgramBuilder
    rules: Rules
    devices: int = 1
    setting: Setting = PLAIN
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
        run = Run(program, list(state.now), speed=1.0 - self.setting.contention)
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
        cost = item.cost_us * self.setting.compute
        until = state.slow_until
        if not until or all(u <= n for u, n in zip(until, state.now, strict=True)):
            state.now = [n + cost for n in state.now]
            run.compute_us += cost
            return
        before = state.now
        state.now = [
            slowed_end(n, cost, u, run.speed)
            for n, u in zip(before, until, strict=True)
        ]
        run.slow_until[len(run.item_starts) - 1] = until
        run.compute_us += cost
        run.lose([n - b - cost for n, b in zip(state.now, before, strict=True)])

    def _start(self, item: Start, run: Run, state: _State) -> None:
        work = item.work
        now = state.now
        if self.rules.xla_statistic:
            # XLA keeps the time of a start as a whole number.
            now = [float(int(n)) for n in now]
        ticket = state.lanes.issue(work, self._duration(work, run), now)
        run.tickets[work.number] = ticket
        if self.setting.contention and work.kind in COMMUNICATION:
            until = state.slow_until or now
            state.slow_until = list(map(max, until, ticket.end))
        if work.done is None or work.owner is not work.instruction:
            # Another iteration or computation waits for it.
            state.pending[work.owner] = ticket

    def _duration(self, work: Work, run: Run) -> float:
        if work.body is None:
            return self.price_us(work)
        body = run.bodies[work.number] = self.cold(work.body)
        return max(body.elapsed)

    def price_us(self, work: Work) -> float:
        """How long a work takes by itself, if it does not run a computation."""
        is_kernel = work.kind == "async"
        factor = self.setting.compute if is_kernel else self.setting.latency
        return work.price.us * factor

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
        begin, end = meet(work.groups, state.now, self.price_us(work))
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
        for part, times in ran:
            if part.lost_us:
                run.lose(part.lost_us, times)

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
        state.slow_until = [
            u + b if u > n else u
            for u, n, b in zip(state.slow_until, now, by, strict=False)
        ]
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


def slowed_end(begin: float, cost: float, until: float, speed: float) -> float:
    """When compute ends that begins then and is slowed down until a moment."""
    if begin >= until:
        return begin + cost
    slow_us = cost / speed
    if begin + slow_us <= until:
        return begin + slow_us
    return until + (cost - (until - begin) * speed)


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
