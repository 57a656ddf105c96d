"""Prices for every instruction of a module.

    report = estimate(module, target="h100_sxm", hosts=2)
    report.rows[0].node_cost_us, report.rows[0].model

It prices the computations that XLA schedules: the entry, bodies and conditions of
loops, branches, called computations; not the bodies of fusions and reductions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.module_state import ModuleState, module_state
from hlo_passes.analysis.program_places import NOWHERE, ProgramPlace, program_places
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.async_form import (
    done_of,
    is_start,
    work_of,
)
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import (
    COARSE,
    UNKNOWN,
    Estimator,
    has_no_price,
)
from hlo_passes.scheduler.estimators.choice import estimator_for, require_priced
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.estimators.table_gaps import require_table_of
from hlo_passes.scheduler.headline import priced_on
from hlo_passes.scheduler.latency.collectives import collective_begun
from hlo_passes.scheduler.latency.estimate import share_remarks
from hlo_passes.scheduler.simulation.neglected import NOTHING_NEGLECTED, neglected_in
from hlo_passes.scheduler.simulation.prices import Prices, fusion_of
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.scheduler.tpu.continuations import Continuations, continuations


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """One instruction and its price.

    Attributes:
        computation: its name.
        name: of the instruction.
        opcode: as printed.
        node_cost_us: how long it holds its resource; for a synchronous collective its
            whole time.
        latency_us: from an async start to its done, None for anything else.
        model: that gave the price: for a start that of the latency, else of the cost.
        reason: why a better model had no answer, '' where it had.
        executions: how often a step runs it, loops multiplied.
        place: where in the user's program a collective comes from.
        times_its_share: how often XLA counts a matrix product's flops; 1 is right.
    """

    computation: str
    name: str
    opcode: str
    node_cost_us: float
    latency_us: float | None
    model: str
    reason: str
    executions: int
    place: ProgramPlace = NOWHERE
    times_its_share: int = 1


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """All instructions of a module, in text order.

    Attributes:
        state: what the module is.
        target: name of the GPU.
        topology: 'PxHxG'.
        machine: the topology in words.
        xla: the release of XLA that is followed.
        estimator: that gave the prices.
        rows: the instructions.
        remarks: what limits all of these numbers.
        counted_once: loops that nobody knows how often they run.
    """

    state: ModuleState
    target: str
    topology: str
    machine: str
    xla: str
    estimator: str
    rows: tuple[EstimateRow, ...]
    remarks: tuple[str, ...] = ()
    counted_once: tuple[str, ...] = ()

    @property
    def machine_line(self) -> str:
        """What was priced on what."""
        return (
            f"{priced_on(self.target, self.topology, self.machine, self.xla)}, "
            f"estimator {self.estimator}, {len(self.rows)} instructions"
        )

    def to_json(self) -> dict[str, object]:
        """The machine-readable form of `hlo-passes estimate`."""
        return {
            **self.state.to_json(),
            "target": self.target,
            "topology": self.topology,
            "machine": self.machine,
            "xla": self.xla,
            "remarks": list(self.remarks),
            "estimator": self.estimator,
            "counted_once": list(self.counted_once),
            "instructions": [
                {
                    "computation": row.computation,
                    "name": row.name,
                    "opcode": row.opcode,
                    "node_cost_us": row.node_cost_us,
                    "latency_us": row.latency_us,
                    "model": row.model,
                    "executions": row.executions,
                    **({"reason": row.reason} if row.reason else {}),
                    **({} if row.place is NOWHERE else row.place.to_json()),
                }
                for row in self.rows
            ],
        }


def estimate(
    module: Module,
    on: Pricing | None = None,
    *,
    trip_counts: Mapping[str, int] | None = None,
    **priced_on: Any,
) -> EstimateReport:
    """Price a module.

    Args:
        module: a partitioned one, scheduled or not.
        on: the machine and the source of costs.
        trip_counts: by name of a loop, how often it runs; without an entry as
            `TripCounts` finds it.
        priced_on: fields of `Pricing`, instead of those of `on`.

    Raises:
        UsageError: unknown names and values out of range.
        WrongStateError: S017, S018: its times would mean nothing; S019: its costs are
            those of another one.
    """
    found = reported(module, replace(on or Pricing(), **priced_on))
    require_priced(module, found.on)
    gaps = require_table_of(module, found.on)
    model, machine = estimator_for(module, found.on)
    counts = TripCounts(module, trip_counts or {})
    often = executions(counts)
    rows = tuple(_rows(module, model, often))
    neglected = NOTHING_NEGLECTED
    if module.is_scheduled:
        neglected = neglected_in(
            scheduled_computations(module),
            {computation.name: float(times) for computation, times in often.items()},
            model,
        )
    total = sequential_sum(row.node_cost_us * row.executions for row in rows)
    return EstimateReport(
        state=module_state(module),
        target=found.on.target,
        topology=machine.to_text(),
        machine=machine.described,
        xla=found.release.name,
        estimator=model.name,
        rows=rows,
        remarks=(
            *gaps,
            *found.remarks,
            *neglected.remark(total),
            *_unpriced(rows, _fusions(module, model), _calls(module)),
        ),
        counted_once=counts.unknown,
    )


def _unpriced(
    rows: tuple[EstimateRow, ...],
    fusions: frozenset[tuple[str, str]],
    calls: frozenset[tuple[str, str]],
) -> Iterator[str]:
    """Remarks on instructions whose price is only a constant, or a wrong one.

    Args:
        rows: of all instructions.
        fusions: asynchronous ones that have a price as fusions, which `simulate` takes.
        calls: asynchronous calls, whose computations have prices.
    """
    costly = [row for row in rows if max(row.node_cost_us, row.latency_us or 0.0) > 0.0]
    count = sum(
        has_no_price(
            row.model, row.reason, max(row.node_cost_us, row.latency_us or 0.0)
        )
        and (row.computation, row.name) not in fusions | calls
        for row in costly
    )
    if count:
        yield f"no price for {count} of {len(costly)} instructions that cost something"
    free = sum(
        (row.model == UNKNOWN.model or (row.latency_us == 0.0 and row.reason != ""))
        and (row.computation, row.name) not in fusions | calls
        for row in rows
    )
    if free:
        yield f"no price for {free} operation{'s' * (free != 1)}: 0 was taken for each"
    yield from share_remarks(Counter(row.times_its_share for row in costly))


def _fusions(module: Module, estimator: Estimator) -> frozenset[tuple[str, str]]:
    """Starts of fusions that have a price of their own."""
    return frozenset(
        (computation.name, start.name)
        for computation in scheduled_computations(module)
        for start in computation.instructions
        if is_start(start)
        and (fusion := fusion_of(start)) is not None
        and (price := estimator.node_cost(fusion)) is not None
        and price.model not in COARSE
    )


def _calls(module: Module) -> frozenset[tuple[str, str]]:
    """Starts of asynchronous calls."""
    return frozenset(
        (computation.name, start.name)
        for computation in scheduled_computations(module)
        for start in computation.instructions
        if is_start(start) and work_of(start) == "call"
    )


def _rows(
    module: Module, estimator: Estimator, often: Mapping[Computation, int]
) -> Iterator[EstimateRow]:
    places = program_places(module)
    prices = Prices(estimator)
    is_tpu = module_state(module).stage == "tpu"
    for computation in scheduled_computations(module):
        cut = continuations(computation) if is_tpu else Continuations()
        for instruction in computation.instructions:
            opcode = instruction.opcode
            node = estimator.node_cost(instruction) or UNKNOWN
            latency = None
            kind = collective_begun(instruction)
            begins = is_start(instruction) or instruction in cut.done_of
            begins = begins or cut.alone.get(instruction) == "done"
            if kind and not begins and instruction not in cut:
                node = prices.synchronous(instruction)
            if begins:
                done = cut.done_of.get(instruction) or done_of(instruction)
                done = instruction if instruction in cut.alone else done
                if done is not None:
                    latency = estimator.latency(instruction, done) or UNKNOWN
            source = latency or node
            yield EstimateRow(
                computation.name,
                instruction.name,
                opcode,
                node.us,
                None if latency is None else latency.us,
                source.model,
                source.reason,
                often[computation],
                places.of(instruction) if kind else NOWHERE,
                source.times_its_share,
            )
