"""A bound for every structure: as if nothing had to wait for anything it can avoid.

    the greatest of
        compute          all that the compute lane computes
        traffic          per link: all bytes, at the best rate that the model has
        latencies        the longest chain of operations that depend on each other, each
                         with the latency that it has however little it moves

No order, combining, splitting or pipelining over iterations changes what is computed,
which bytes move, or which operation needs the result of which. The argument is in
docs/simulator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.async_form import done_of, half
from hlo_passes.scheduler.estimators.base import COARSE, Estimator
from hlo_passes.scheduler.estimators.ring import RingEstimator, ring_collective_ticks
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.latency.collectives import (
    Collective,
    describe,
    describe_transfer,
)
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.network import NotEstimated
from hlo_passes.scheduler.simulation.rows import groups_text, message_bytes
from hlo_passes.scheduler.simulation.timeline_data import AnyStructureBound
from hlo_passes.scheduler.sums import sequential_sum

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.scheduler.simulation.accounts import Accounts
    from hlo_passes.scheduler.simulation.engine import Run
    from hlo_passes.scheduler.simulation.program import Work
    from hlo_passes.scheduler.simulation.surroundings import Surroundings

#: Messages at which a model is asked. Tables have a rate for each power of two from
#: 1 KiB to 1 GiB; formulas are at their best with the last one, at their least latency
#: with the first one.
_SIZES: Final = (1, *(1 << k for k in range(10, 31)), 1 << 50)
#: A rate at the last size is this close to that of an endless message.
_SLACK: Final = 1e-6
_FORMS: Final = ("start", "sync")
_CARRIED: Final = ("collective", "transfer")


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least that a model asks for: per byte, and for a message without bytes."""

    us_per_byte: float
    latency_us: float


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a work carries; without a floor only its own time is known."""

    link: str
    bytes: int
    floor: _Floor | None


_Model = Callable[[Collective], float]


@dataclass(slots=True)
class AnyStructure:
    """Finds the bound of one step.

    Attributes:
        estimator: that gave the prices.
        surroundings: of the module.
        accounts: of the step's runs.
        lanes: works that run at once on one link without slowing down; 0 for any
            number, where nothing queues.
    """

    estimator: Estimator
    surroundings: Surroundings
    accounts: Accounts
    lanes: int
    _floors: dict[tuple[str, ...], _Floor | None] = field(default_factory=dict)
    _carried: dict[Work, _Carried] = field(default_factory=dict)
    _chains: dict[Run, float] = field(default_factory=dict)
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def bound(
        self, entry: Run, counts: Mapping[Run, tuple[float, float]]
    ) -> AnyStructureBound:
        """The bound of a step.

        Args:
            entry: the run of the whole step.
            counts: per run, how often it occurs, and how often on the compute lane.
        """
        account = self.accounts.of(entry)
        # Without what it loses beside communication.
        found = [(entry.compute_us, "compute")]
        self._measure_rates(counts)
        traffic: dict[str, list[float]] = {}
        for run, (often, _) in counts.items():
            for work in run.program.works:
                if work.kind in _CARRIED:
                    link = self._of(work).link
                    us = self._traffic_us(run, work)
                    traffic.setdefault(link, []).append(us * often)
        for link, parts in sorted(traffic.items()):
            us = max(parts) if not self.lanes else sequential_sum(parts) / self.lanes
            found.append((us, f"{link} traffic"))
        found.append((self._chain_us(entry), "latencies"))
        most, name = max(found, key=lambda bound: bound[0])
        # This structure is one of all: what bounds it bounds them all.
        if most >= account.bound.us:
            return AnyStructureBound(account.bound.us, account.bound.by)
        return AnyStructureBound(most, name)

    # -- one operation ------------------------------------------------------

    def _traffic_us(self, run: Run, work: Work) -> float:
        """The least time for which a work keeps its link busy, in any structure."""
        whole = self.accounts.duration_us(run, work)
        if _is_constant(work):
            return 0.0  # all of them together may take no longer than one
        if work.opcode == "recv":
            return 0.0  # its send counts, and may run at the same time
        carried = self._of(work)
        if carried.floor is not None:
            return min(whole, carried.bytes * carried.floor.us_per_byte)
        rate = self._rates.get((work.opcode, carried.link), 0.0)
        return min(whole, carried.bytes * rate)

    def _latency_us(self, run: Run, work: Work) -> float:
        """The least latency of a work, however little it moves."""
        whole = self.accounts.duration_us(run, work)
        if work.kind not in _CARRIED:
            return 0.0
        if _is_constant(work):
            return whole
        floor = self._of(work).floor
        return 0.0 if floor is None else min(whole, floor.latency_us)

    def _measure_rates(self, counts: Mapping[Run, tuple[float, float]]) -> None:
        """Of what only has a measured time: the best rate of each kind, us per byte."""
        for run in counts:
            for work in run.program.works:
                whole = self.accounts.duration_us(run, work)
                if work.kind not in _CARRIED or not whole:
                    continue
                carried = self._of(work)
                if carried.floor is None and carried.bytes:
                    kind = work.opcode, carried.link
                    rate = whole / carried.bytes
                    self._rates[kind] = min(rate, self._rates.get(kind, rate))

    def _of(self, work: Work) -> _Carried:
        """What a work carries over which link, found once."""
        known = self._carried.get(work)
        if known is None:
            start = work.instruction
            link = self.surroundings.channel(start)
            model = _model_of(self.estimator, work.price.model)
            collective = None if model is None else _described(start)
            if model is None or collective is None:
                size = message_bytes(start, done_of(start) if half(start) else None)
                known = _Carried(link, size, None)
            else:
                floor = self._floor(work, collective, model)
                known = _Carried(link, collective.transferred_bytes, floor)
            self._carried[work] = known
        return known

    def _floor(
        self, work: Work, collective: Collective, model: _Model
    ) -> _Floor | None:
        """What the model asks at least of operations of one kind on the same groups."""
        key = (
            collective.kind,
            groups_text(work.instruction),
            collective.group_mode,
            collective.element_type,
            collective.kernel_strategy,
            work.price.model,
        )
        if key not in self._floors:
            self._floors[key] = _floor_of(collective, model)
        return self._floors[key]

    # -- chains -------------------------------------------------------------

    def _chain_us(self, run: Run) -> float:
        """The longest chain of latencies in a run; a loop counts one iteration."""
        known = self._chains.get(run)
        if known is not None:
            return known
        program = run.program
        added: dict[Instruction, float] = {}
        for position, ran in run.called.items():
            most = max((self._chain_us(part) for part, n in ran if n >= 1.0), default=0)
            added[program.order[position]] = most
        for work in program.works:
            added[work.done or work.instruction] = self._latency_us(run, work)
        ends: dict[Instruction, float] = {}
        for instruction in program.order:
            begin = 0.0
            for before in instruction.operands:
                begin = max(begin, ends[before])
            for before in instruction.control_predecessors:
                begin = max(begin, ends[before])
            ends[instruction] = begin + added.get(instruction, 0.0)
        self._chains[run] = max(ends.values())
        return self._chains[run]


def _model_of(estimator: Estimator, name: str) -> _Model | None:
    """Times of described collectives, from the part of a stack that gave a price."""
    if isinstance(estimator, EstimatorStack):
        found = (_model_of(part, name) for part in estimator.estimators)
        return next((model for model in found if model is not None), None)
    family = name.partition("/")[0]
    if isinstance(estimator, SolEstimator) and family in ("sol", "extended"):
        return lambda collective: estimator.model.estimate(collective).us
    if isinstance(estimator, RingEstimator) and name == "ring/formula":
        return lambda c: us_of_ticks(ring_collective_ticks(c, estimator.target))
    return None


def _floor_of(collective: Collective, model: _Model) -> _Floor | None:
    """The best rate over all sizes and forms, and the latency of the least message."""
    rates: list[float] = []
    latencies: list[float] = []
    for form in _FORMS:
        for size in _SIZES:
            # At least every byte that goes over the network is read once.
            asked = replace(
                collective, form=form, transferred_bytes=size, accessed_bytes=size
            )
            try:
                us = model(asked)
            except NotEstimated:
                continue
            rates.append(us / size)
            latencies.append(us)
    if not rates:
        return None
    return _Floor(min(rates) * (1.0 - _SLACK), min(latencies))


def _described(start: Instruction) -> Collective | None:
    try:
        return describe(start) or describe_transfer(start)
    except NotEstimated:
        return None


def _is_constant(work: Work) -> bool:
    """Whether its price does not depend on what it moves."""
    return work.price.model in COARSE or work.price.model == "ring/constant"
