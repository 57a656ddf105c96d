"""What a step takes with a collective as it is, and with permutes in its place.

    trials = ChainTrials(module, context.pricing, schedule)
    before = trials.step(module.clone(), names)
    before.exposed[key], before.hiding_us(key)
    after = trials.step(copy with permutes, names)

Both are scheduled by the same passes and simulated by the same rules. An analytical
model has no time for instructions that nobody has fused; what a rewrite adds around its
permutes is charged with the roofline of a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.analysis.reachability import ancestors
from hlo_passes.ir.async_form import done_of, half, is_collective
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import Estimator, is_constant
from hlo_passes.scheduler.estimators.choice import estimator_for
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.fusions.fused_graph import reshape_is_bitcast
from hlo_passes.scheduler.fusions.instruction_time import instruction_ticks
from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE, op_cycles
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    CollectiveRow,
    TimelineData,
)
from hlo_passes.scheduler.sums import sequential_sum

#: A collective by its computation and its name, before it is scheduled.
Key = tuple[str, str]
#: Frontend attribute by which a collective of a trial is found again.
_ID: Final = "collective_id"
#: What keeps the compute lane busy.
_WORK: Final = frozenset({"compute", "loop", "call", "conditional"})


@dataclass(frozen=True, slots=True)
class Step:
    """A scheduled and simulated step.

    Attributes:
        module: as scheduled.
        timeline: of it.
        rows: of the collectives that were asked about; others never run.
    """

    module: Module
    timeline: TimelineData
    rows: Mapping[Key, CollectiveRow]
    _starts: Mapping[Key, Instruction]

    @property
    def us(self) -> float:
        """How long the step takes."""
        return self.timeline.step_time_us

    def hiding_us(self, key: Key) -> float:
        """Work of its computation that a collective neither needs nor feeds."""
        start = self._starts[key]
        done = done_of(start) or start
        bound = ancestors([start]) | _followers(done)
        names = {i.name for i in bound}
        return sequential_sum(
            span.end_us - span.start_us
            for span in self.timeline.spans
            if span.computation == key[0]
            and span.lane == COMPUTE_LANE
            and span.kind in _WORK
            and span.name not in names
        )


@dataclass(slots=True)
class ChainTrials:
    """Schedules and simulates copies of one module.

    Attributes:
        module: not changed; says which machine and which release.
        pricing: the machine and the source of costs.
        schedule: passes that schedule.
        charged: names of instructions that rewrites have added.
        spent: instructions that were scheduled, all copies together.
    """

    module: Module
    pricing: Pricing
    schedule: Pass
    charged: set[str] = field(default_factory=set)
    spent: int = 0
    machine: Topology = field(init=False)
    _on: Pricing = field(init=False)
    _estimator: Estimator = field(init=False)
    _rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        """Settle what a report would: machine, estimator and release."""
        found = reported(self.module, self.pricing)
        self._on = replace(found.on, xla=found.release.name)
        self._estimator, self.machine = estimator_for(self.module, found.on)
        self._rules = Rules(release=found.release)

    def step(
        self, copy: Module, keys: Iterable[Key], added: Collection[str] = ()
    ) -> Step:
        """Schedule and simulate a copy, which is used up.

        Args:
            copy: of the module, perhaps rewritten.
            keys: of collectives in it that the caller will ask about.
            added: names of instructions that are new in it.
        """
        self.spent += copy.instruction_count
        for computation, name in keys:
            _marked(copy, computation, name)
        self.schedule.run(copy, PassContext(self._on), Report())
        estimator = _Charging(
            self._estimator, self.charged | set(added), target(self._on.target)
        )
        timeline = simulate_with(
            copy, self._on.target, self.machine, estimator, self._rules
        )
        timeline = replace(
            timeline, footprint=timeline.footprint.on(target(self._on.target))
        )
        starts = {
            (c.name, i.name): ((c.name, i.frontend_attributes[_ID]), i)
            for c in copy.computations
            for i in c.instructions
            if i.mentions(_ID) and is_collective(i) and half(i) in ("", "start")
        }
        rows = {
            starts[row.computation, row.name][0]: row
            for row in timeline.collectives
            if (row.computation, row.name) in starts
        }
        return Step(copy, timeline, rows, dict(starts.values()))

    def price_us(self, collectives: Iterable[Instruction]) -> float:
        """What collectives take one after the other."""
        prices = Prices(self._estimator)
        return sequential_sum(prices.synchronous(i).us for i in collectives)


def _marked(copy: Module, computation: str, name: str) -> None:
    found = copy.computation(computation)
    collective = None if found is None else found.find(name)
    if collective is not None:
        collective.frontend_attributes = collective.frontend_attributes.with_value(
            _ID, name
        )


def _followers(instruction: Instruction) -> set[Instruction]:
    """All that waits for an instruction, itself included."""
    seen, work = {instruction}, [instruction]
    while work:
        current = work.pop()
        for user in (*current.users, *current.control_successors):
            if user not in seen:
                seen.add(user)
                work.append(user)
    return seen


@dataclass(frozen=True, slots=True)
class _Charging:
    """An estimator that charges what has no price, where a rewrite added it."""

    inner: Estimator
    charged: Collection[str]
    part: Target

    @property
    def name(self) -> str:
        """As the one that it asks."""
        return self.inner.name

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """Its answer, or the roofline of a kernel."""
        found = self.inner.node_cost(instruction)
        if instruction.name not in self.charged or is_collective(instruction):
            return found
        if found is not None and not is_constant(found.model):
            return found
        if instruction.opcode == "reshape" and reshape_is_bitcast(instruction):
            return found
        cycles = op_cycles(DEFAULT_OP_PROFILE)
        ticks = instruction_ticks(instruction, self.part, cycles)
        return Estimate(us_of_ticks(ticks), "roofline")

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """Its answer."""
        return self.inner.latency(start, user)
