"""What a step takes with a collective as it is, and with permutes in its place.

    trials = ChainTrials(module, context.pricing, schedule)
    before = trials.step(module.clone(), keys)
    before.rows[key].exposed_us, before.hiding_us(key)
    after = trials.step(copy with permutes, keys, new)

Both are scheduled by the same passes and simulated by the same rules, twice: as
`simulate` does, and with prices that are fair to the collective. For XLA's table of
measured collectives knows no latency: below its smallest message a transfer costs next
to nothing, and between two sizes the smaller one may cost more. So a permute, and what
else is new, is charged what the most expensive one of at most its size takes, from
1 KiB on, and a collective what the cheapest one of at least its size takes. What a
rewrite adds around its permutes, for which an analytical model has no time before it is
fused, is charged with the roofline of a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.analysis.reachability import ancestors, descendants
from hlo_passes.ir.async_form import done_of, half, is_collective
from hlo_passes.ir.gpu_config import collective_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.constants import zeros
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import Estimator, is_constant
from hlo_passes.scheduler.estimators.choice import estimator_for
from hlo_passes.scheduler.estimators.fingerprint import Fingerprints
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.fusions.fused_graph import reshape_is_bitcast
from hlo_passes.scheduler.fusions.instruction_time import instruction_ticks
from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_time import NVLINK_KERNEL
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE, op_cycles
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    CollectiveRow,
    TimelineData,
)
from hlo_passes.scheduler.sums import sequential_sum

#: A collective by its computation and its name, before it is scheduled.
Key = tuple[str, str]
#: Shapes of operands, and of the result.
_Shapes = tuple[Sequence[Shape], Shape]
#: Why a change is not tried, in remarks.
SPENT: Final = "is not tried: the trials have used most-instructions up"
#: Frontend attribute by which a collective of a trial is found again.
_ID: Final = "collective_id"
_PERMUTE: Final = "collective-permute"
#: The smallest message of XLA's table.
_SMALLEST_BYTES: Final = 1024
#: The largest one that counts.
_LARGEST_BYTES: Final = 1 << 30
#: How much larger the collectives are that a collective is compared with.
_LARGER: Final = (2, 4, 8, 16, 32, 64)
#: What keeps the compute lane busy.
_WORK: Final = frozenset({"compute", "loop", "call", "conditional"})


@dataclass(frozen=True, slots=True)
class Step:
    """A scheduled and simulated step.

    Attributes:
        simulated_us: how long it takes by `simulate`.
        timeline: of it, with fair prices.
        rows: of the collectives that were asked about; others never run.
        starts: of these, in the scheduled module.
    """

    simulated_us: float
    timeline: TimelineData
    rows: Mapping[Key, CollectiveRow]
    starts: Mapping[Key, Instruction]

    @property
    def us(self) -> float:
        """How long the step takes, with fair prices."""
        return self.timeline.step_time_us

    def hiding_us(self, key: Key) -> float:
        """Work of its computation that a collective neither needs nor feeds."""
        start = self.starts[key]
        done = done_of(start) or start
        bound = ancestors([start]) | descendants([done])
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
        module: says which machine and which release.
        pricing: the machine and the source of costs.
        schedule: passes that schedule.
        reports: what steps are simulated with; `pricing` when not given.
        added: what rewrites of the module have added to it.
        spent: instructions that were scheduled, all copies together.
        asked_after_xla: whether the step after XLA's own passes is known.
        machine: that the module runs on.
    """

    module: Module
    pricing: Pricing
    schedule: Pass
    reports: Pricing | None = None
    added: set[Key] = field(default_factory=set)
    spent: int = 0
    asked_after_xla: bool = field(default=False, init=False)
    machine: Topology = field(init=False)
    _on: Pricing = field(init=False)
    _estimator: Estimator = field(init=False)
    _rules: Rules = field(init=False)
    _counted: tuple[tuple[Module, int], int] | None = None
    _prints: Fingerprints = field(default_factory=Fingerprints)
    _prices: dict[Hashable, Estimate] = field(default_factory=dict)
    _least: dict[Hashable, float] = field(default_factory=dict)
    _fair: dict[tuple[object, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Settle what a report would: machine, estimator and release."""
        found = reported(self.module, self.reports or self.pricing)
        self._on = replace(found.on, xla=found.release.name)
        self._estimator, self.machine = estimator_for(self.module, found.on)
        self._rules = Rules(release=found.release)

    def is_spent(self, most_instructions: int, *, after_xla: bool = False) -> bool:
        """Whether one more change would schedule more than that, all together.

        The first one is compared with the module as it is, which is scheduled too.

        Args:
            most_instructions: that may be scheduled.
            after_xla: whether a change that pays is also scheduled after XLA's passes.
        """
        steps = 1 if self.spent else 2
        if after_xla:
            steps += 1 if self.asked_after_xla else 2
        # Passes ask this for each place that they might change.
        state = self.module, self.module.edits
        if self._counted is None or self._counted[0] != state:
            self._counted = state, self.module.instruction_count
        return self.spent + steps * self._counted[1] > most_instructions

    def step(
        self, copy: Module, keys: Iterable[Key], new: Iterable[Instruction] = ()
    ) -> Step:
        """Schedule and simulate a copy, which is used up.

        Args:
            copy: of the module, perhaps rewritten.
            keys: of collectives in it that the caller will ask about.
            new: what has been added to the copy alone.
        """
        self.spent += copy.instruction_count
        added = self.added | set(map(key_of, new))
        fair: dict[Key, _Fair] = {}
        collectives = collectives_by_key(copy)
        for key in (*keys, *sorted(added)):
            collective = collectives.get(key)
            if collective is not None:
                is_new = key in added or collective.opcode == _PERMUTE
                fair[key] = _Fair(self.fair_us(collective, is_new=is_new), is_new)
                marked = collective.frontend_attributes.with_value(_ID, key[1])
                collective.frontend_attributes = marked
        # A user schedules by the pricing given; a report's knows more GPUs.
        self.schedule.run(copy, PassContext(self.pricing), Report())
        starts = {
            key_of(i): ((c.name, i.frontend_attributes[_ID]), i)
            for c in copy.computations
            for i in c.instructions
            if i.mentions(_ID) and is_collective(i) and half(i) in ("", "start")
            # What a start wraps has the attribute, too.
            if (c.name, i.frontend_attributes[_ID]) in fair
        }
        prices = {at: fair[key] for at, (key, _) in starts.items()}
        part = target(self._on.target)
        timeline = self._simulated(
            copy, _Charging(self._estimator, prices, added, part)
        )
        rows = {
            starts[row.computation, row.name][0]: row
            for row in timeline.collectives
            if (row.computation, row.name) in starts
        }
        timeline = replace(timeline, footprint=timeline.footprint.on(part))
        simulated = self._simulated(copy, self._estimator)
        return Step(simulated.step_time_us, timeline, rows, dict(starts.values()))

    def followed_us(self, copy: Module, follow: Pass) -> float:
        """How long a copy takes, which is used up, after passes that schedule it.

        Products of which XLA's table takes more than their share are counted once: so
        much compute would hide whatever runs beside it.
        """
        self.spent += copy.instruction_count
        self.asked_after_xla = True
        follow.run(copy, PassContext(self.pricing), Report())
        timeline = self._simulated(copy, self._estimator)
        if timeline.overcounted:
            estimator, _ = estimator_for(copy, replace(self._on, extended=True))
            timeline = self._simulated(copy, estimator)
        return timeline.step_time_us

    def _simulated(self, copy: Module, estimator: Estimator) -> Timeline:
        return simulate_with(
            copy, self._on.target, self.machine, estimator, self._rules
        )

    def compute_us(self, instruction: Instruction) -> float:
        """What other instructions are charged where they are new."""
        part = target(self._on.target)
        charging = _Charging(self._estimator, {}, {key_of(instruction)}, part)
        found = charging.node_cost(instruction)
        return 0.0 if found is None else found.us

    def fair_us(self, collective: Instruction, *, is_new: bool = False) -> float:
        """What a collective is charged, where it is new as much as it may cost."""
        is_new = is_new or collective.opcode == _PERMUTE
        key = (
            is_new,
            collective.opcode,
            collective.shape.text,
            tuple(operand.shape.text for operand in collective.operands),
            collective.attributes.get("replica_groups"),
            collective.attributes.get("source_target_pairs"),
            str(collective_config(collective).get("kernel_strategy", "")),
        )
        if key not in self._fair:
            price = self.price(collective)
            own = price.us
            if price.model.endswith(NVLINK_KERNEL):
                # A formula, which knows a latency.
                self._fair[key] = own
            elif collective.opcode == _PERMUTE:
                self._fair[key] = max((own, *self._of_smaller(collective)))
            elif is_new:
                self._fair[key] = max((own, *self._of_fewer_rows(collective)))
            else:
                self._fair[key] = min((own, *self._of_larger(collective, _LARGER)))
        return self._fair[key]

    def least_us(self, collective: Instruction) -> float:
        """What the cheapest collective of at least its size takes, up to 1 GiB."""
        key = self._prints.key(collective)
        if key not in self._least:
            size = max(1, sum(o.shape.byte_size for o in collective.operands))
            times = [
                1 << k for k in range(1, max(1, (_LARGEST_BYTES // size).bit_length()))
            ]
            own = self.price(collective).us
            self._least[key] = min((own, *self._of_larger(collective, times)))
        return self._least[key]

    def _of_smaller(self, permute: Instruction) -> list[float]:
        """Prices of permutes of at most the same size, from the smallest one on."""
        shape = permute.shape
        element = max(1, shape.byte_size // shape.element_count)
        others: list[_Shapes] = []
        size = _SMALLEST_BYTES
        while size <= max(shape.byte_size, _SMALLEST_BYTES):
            other = array_shape(shape.element_type, (size // element,))
            others.append(([other], other))
            size *= 2
        return self._prices_as(permute, others)

    def _of_fewer_rows(self, collective: Instruction) -> list[float]:
        """Prices of the same collective of fewer bytes, down to the smallest one."""
        others: list[_Shapes] = []
        size, divisor = collective.shape.byte_size // 2, 2
        while size >= _SMALLEST_BYTES:
            operands = [_smaller(o.shape, divisor) for o in collective.operands]
            others.append((operands, _smaller(collective.shape, divisor)))
            size, divisor = size // 2, divisor * 2
        return self._prices_as(collective, others)

    def _of_larger(self, collective: Instruction, larger: Iterable[int]) -> list[float]:
        """Prices of the same collective of so many times the bytes."""
        others: list[_Shapes] = [
            (
                [_larger(o.shape, times) for o in collective.operands],
                _larger(collective.shape, times),
            )
            for times in larger
        ]
        return self._prices_as(collective, others)

    def _prices_as(
        self, collective: Instruction, others: Iterable[_Shapes]
    ) -> list[float]:
        """Prices of collectives like another, with other operands and results."""
        computation = collective.computation
        # All are made before one is priced: after each change of a module its estimator
        # looks at the whole of it.
        copies = [
            copy_of(collective, [zeros(computation, one) for one in operands], shape)
            for operands, shape in others
        ]
        prices = [self.price(copy).us for copy in copies]
        for copy in copies:
            computation.remove_with_dead_operands(copy)
        return prices

    def price(self, collective: Instruction) -> Estimate:
        """What `simulate` charges for a collective that nothing hides.

        Equal collectives are priced once.
        """
        key = self._prints.key(collective)
        if key not in self._prices:
            self._prices[key] = Prices(self._estimator).synchronous(collective)
        return self._prices[key]


def key_of(instruction: Instruction) -> Key:
    """The computation's name and the instruction's."""
    return instruction.computation.name, instruction.name


def collectives_by_key(module: Module) -> dict[Key, Instruction]:
    """All collectives of a module: synchronous ones, starts and dones."""
    return {
        key_of(instruction): instruction
        for computation in module.computations
        for instruction in computation.instructions
        if is_collective(instruction)
    }


def _larger(shape: Shape, times: int) -> Shape:
    """So many times the elements, in the slowest dimension."""
    if shape.is_tuple:
        return tuple_shape([_larger(element, times) for element in shape.elements])
    sizes = shape.dimensions or (1,)
    return shape.with_dimensions((sizes[0] * times, *sizes[1:]))


def _smaller(shape: Shape, divisor: int) -> Shape:
    """So many times fewer elements, in the slowest dimension; one at least."""
    if shape.is_tuple:
        return tuple_shape([_smaller(element, divisor) for element in shape.elements])
    sizes = shape.dimensions or (1,)
    return shape.with_dimensions((max(1, sizes[0] // divisor), *sizes[1:]))


@dataclass(frozen=True, slots=True)
class _Fair:
    """The price of a collective, and whether it is the least that it may cost."""

    us: float
    is_least: bool


@dataclass(frozen=True, slots=True)
class _Charging:
    """An estimator with fair prices, and the roofline for what a rewrite added."""

    inner: Estimator
    fair: Mapping[Key, _Fair]
    added: Collection[Key]
    part: Target

    @property
    def name(self) -> str:
        """As the one that it asks."""
        return self.inner.name

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """Its answer, or the roofline of a kernel."""
        found = self.inner.node_cost(instruction)
        if key_of(instruction) not in self.added or is_collective(instruction):
            return found
        if found is not None and not is_constant(found.model):
            return found
        if instruction.opcode == "reshape" and reshape_is_bitcast(instruction):
            return found
        cycles = op_cycles(DEFAULT_OP_PROFILE)
        ticks = instruction_ticks(instruction, self.part, cycles)
        return Estimate(us_of_ticks(ticks), "roofline")

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """The fair price, or its answer."""
        fair, found = self.fair.get(key_of(start)), self.inner.latency(start, user)
        if fair is None:
            return found
        us = fair.us
        if found is not None and not is_constant(found.model):
            # A start may have another price than a synchronous collective.
            us = (max if fair.is_least else min)(us, found.us)
        return Estimate(us, "fair")
