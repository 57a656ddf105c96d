"""A whole module: its computations callees first, and the judgment at the end.

    before = step of the order given          never changed unless all of this holds:
    after  = step of the orders found         shorter by the least gain
                                              no more memory than the cap
                                              nothing for the checker to find

A caller is searched with the new step and the new peak of what it calls. Where the sum
of parts is not the whole (transfers from one iteration to the next, collectives that
leave devices out, computations with several callers) only the simulator and the memory
model of the whole module can tell, and they do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.schedule_checker import ScheduleChecker
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.improver.annealing import Budget
from hlo_passes.scheduler.improver.atoms import Atoms, make_atoms
from hlo_passes.scheduler.improver.bounds import lower_bound
from hlo_passes.scheduler.improver.problem import Environment, make_problem, run_us
from hlo_passes.scheduler.improver.search import Effort, Improvement, improve
from hlo_passes.scheduler.latency_hiding.driver import computations_to_schedule
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.step import Step, run_step

Orders = dict[Computation, tuple[Instruction, ...]]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a module is improved.

    Attributes:
        topology: of the machine.
        prices: estimator of the simulation.
        xla_prices: estimator as XLA's scheduler asks it; in cycles for a TPU.
        settings: limits and release, as the scheduler's.
        rules: of the simulation.
        cap_bytes: from the peak of the orders given, the most that may be live.
        effort: of the first computation; the seeds of the others follow.
        min_gain: the least share of the step that is worth another order.
        seconds: after which the search ends; None for no such limit.
        keep: names of computations to leave as they are.
        why_kept: why a computation is left as it is, '' if it is searched.
    """

    topology: Topology
    prices: Estimator
    xla_prices: Estimator
    settings: SchedulerSettings
    rules: Rules
    cap_bytes: Callable[[int], int] = lambda peak: peak
    effort: Effort = field(default_factory=Effort)
    min_gain: float = 0.001
    seconds: float | None = None
    keep: frozenset[str] = frozenset()
    why_kept: Callable[[Computation], str] = lambda _: ""


@dataclass(slots=True)
class ModuleImprovement:
    """What became of a module.

    Attributes:
        before_us, after_us: its step.
        peak_before_bytes, peak_after_bytes: the most that is live.
        cap_bytes: the most that may be.
        computations: in the order of the search.
        kept: why all orders stay as they were, '' if any has changed.
        put_back: computations whose orders went back, and why.
        budget: what was spent.
        seconds: how long it took.
    """

    before_us: float
    after_us: float
    peak_before_bytes: int
    peak_after_bytes: int
    cap_bytes: int
    computations: list[Improvement] = field(default_factory=list)
    kept: str = ""
    put_back: dict[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    seconds: float = 0.0


def improve_module(
    module: Module,
    conditions: Conditions,
    *,
    progress: Callable[[str], None] | None = None,
) -> ModuleImprovement:
    """Give every computation with asynchronous operations a better order, in place.

    Args:
        module: scheduled.
        conditions: of the search.
        progress: receives a status line for each computation.

    Interrupted (Ctrl-C) or failing, it leaves the module as it was. `seconds` is what
    ends a search early and keeps what was found.
    """
    return _Run(module, conditions, progress).run()


def module_bound_us(
    module: Module,
    conditions: Conditions,
    raised: Callable[[Atoms, float], float] = lambda _, bound_us: bound_us,
) -> float:
    """What the step cannot be below, whatever orders its computations have, us.

    Memory is left out. Callers count with the bounds of what they call.

    Args:
        module: scheduled.
        conditions: costs, limits and machine.
        raised: from the atoms of a computation and its bound, us, one that is as high
            or higher and still holds.
    """
    run = _Run(module, conditions, None)
    steps: dict[Computation, float] = {}
    environment = Environment(conditions.xla_prices, run.tracker, run.memory, steps)
    for computation in computations_post_order(module, fusions=False):
        program = run.step.programs.get(computation)
        if program is None:
            continue
        if computation in run.given:
            atoms = make_atoms(make_problem(program, environment))
            steps[computation] = raised(atoms, lower_bound(atoms).us)
        else:
            steps[computation] = run_us(program, steps)
    return steps[module.entry]


class _Run:
    """One improvement of one module."""

    def __init__(
        self,
        module: Module,
        conditions: Conditions,
        progress: Callable[[str], None] | None,
    ) -> None:
        self.module = module
        self.conditions = conditions
        self.progress = progress
        self.began = time.monotonic()
        self.step = self._step()
        self.tracker = make_tracker(conditions.settings)
        self.memory = ModuleMemory(module, sizes=conditions.settings.part_sizes)
        self.chosen = [
            c
            for c in computations_to_schedule(module, self.tracker)
            if c in self.step.programs
        ]
        self.given: Orders = {c: c.instructions for c in self.chosen}
        peak = _peak_bytes(self.memory, self.chosen)
        self.result = ModuleImprovement(
            before_us=self.step.us,
            after_us=self.step.us,
            peak_before_bytes=peak,
            peak_after_bytes=peak,
            cap_bytes=conditions.cap_bytes(peak),
        )
        if conditions.seconds is not None:
            self.result.budget.deadline = self.began + conditions.seconds

    def run(self) -> ModuleImprovement:
        result = self.result
        if not self.chosen:
            result.kept = "no computation has anything asynchronous"
        elif result.peak_before_bytes > result.cap_bytes:
            result.kept = (
                f"its orders need {result.peak_before_bytes:,} bytes, and the cap is "
                f"{result.cap_bytes:,}"
            )
        else:
            try:
                self._search()
                self._judge()
            except BaseException:
                # An order that nobody has judged must not leave this run.
                for computation, order in self.given.items():
                    computation.set_order(order)
                raise
        result.seconds = time.monotonic() - self.began
        if self.progress is not None:
            self.progress("")
        return result

    def _step(self) -> Step:
        conditions = self.conditions
        return run_step(
            self.module, conditions.topology, conditions.prices, conditions.rules
        )

    def _search(self) -> None:
        """Search every computation, callees first."""
        conditions, result = self.conditions, self.result
        environment = Environment(
            conditions.xla_prices, self.tracker, self.memory, steps={}
        )
        chosen = set(self.chosen)
        for computation in computations_post_order(self.module, fusions=False):
            program = self.step.programs.get(computation)
            if program is None:
                continue
            if computation not in chosen:
                environment.steps[computation] = run_us(program, environment.steps)
                continue
            self._tell(computation)
            number = len(result.computations)
            problem = make_problem(program, environment)
            effort = replace(conditions.effort, seed=conditions.effort.seed + number)
            is_kept = computation.name in conditions.keep
            why = "it is to be kept" if is_kept else conditions.why_kept(computation)
            found = improve(problem, result.cap_bytes, effort, result.budget, why)
            result.computations.append(found)
            environment.steps[computation] = found.after_us
            if found.is_better:
                self._take(found)

    def _tell(self, computation: Computation) -> None:
        if self.progress is not None:
            self.progress(f"improving %{computation.name}")

    def _take(self, found: Improvement) -> None:
        """Give a computation its order; callers see its new peak and its new needs."""
        problem = found.problem
        order = [problem.instructions[n] for n in found.order]
        computation = problem.computation
        computation.set_order(order)
        self.tracker.forget_order(computation)
        peak = problem.memory.peak_delta_bytes(order)
        self.memory.rescheduled(computation, peak)

    # -- the judgment ---------------------------------------------------------

    def _judge(self) -> None:
        """Keep the orders found if the whole module is better, else put them back."""
        result = self.result
        changed = [f for f in result.computations if f.is_better]
        if not changed:
            result.kept = "no computation has a better order"
            return
        why = self._fault()
        doubtful = [f for f in changed if self._is_doubtful(f)]
        if why and 0 < len(doubtful) < len(changed):
            self._put_back(doubtful, why)
            why = self._fault()
        if why:
            back = result.put_back
            rest = [f for f in changed if f.problem.computation.name not in back]
            self._put_back(rest, why)
            result.kept = why

    def _is_doubtful(self, found: Improvement) -> bool:
        """Whether only the whole module can tell what its order is worth."""
        sites = self.memory.buffers.flow.reached.call_sites
        is_shared = len(sites.get(found.problem.computation, ())) > 1
        return is_shared or not found.problem.is_exact

    def _put_back(self, all_of: list[Improvement], why: str) -> None:
        for found in all_of:
            computation = found.problem.computation
            computation.set_order(self.given[computation])
            self.result.put_back[computation.name] = why

    def _fault(self) -> str:
        """Why the orders that the module has now cannot stay; '' if they can."""
        result, conditions = self.result, self.conditions
        after = self._step().us
        if after >= result.before_us:
            return "the whole step does not become shorter"
        if after > result.before_us * (1 - conditions.min_gain):
            gain = 1 - after / result.before_us
            return f"it gains {gain:.4%}, less than {conditions.min_gain:.4%}"
        memory = self.memory.replayed({c: c.instructions for c in self.chosen})
        peak = _peak_bytes(memory, self.chosen)
        if peak > result.cap_bytes:
            return f"it needs {peak:,} bytes, and the cap is {result.cap_bytes:,}"
        found = self._findings()
        if found:
            return f"the schedule checker says {found}"
        result.after_us, result.peak_after_bytes = after, peak
        return ""

    def _findings(self) -> str:
        """The first finding of the checker that it does not have about the given."""
        settings = self.conditions.settings.by_name
        options = {f.name for f in fields(ScheduleChecker)} & settings.keys()
        checker = ScheduleChecker(
            **{name: settings[name] for name in options}, scheduling_groups=True
        )
        now = checker.findings(self.module)
        if not now:
            return ""
        orders = {c: c.instructions for c in self.chosen}
        for computation in self.chosen:
            computation.set_order(self.given[computation])
        known = {(f.code, f.message) for f in checker.findings(self.module)}
        for computation, order in orders.items():
            computation.set_order(order)
        return next(
            (f"{f.code}: {f.message}" for f in now if (f.code, f.message) not in known),
            "",
        )


def _peak_bytes(memory: ModuleMemory, computations: Iterable[Computation]) -> int:
    """The greatest peak of the entry and of some computations."""
    peaks = [memory.stored_peak_bytes(memory.module.entry)]
    for computation in computations:
        of = memory.of(computation)
        peaks.append(of.initial_bytes + memory.stored_peak_bytes(computation))
    return max(peaks)
