"""From a module to its timeline.

    timeline = simulate(module, target="h100_sxm", hosts=2)
    timeline = simulate(module, costs="costs.json.gz", streams=2)
    timeline = simulate(module, Pricing(costs="costs.json.gz"), streams=2)

The order of the text is the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.analysis.module_state import module_state
from hlo_passes.analysis.program_places import ProgramPlaces, program_places
from hlo_passes.errors import TooDeepError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import estimator_for, require_priced
from hlo_passes.scheduler.estimators.profile import MEASURED, ProfileEstimator
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table_gaps import require_table_of
from hlo_passes.scheduler.estimators.tpu_final import other_estimator_note
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.measured.overlay import overlay_of
from hlo_passes.scheduler.measured.trace import Trace, measured_of, read_trace
from hlo_passes.scheduler.memory.footprint import footprint
from hlo_passes.scheduler.memory.on_chip import on_chip_memories
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.simulation.accounts import Account, Accounts, executions
from hlo_passes.scheduler.simulation.any_structure import AnyStructure
from hlo_passes.scheduler.simulation.engine import Engine, Run
from hlo_passes.scheduler.simulation.memory_curve import memory_points
from hlo_passes.scheduler.simulation.memory_text import memory_remark
from hlo_passes.scheduler.simulation.neglected import NOTHING_NEGLECTED, neglected_in
from hlo_passes.scheduler.simulation.notes import notes_of, remarks_of
from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.program import Program
from hlo_passes.scheduler.simulation.rows import Totals, rows_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.sensitivity import sensitivity_of
from hlo_passes.scheduler.simulation.spans import lane_of, spans_of, unqueued_lanes
from hlo_passes.scheduler.simulation.step import run_step
from hlo_passes.scheduler.simulation.surroundings import Surroundings
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import (
    CollectiveRow,
    ComputationTimes,
    MemoryPoint,
    Span,
)
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.scheduler.tpu.chips import chip, is_chip


def simulate(
    module: Module,
    on: Pricing | None = None,
    *,
    streams: int | None = None,
    share_links: bool = False,
    xla_statistic: bool = False,
    branch_probabilities: Mapping[str, tuple[float, ...]] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    contention: float = 0.0,
    with_range: bool = False,
    measured: str = "",
    **priced_on: Any,
) -> Timeline:
    """Simulate one step of a scheduled module.

    Args:
        module: its text order is the schedule.
        on: the machine and the source of costs.
        streams: see `Rules`, also for the next five.
        share_links: see `Rules`.
        xla_statistic: see `Rules`.
        branch_probabilities: see `Rules`.
        trip_counts: see `Rules`.
        contention: see `Rules`.
        with_range: repeat it in all settings of `setting.settings`, for
            `Timeline.sensitivity`.
        measured: file of a trace, whose times take the place of the prices; see
            `scheduler.measured.trace`.
        priced_on: fields of `Pricing`, instead of those of `on`.

    Raises UsageError for unknown names and values out of range.
    """
    rules = Rules(
        streams,
        share_links,
        xla_statistic,
        branch_probabilities or {},
        trip_counts or {},
        contention=contention,
    )
    on = replace(on or Pricing(), **priced_on)
    trace = read_trace(measured) if measured else None
    return simulate_on(module, on, rules, with_range=with_range, trace=trace)


def simulate_on(
    module: Module,
    on: Pricing,
    rules: Rules,
    *,
    with_range: bool = False,
    trace: Trace | None = None,
) -> Timeline:
    """Simulate by rules that are one value, with the release that `on` names.

    Args:
        module: to simulate.
        on: the machine and the source of costs.
        rules: of the simulation.
        with_range: repeat it in other settings, for `Timeline.sensitivity`.
        trace: whose times take the place of the prices.

    Raises:
        WrongStateError: S017, S018, a module whose times would mean nothing; S019,
            costs of another one.
        UsageError: U228, a trace of other modules.
    """
    require_priced(module, on)
    found = reported(module, on)
    # What was measured comes before any costs.
    gaps = require_table_of(module, on) if trace is None else ()
    estimator, machine = estimator_for(module, found.on)
    rules = replace(rules, release=found.release)
    overlay = None
    if trace is not None:
        # What was measured comes first; the estimator prices the rest.
        times = measured_of(module, trace, rules.trip_counts)
        overlay = overlay_of(module, estimator, times, rules.trip_counts)
        measured = ProfileEstimator(times.profile, MEASURED)
        estimator = EstimatorStack((measured, estimator))
    timeline = simulate_with(
        module, found.on.target, machine, estimator, rules, with_range=with_range
    )
    memory = timeline.footprint
    if is_chip(found.on.target):
        memory = memory.on_chip(chip(found.on.target))
    else:
        memory = memory.on(target(on.target))
    # What is not scheduled yet needs less once it is.
    fits = () if timeline.state.cure else memory_remark(memory, found.on.target)
    remarks = (*fits, *gaps, *found.remarks, *timeline.remarks)
    notes = (*timeline.notes, *other_estimator_note(timeline.estimator))
    return replace(
        timeline, remarks=remarks, notes=notes, footprint=memory, overlay=overlay
    )


def simulate_with(
    module: Module,
    target: str,
    topology: Topology,
    estimator: Estimator,
    rules: Rules,
    *,
    with_range: bool = False,
) -> Timeline:
    """Simulate with prepared prices and rules; `target` is only shown to the reader.

    Raises TooDeepError S016 for calls that are nested deeper than it follows.
    """
    with garbage_collection_paused():
        try:
            return _simulate(
                module, target, topology, estimator, rules, with_range=with_range
            )
        except RecursionError as problem:
            raise TooDeepError("the simulation") from problem


def _simulate(
    module: Module,
    target: str,
    topology: Topology,
    estimator: Estimator,
    rules: Rules,
    *,
    with_range: bool,
) -> Timeline:
    ran = run_step(module, topology, estimator, rules)
    entry, programs, surroundings = ran.entry, ran.programs, ran.surroundings
    # Report the device that ends last.
    device = entry.elapsed.index(max(entry.elapsed))
    # Account for each computation's time, collectives and memory.
    step = _Step(
        engine=ran.engine,
        accounts=Accounts(device, rules.queueing, entry),
        counts=executions(entry),
        memory=ModuleMemory(module),
        device=device,
        rules=rules,
        trips=_trip_counts(programs, surroundings),
        places=program_places(module),
    )
    parts = [step.part(computation) for computation in programs]
    streams = _stream_count(rules, programs)
    lanes = 1 if rules.share_links else streams
    whatever = AnyStructure(estimator, surroundings, step.accounts, lanes)
    any_structure = whatever.bound(entry, step.counts)
    neglected = NOTHING_NEGLECTED
    if module.is_scheduled and not rules.xla_statistic:
        often = {part.times.name: part.times.executions for part in parts}
        neglected = neglected_in(programs, often, estimator)
    (whole,) = (p.times for p in parts if p.times.name == module.entry.name)
    memory = footprint(step.memory, packs=not is_chip(target))
    if surroundings.is_tpu:
        memory = replace(memory, near_memories=on_chip_memories(step.memory))
    return Timeline(
        module=module.name,
        state=module_state(module),
        target=target,
        topology=topology.to_text(),
        estimator=estimator.name,
        streams=streams,
        entry=module.entry.name,
        computations={part.times.name: part.times for part in parts},
        collectives=tuple(row for part in parts for row in part.rows),
        spans=tuple(span for part in parts for span in part.spans),
        memory=tuple(point for part in parts for point in part.memory),
        counted_once=surroundings.counted_once,
        notes=notes_of(
            rules,
            ran.prices,
            surroundings,
            device=device if ran.device_count > 1 else None,
            is_scheduled=module.is_scheduled,
        ),
        machine=topology.described,
        xla=str(rules.release or followed_release(module)),
        remarks=(*neglected.remark(whole.step_time_us), *remarks_of(ran.prices)),
        neglected=neglected,
        unpriced=ran.prices.unpriced,
        overcounted=ran.prices.overcounted,
        footprint=memory,
        any_structure=any_structure,
        sensitivity=sensitivity_of(ran.engine, module.entry, entry)
        if with_range
        else None,
    )


def _trip_counts(
    programs: Mapping[Computation, Program], surroundings: Surroundings
) -> dict[Computation, int]:
    """Trips of the loop that a body belongs to; of several loops, the first one."""
    trips: dict[Computation, int] = {}
    for program in programs.values():
        for instruction in program.order:
            if instruction.opcode == "while":
                body = instruction.called_computations[0]
                if body not in programs:
                    continue
                trips.setdefault(body, surroundings.trip_count(instruction))
    return trips


def _stream_count(rules: Rules, programs: Mapping[Computation, Program]) -> int:
    """Communication streams in use; 0 if nothing queues."""
    if not rules.queueing:
        return 0
    used = {
        work.stream.number
        for program in programs.values()
        for work in program.works
        if work.stream is not None and work.stream.kind == "communication"
    }
    return max(1, len(used))


@dataclass(frozen=True, slots=True)
class _Part:
    """What one computation contributes to a timeline."""

    times: ComputationTimes
    rows: list[CollectiveRow]
    spans: list[Span]
    memory: list[MemoryPoint]


@dataclass(slots=True)
class _Step:
    """A simulated step, read computation by computation."""

    engine: Engine
    accounts: Accounts
    counts: dict[Run, tuple[float, float]]
    memory: ModuleMemory
    device: int
    rules: Rules
    trips: Mapping[Computation, int]
    places: ProgramPlaces
    runs: dict[Computation, list[Run]] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the runs by computation."""
        self.runs = {}
        for run in self.counts:
            self.runs.setdefault(run.program.computation, []).append(run)

    def part(self, computation: Computation) -> _Part:
        """Everything about one computation."""
        runs = self.runs.get(computation, [])
        cold = self.engine.known_cold(computation)
        # Take the most frequent run; of two, the one from idle streams; for a branch
        # that is not taken, one from idle.
        run = max(
            runs,
            key=lambda r: (self.counts[r][0], r is cold),
            default=None,
        )
        if run is None:
            run = self.engine.cold(computation)
        placement = Placement(run, self.device)
        lanes = (
            {work.number: lane_of(work) for work in run.program.works}
            if self.rules.queueing
            else unqueued_lanes(placement)
        )
        points, peak = memory_points(self.memory.of(computation), placement)
        often = sequential_sum((self.counts[r][0] for r in runs), start=0)
        totals = Totals({r: self.counts[r][1] for r in runs}, often, self.device)
        account = self.accounts.of(run)
        return _Part(
            _times(computation, account, self.trips.get(computation, 1), peak, totals),
            rows_of(placement, self.accounts, lanes, totals, self.places),
            spans_of(placement, lanes),
            points,
        )


def _times(
    computation: Computation, account: Account, trips: int, peak: int, totals: Totals
) -> ComputationTimes:
    return ComputationTimes(
        name=computation.name,
        step_time_us=account.step_us,
        exposed_us=account.exposed_us,
        compute_us=account.compute_us,
        communication_us=account.communication_us,
        lower_bound_us=account.bound.us,
        peak_memory_bytes=peak,
        other_exposed_us=account.other_exposed_us,
        bound_by=account.bound.by,
        bound_why=account.bound.why,
        serial_us=account.serial_us,
        trip_count=trips,
        executions=totals.executions,
    )
