"""Our scheduler beside XLA:TPU's, decision by decision, on a compilation made now.

    verdict = judged("corpus/programs/pipeline.py:pipeline", "v5e", "2x4")

Compared are the order, every comparison and the memory of every placement, of each round
of each computation, and the statistics. Nothing is kept but counts. The log rounds to six
digits. A figure is a sum, and is compared within what the rounding can have taken from its
parts (`bounds`). A decision that differs with the costs of the log, and not with some others
that it prints the same (`digits`), is told apart.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.ir.async_form import half
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.installation.for_tpu import orders_of
from hlo_passes.runtime.tpu_program import FINAL, SCHEDULED
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.tpu_final import TPU_FINAL
from hlo_passes.scheduler.latency_hiding import driver
from hlo_passes.scheduler.latency_hiding.attempt import Environment
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.rules import active_rules
from hlo_passes.scheduler.latency_hiding.statistics import Statistics
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.tpu.continuations import continuations
from hlo_passes.scheduler.tpu.costs import TpuCosts, require_tpu_costs
from hlo_passes.scheduler.tpu.log import Round, SchedulerLog, read_log
from hlo_passes.scheduler.tpu.settings import tpu_settings
from hlo_passes.scheduler.tpu.step import NoStatisticError, step_of
from tests.modules import REPOSITORY
from tests.tpu.bounds import Bounds, figure_bounds
from tests.tpu.child import EDGES
from tests.tpu.digits import half_unit, reprinted

#: XLA prints six digits of each cost; sums of them are as exact as this.
_RELATIVE = 1e-5
#: What else may be off: the statistic is a sum of costs of six digits.
_STEP = 1e-3
_PEAK = "memory pressure peak (bytes)"
_TIME_LIMIT_SECONDS = 900
#: Costs that print the same, tried one after the other, and for how long.
_MOST_TRIES = 1000
_MOST_SECONDS_OF_TRIES = 5.0


@dataclass
class Verdict:
    """How our scheduler did on one compilation.

    Attributes:
        program: file and function.
        chips: chip and grid.
        flags: of the compiler.
        has_edges: whether control edges were added (`control_edges`).
        outcome: '' for a comparison, else why there is none.
        instructions: of the module that the scheduler got.
        rounds: that XLA made.
        orders: equal ones of them.
        decisions: comparisons that XLA made.
        equal_decisions: of them, those equal in place, winner, loser and reason.
        steps: placements whose memory XLA logged.
        equal_steps: of them, those with the same pressure and peak.
        figures: of XLA's statistics.
        equal_figures: of them, those equal to six digits.
        figures_within: of the others, those that differ by no more than the rounding of
            the costs they are sums of.
        widest_cycles: the widest range that a figure was compared within.
        round_trips: modules that were read, verified and written back byte for byte.
        modules: of all stages.
        differences: in words, the first of each round.
        left_open: those that the digits of the log leave open (`digits`).
        priced: final modules that are simulated (`tpu-final`).
        without_estimates: those that the compiler left no estimate in, and that are
            refused for it.
        unpriced: operations in it that have no price.
        cut: all-gathers in it that are fusions; `whole` of them with both halves.
        step_us: simulated with the compiler's costs; None without.
        has_step: whether the compiler's statistic has the step, loops put together.
        is_same_step: whether that is what is simulated if nothing queues. The
            simulation leaves out the cycle that each start and each done has.
        seconds: of the compiler; `own_seconds` of our scheduler.
    """

    program: str
    chips: tuple[str, str]
    flags: tuple[str, ...] = ()
    has_edges: bool = False
    outcome: str = ""
    instructions: int = 0
    rounds: int = 0
    orders: int = 0
    decisions: int = 0
    equal_decisions: int = 0
    steps: int = 0
    equal_steps: int = 0
    figures: int = 0
    equal_figures: int = 0
    figures_within: int = 0
    widest_cycles: float = 0.0
    round_trips: int = 0
    modules: int = 0
    differences: list[str] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)
    seconds: float = 0.0
    own_seconds: float = 0.0
    priced: int = 0
    without_estimates: int = 0
    unpriced: int = 0
    cut: int = 0
    whole: int = 0
    step_us: float | None = None
    has_step: bool = False
    is_same_step: bool = False

    @property
    def name(self) -> str:
        """Program, chip, grid and flags."""
        edges = (EDGES,) if self.has_edges else ()
        return " ".join((self.program, *self.chips, *self.flags, *edges))


def judged(
    program: str, target: str, topology: str, *flags: str, has_edges: bool = False
) -> Verdict:
    """Compile a program in a process of its own, and compare the schedulers."""
    verdict = Verdict(
        program.rsplit("/", 1)[-1], (target, topology), flags, has_edges=has_edges
    )
    more = (EDGES, *flags) if has_edges else flags
    with tempfile.TemporaryDirectory(prefix="hlo-passes-tpu-") as place:
        folder = pathlib.Path(place)
        command = [sys.executable, "-m", "tests.tpu.child", program, target, topology]
        try:
            run = subprocess.run(
                [*command, place, *more],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIME_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            verdict.outcome = f"no answer within {_TIME_LIMIT_SECONDS} s"
            return verdict
        error = folder / "error.txt"
        if error.exists():
            verdict.outcome = error.read_text().splitlines()[0]
            return verdict
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["no word"])[-1]
            verdict.outcome = f"exit status {run.returncode}: {last[:200]}"
            return verdict
        judge_compilation(folder, verdict)
    return verdict


def judge_compilation(folder: pathlib.Path, verdict: Verdict) -> None:
    """Compare what `tests.tpu.child` left in a folder."""
    verdict.seconds = float((folder / "seconds.txt").read_text())
    _read_modules(folder, verdict)
    _price(folder, verdict)
    log = read_log((folder / "log.txt").read_text().splitlines())
    if not log.rounds:
        verdict.outcome = "nothing asynchronous"
        return
    compare_with_log(folder, log, verdict)
    _simulate(folder, verdict)


def _read_modules(folder: pathlib.Path, verdict: Verdict) -> None:
    """Every module is read, verified and written back."""
    for file in sorted(folder.glob("*.hlo")):
        text = file.read_text()
        verdict.modules += 1
        try:
            module = hlo_passes.parse(text, filename=file.name)
            hlo_passes.verify(module)
        except hlo_passes.HloError as problem:
            verdict.differences.append(str(problem).splitlines()[0][:200])
            continue
        if module.to_text() == text:
            verdict.round_trips += 1
        else:
            verdict.differences.append(f"{file.name}: not written back as it was")


def _price(folder: pathlib.Path, verdict: Verdict) -> None:
    """The final module, by the estimates that the compiler left in it."""
    final = folder / f"{FINAL}.hlo"
    if not final.exists():
        return
    text = final.read_text()
    module = hlo_passes.parse(text)
    try:
        on = Pricing(target=verdict.chips[0], estimator=TPU_FINAL)
        scheduler.estimate(module, on)
        verdict.unpriced = scheduler.simulate(module, on).unpriced
    except hlo_passes.HloError as problem:
        if problem.code == "U208" and "estimated_cycles" not in text:
            verdict.without_estimates = 1
            return
        verdict.differences.append(f"not priced: {problem}".splitlines()[0][:200])
        return
    verdict.priced = 1
    for computation in scheduled_computations(module):
        found = continuations(computation)
        verdict.whole += len(found.done_of)
        verdict.cut += len(found.done_of) + len(found.alone)


def _simulate(folder: pathlib.Path, verdict: Verdict) -> None:
    """The step of the compiler's order, priced with the compiler's costs."""
    module = hlo_passes.parse((folder / f"{SCHEDULED}.hlo").read_text())
    file = str(folder / "costs.json")
    try:
        verdict.step_us = scheduler.simulate(module, costs=file).step_time_us
        alone = scheduler.simulate(module, costs=file, streams=0)
    except hlo_passes.HloError as problem:
        verdict.differences.append(f"not simulated: {problem}".splitlines()[0][:200])
        return
    statistics = json.loads(pathlib.Path(file).read_text())["statistics"]
    costs = dataclasses.replace(require_tpu_costs(file), statistics=statistics)
    try:
        step_us = step_of(module, costs).total_cycles / costs.mhz
    except NoStatisticError:
        return
    verdict.has_step = True
    halves = sum(
        alone.computations[computation.name].executions * is_half
        for computation in scheduled_computations(module)
        if computation.name in alone.computations
        for is_half in map(bool, map(half, computation.instructions))
    )
    allowed_us = _STEP * step_us + halves / costs.mhz
    verdict.is_same_step = abs(alone.step_time_us - step_us) <= allowed_us
    if not verdict.is_same_step:
        verdict.differences.append(
            f"a step of {alone.step_time_us:.6g} us, the statistic has {step_us:.6g}"
        )


class _Rounds(driver._Run):
    """A run that notes each round: order, decisions, memory."""

    noted: list[tuple[str, list[str], list[tuple[str, str, str]], list[int]]]

    def _schedule(
        self, computation: Computation, memory: ModuleMemory
    ) -> list[Instruction]:
        order = super()._schedule(computation, memory)
        table = memory.of(computation)
        self.noted.append(
            (
                computation.name,
                [i.name for i in order],
                [
                    (d.chosen, d.other, d.reason)
                    for d in self.decisions.get(computation, ())
                ],
                list(_memory_steps(table, order)),
            )
        )
        return order


def _memory_steps(table: object, order: list[Instruction]) -> Iterator[int]:
    """Pressure before, after, and the peak, of each placement, one after the other."""
    from hlo_passes.scheduler.memory.pressure import PressureState

    state = PressureState(table)  # type: ignore[arg-type]
    for instruction in reversed(order):
        yield state.usage_bytes
        state.place(state.memory.index[instruction])
        yield state.usage_bytes
        yield state.peak_delta_bytes


def compare_with_log(folder: pathlib.Path, log: SchedulerLog, verdict: Verdict) -> None:
    """Compare by the costs of the log, then by others that it prints the same."""
    costs = require_tpu_costs(str(folder / "costs.json"))
    before = len(verdict.differences)
    _compare(folder, log, costs, verdict)
    apart = verdict.differences[before:]
    if apart and _leaves_open(folder, log, costs):
        verdict.left_open = apart
        del verdict.differences[before:]


def _leaves_open(folder: pathlib.Path, log: SchedulerLog, costs: TpuCosts) -> bool:
    """Whether some costs that the log prints the same give XLA's answers."""
    begun = time.perf_counter()
    for others in reprinted(costs, _MOST_TRIES):
        verdict = Verdict("", ("", ""))
        _compare(folder, log, others, verdict)
        if not verdict.differences:
            return True
        if time.perf_counter() - begun > _MOST_SECONDS_OF_TRIES:
            break
    return False


def _compare(
    folder: pathlib.Path, log: SchedulerLog, costs: TpuCosts, verdict: Verdict
) -> None:
    module = hlo_passes.parse((folder / "tpu-before-scheduler.hlo").read_text())
    verdict.instructions = sum(len(c.instructions) for c in module.computations)
    came = orders_of(module)
    settings = tpu_settings(
        costs.chip,
        costs.flags,
        costs.slices,
        memory_limit_bytes=costs.memory_limit_bytes,
    )
    environment = Environment(
        EstimatorStack((costs.in_cycles(),)),
        settings,
        make_tracker(settings),
        active_rules(settings),
    )
    begun = time.perf_counter()
    run = _Rounds(module, environment, True, "", None)
    run.noted = []
    result = run.run()
    verdict.own_seconds = time.perf_counter() - begun
    _compare_without_log(folder, environment, result.module, verdict)
    # Which of two siblings comes first depends on the compilation's history.
    rounds = sorted(log.rounds, key=lambda each: each.computation)
    noted = sorted(run.noted, key=lambda each: each[0])
    if [each[0] for each in noted] != [each.computation for each in rounds]:
        verdict.differences.append("the rounds are of other computations")
    for (name, order, decisions, memory), other in zip(noted, rounds, strict=False):
        _compare_round(name, order, decisions, memory, other, verdict)
    verdict.rounds = len(log.rounds)
    logged = _Logged(log, costs, environment.tracker)
    for own in result.computations:
        phases = (("before", came[own.computation]), ("after", own.order))
        for (phase, order), counted in zip(
            phases, (own.before, own.after), strict=True
        ):
            logged.compare(phase, order, counted, verdict)


def _compare_without_log(
    folder: pathlib.Path, environment: Environment, logged: Module, verdict: Verdict
) -> None:
    """The order without a log of decisions, which is chosen in another way."""
    module = hlo_passes.parse((folder / "tpu-before-scheduler.hlo").read_text())
    driver._Run(module, environment, False, "", None).run()
    for one, other in zip(module.computations, logged.computations, strict=True):
        if [i.name for i in one.instructions] != [i.name for i in other.instructions]:
            verdict.differences.append(f"{one.name}: another order without a log")


def _compare_round(
    name: str,
    order: list[str],
    decisions: list[tuple[str, str, str]],
    memory: list[int],
    other: Round,
    verdict: Verdict,
) -> None:
    verdict.orders += order == other.order
    verdict.decisions += len(other.decisions)
    pairs = list(zip(decisions, other.decisions, strict=False))
    verdict.equal_decisions += sum(one == two for one, two in pairs)
    at = next((k for k, (one, two) in enumerate(pairs) if one != two), None)
    if at is not None:
        verdict.differences.append(
            f"{name}: decision {at} of {len(other.decisions)}: ours {decisions[at]}, "
            f"XLA's {other.decisions[at]}"
        )
    elif order != other.order:
        verdict.differences.append(f"{name}: another order")
    # Members of a scheduling group are placed without a word: steps go by their names.
    of_node = dict(
        zip(
            reversed(order),
            zip(memory[::3], memory[1::3], memory[2::3], strict=True),
            strict=True,
        )
    )
    steps = [of_node.get(placed) for placed in other.placed]
    verdict.steps += len(other.memory_bytes)
    equal = [a == b for a, b in zip(steps, other.memory_bytes, strict=False)]
    verdict.equal_steps += sum(equal)
    if at is None and not all(equal):
        k = equal.index(False)
        verdict.differences.append(
            f"{name}: memory at {k} ({other.placed[k]}): ours {steps[k]}, XLA's "
            f"{other.memory_bytes[k]}"
        )


@dataclass(frozen=True, slots=True)
class _Logged:
    """XLA's statistics, and what its log leaves open of them."""

    log: SchedulerLog
    costs: TpuCosts
    tracker: AsyncTracker

    def compare(
        self,
        phase: str,
        order: Sequence[Instruction],
        counted: Statistics,
        verdict: Verdict,
    ) -> None:
        """Compare the figures of an order, of 'before' or 'after' scheduling."""
        name = counted.computation
        theirs = self.log.statistics[phase].get(name, {})
        bounds: dict[str, Bounds] | None = None
        for key, value in counted.to_json().items():
            wanted = theirs.get(key)
            verdict.figures += 1
            if wanted is None:
                continue
            slack = 0.5 if key == _PEAK else _RELATIVE * max(1.0, abs(wanted))
            if abs(value - wanted) <= slack:
                verdict.equal_figures += 1
                continue
            if bounds is None:
                bounds = figure_bounds(order, self.costs, self.tracker)
            low, high = bounds.get(key, (value, value))
            half = half_unit(wanted)
            if low - half <= wanted <= high + half:
                verdict.figures_within += 1
                verdict.widest_cycles = max(verdict.widest_cycles, high - low)
                continue
            verdict.differences.append(
                f"{name} {phase} {key}: ours {value}, XLA's {wanted}, costs that print "
                f"the same give {low:.6g} to {high:.6g}"
            )
