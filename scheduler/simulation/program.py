"""A computation as the simulator runs it: what takes time, in scheduled order.

    %f = ... fusion(...)             Compute(cost)    a whole run of these is one item
    %s = ... all-gather-start(...)   Start(work)      the stream receives it
    %d = ... all-gather-done(%s)     Done(work)       the compute lane waits for it
    %r = ... all-reduce(...)         Sync(work)       the compute lane runs it
    %w = ... while(...)              Call(bodies, trip count)

A collective that XLA:TPU cut into fusions is a Start and a Done as well.

A `Work` is one asynchronous operation or synchronous collective with its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    done_of,
    is_transfer,
    start_of,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency.collectives import fused_collective
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.passes.send_recv import owner_of_transfer
from hlo_passes.scheduler.passes.stream_values import Stream, runs_synchronously
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.surroundings import Surroundings, WorkKind
from hlo_passes.scheduler.tpu.continuations import Continuations

#: Kinds of work that communicate.
COMMUNICATION: Final = ("collective", "transfer")


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One asynchronous operation, or a synchronous collective.

    Attributes:
        number: place among the works of its computation.
        position: of the start in the computation's order.
        instruction: the start, or the collective itself.
        done: its done in the same computation, else None.
        kind: what it is.
        opcode: the operation without start and done.
        stream: where it runs; None on the compute lane.
        price: how long it takes by itself; if it runs a computation, see `body`.
        body: the computation that an asynchronous call runs, else None.
        groups: devices that work together; None when all take part alike.
        link: the link that it shares with others, '' for none.
        owner: the send or recv that a pipelined transfer belongs to, else itself.
    """

    number: int
    position: int
    instruction: Instruction
    done: Instruction | None
    kind: WorkKind
    opcode: str
    stream: Stream | None
    price: Estimate
    body: Computation | None
    groups: tuple[tuple[int, ...], ...] | None
    link: str
    owner: Instruction


@dataclass(frozen=True, slots=True)
class Compute:
    """Instructions `first` to `last` run one after the other on the compute lane."""

    first: int
    last: int
    cost_us: float


@dataclass(frozen=True, slots=True)
class Start:
    """The compute lane hands a work to its stream."""

    work: Work


@dataclass(frozen=True, slots=True)
class Done:
    """The compute lane waits until a work of this computation has run."""

    work: Work
    position: int


@dataclass(frozen=True, slots=True)
class OuterDone:
    """The compute lane waits for what an earlier iteration or the caller started."""

    owner: Instruction
    position: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The compute lane runs a collective itself."""

    work: Work


@dataclass(frozen=True, slots=True)
class Call:
    """The compute lane runs computations.

    Attributes:
        position: of the caller.
        callees: the loop's body, the branches, the called computation.
        trip_count: iterations; 1 for anything but a loop.
        probabilities: of the branches; () if the most expensive one runs.
    """

    position: int
    callees: tuple[Computation, ...]
    trip_count: int
    probabilities: tuple[float, ...]


Item = Compute | Start | Done | OuterDone | Sync | Call


class _Silent:
    """An asynchronous half that does nothing by itself and costs nothing."""


_SILENT: Final = _Silent()


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A computation, ready to run.

    Attributes:
        computation: whose program this is.
        order: its instructions as scheduled.
        costs_us: per instruction, time on the compute lane; 0 for calls and for
            asynchronous instructions.
        items: what happens, in order.
        works: by number.
        hands_over: whether it leaves something in flight at its end by design.
        whole: places of loops, branches and calls that compute without a look inside.
    """

    computation: Computation
    order: tuple[Instruction, ...]
    costs_us: list[float]
    items: list[Item]
    works: list[Work]
    hands_over: bool
    whole: frozenset[int] = frozenset()


@dataclass(slots=True)
class ProgramBuilder:
    """Makes programs of the computations of one module, each once."""

    prices: Prices
    surroundings: Surroundings
    rules: Rules
    _programs: dict[Computation, Program] = field(default_factory=dict)
    #: Of the computation that is being read.
    _cut: Continuations = field(default_factory=Continuations)
    #: What computations take that have no costs themselves, us.
    _beside: dict[Computation, float] = field(default_factory=dict)
    #: Counts the starts of XLA's statistic; no setting changes that.
    _tracker: AsyncTracker = field(
        default_factory=lambda: make_tracker(SchedulerSettings())
    )

    def of(self, computation: Computation) -> Program:
        """The program of a computation."""
        if computation not in self._programs:
            self._programs[computation] = self._build(computation)
        return self._programs[computation]

    def _build(self, computation: Computation) -> Program:
        order = computation.instructions
        self._cut = self.surroundings.continuations(computation)
        costs = [0.0] * len(order)
        items: list[Item] = []
        works: dict[Instruction, Work] = {}
        # What has no cost of its own is counted at the beginning, as one piece.
        beside = self._beside.get(computation, 0.0)
        run_from, run_us = 0, beside
        costs[0] = beside
        for k, instruction in enumerate(order):
            item = self._item(k, instruction, works)
            cut = instruction in self._cut
            counts = item is None or cut or self.rules.xla_statistic
            if counts:
                own = 0.0 if beside else self.prices.node(instruction)
                costs[k] += own
                run_us += own
            if item is None or isinstance(item, _Silent):
                continue
            # Under XLA's rules a start or done costs time first, then has its effect;
            # a fusion that begins or ends a collective may compute something, too.
            end = k + 1 if counts or (run_us and k == run_from) else k
            if end > run_from:
                items.append(Compute(run_from, end - 1, run_us))
            items.append(item)
            run_from, run_us = k + 1, 0.0
        if run_from < len(order):
            items.append(Compute(run_from, len(order) - 1, run_us))
        return Program(
            computation,
            order,
            costs,
            items,
            list(works.values()),
            any(w.stream is not None and w.done is None for w in works.values()),
            frozenset(k for k, i in enumerate(order) if i in self.prices.whole),
        )

    def _item(
        self, k: int, instruction: Instruction, works: dict[Instruction, Work]
    ) -> Item | _Silent | None:
        """What an instruction does besides computing; None if it only computes."""
        row = opcodes.facts(instruction.opcode)
        if row.calls == "control-flow":
            if self.rules.xla_statistic or self.prices.has_whole_loop(instruction):
                return None
            beside = self.prices.unpriced_beside(
                instruction, self.surroundings.trip_count
            )
            if beside:
                self._beside[instruction.called_computations[0]] = beside
            return self._call(k, instruction)
        if row.half == "start":
            return self._start(k, instruction, works)
        if row.half == "update":
            return _SILENT
        if row.half == "done":
            return self._done(k, instruction, works)
        if self.rules.xla_statistic:
            return None
        if instruction in self._cut:
            return self._half_of_cut(k, instruction, works)
        if instruction in self._cut.between:
            return None
        if row.is_collective or fused_collective(instruction) is not None:
            return self._synchronous(k, instruction, works)
        return None

    def _half_of_cut(
        self, k: int, instruction: Instruction, works: dict[Instruction, Work]
    ) -> Item | _Silent:
        """Of a collective that is fusions; one begun elsewhere runs at its end."""
        if instruction in self._cut.done_of:
            return self._start(k, instruction, works)
        if instruction in self._cut.start_of:
            return self._done(k, instruction, works)
        self.surroundings.cut_in_two += 1
        if self._cut.alone[instruction] == "start":
            return _SILENT
        price = self.prices.latency(instruction, instruction)
        return self._synchronous(k, instruction, works, price)

    def _call(self, k: int, instruction: Instruction) -> Call:
        callees = instruction.called_computations
        if instruction.opcode == "while":
            # XLA's order of callees: the body, then the condition, which is not run.
            trips = self.surroundings.trip_count(instruction)
            return Call(k, callees[:1], trips, ())
        shares = self.rules.branch_probabilities.get(instruction.name, ())
        if shares and len(shares) != len(callees):
            raise UsageError(
                f"%{instruction.name} has {len(callees)} branches, not {len(shares)}",
                code="U221",
                hint="give one probability for each branch",
            )
        return Call(k, callees, 1, shares)

    def _synchronous(
        self,
        k: int,
        instruction: Instruction,
        works: dict[Instruction, Work],
        price: Estimate | None = None,
    ) -> Sync:
        work = Work(
            number=len(works),
            position=k,
            instruction=instruction,
            done=None,
            kind="collective",
            opcode=self.surroundings.opcode(instruction),
            stream=None,
            price=price or self.prices.synchronous(instruction),
            body=None,
            groups=self.surroundings.groups(instruction),
            link=self.surroundings.link(instruction),
            owner=instruction,
        )
        works[instruction] = work
        return Sync(work)

    def _start(
        self, k: int, instruction: Instruction, works: dict[Instruction, Work]
    ) -> Item | _Silent:
        if self.rules.xla_statistic:
            if not self._tracker.is_supported_start(instruction):
                return _SILENT
        elif runs_synchronously(instruction):
            return self._synchronous(k, instruction, works)
        found = self._cut.done_of.get(instruction) or done_of(instruction)
        done = found if found and found.computation is instruction.computation else None
        kind = self.surroundings.kind(instruction)
        stream = self.surroundings.stream(instruction)
        body = None
        if not (self.rules.xla_statistic or self.prices.has_whole_call(instruction)):
            body = self.surroundings.body(instruction)
        is_network = kind in ("collective", "transfer")
        work = Work(
            number=len(works),
            position=k,
            instruction=instruction,
            done=done,
            kind=kind,
            opcode=self.surroundings.opcode(instruction),
            stream=stream,
            price=self.prices.latency(
                instruction, done or instruction, runs_body=body is not None
            ),
            body=body,
            groups=self.surroundings.groups(instruction) if is_network else None,
            link=self.surroundings.link(instruction),
            owner=owner_of_transfer(instruction)
            if is_transfer(instruction)
            else instruction,
        )
        works[instruction] = work
        return Start(work)

    def _done(
        self, k: int, instruction: Instruction, works: Mapping[Instruction, Work]
    ) -> Item | _Silent:
        start = owner = self._cut.start_of.get(instruction) or start_of(instruction)
        if is_transfer(instruction):
            owner = owner_of_transfer(instruction)
        work = works.get(start)
        if work is not None:
            return Done(work, k) if work.stream is not None else _SILENT
        return _SILENT if self.rules.xla_statistic else OuterDone(owner, k)
