"""Schedules a whole module: which computations, in which order, how often.

    result = schedule_module(module, make_estimator("sol", ...), SchedulerSettings())
    result.computations[0].order, result.computations[0].after.total_wasted_us

It schedules the computations with an asynchronous half or a delayed instruction,
callees first; all others keep their order. A caller sees its callees' new orders.

Source: openxla/xla `latency_hiding_scheduler.cc`, LatencyHidingScheduler (Aug 2026).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.errors import PassError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.attempt import (
    Attempt,
    Environment,
    Preferences,
)
from hlo_passes.scheduler.latency_hiding.explain import Explainer
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.hints import is_delayed_by_hint
from hlo_passes.scheduler.latency_hiding.result import (
    ComputationSchedule,
    Decision,
    DecisionLog,
    ScheduleResult,
)
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.statistics import (
    Statistics,
    lhs_statistics,
    node_cost_us,
)
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.memory.fragmentation import fragmentation_bytes
from hlo_passes.scheduler.memory.pressure import ModuleMemory

#: The share of the limit that remains in each further round.
_RERUN_SHARE: Final = 0.9
#: Seconds before the first line of progress, and between two lines.
_PROGRESS_SECONDS: Final = 1.0


def schedule_module(
    module: Module,
    estimator: Estimator,
    settings: SchedulerSettings | None = None,
    *,
    rules: Sequence[Rule] = RULES,
    preferences: Preferences | None = None,
    log_decisions: bool = False,
    explain: str = "",
    progress: Callable[[str], None] | None = None,
    why_left: Callable[[Computation], str] = lambda _: "",
) -> ScheduleResult:
    """Give every computation with asynchronous operations its new order, in place.

    Args:
        module: scheduled (is_scheduled=true).
        estimator: of costs and latencies, us.
        settings: of the run; the GPU's if not given.
        rules: instead of XLA's, in order; settings turn some off.
        preferences: numbers by instruction for kPreference, from a search procedure.
        log_decisions: record every comparison, in XLA's layout.
        explain: name of an instruction whose place should be explained.
        progress: called about once a second with a status line.
        why_left: why a computation keeps its order, '' if it is scheduled.

    Raises PassError E030 to E034 (see docs/errors.md).
    """
    settings = settings or SchedulerSettings()
    environment = Environment(
        estimator,
        settings,
        make_tracker(settings),
        active_rules(settings, tuple(rules)),
        preferences,
    )
    with garbage_collection_paused():
        run = _Run(module, environment, log_decisions, explain, progress)
        return run.run(why_left)


def computations_to_schedule(
    module: Module, tracker: AsyncTracker
) -> list[Computation]:
    """Computations with a supported half or a delayed instruction, callees first."""
    return [
        computation
        for computation in computations_post_order(module, fusions=False)
        if any(_is_worth_it(tracker, i) for i in computation.instructions)
    ]


def _is_worth_it(tracker: AsyncTracker, instruction: Instruction) -> bool:
    half = facts(instruction.opcode).half
    if half == "start" and tracker.is_supported_start(instruction):
        return True
    if half == "done" and tracker.is_supported_done(instruction):
        return True
    return is_delayed_by_hint(instruction)


class _Run:
    """One scheduling of one module."""

    def __init__(
        self,
        module: Module,
        environment: Environment,
        log_decisions: bool,
        explain: str,
        progress: Callable[[str], None] | None,
    ) -> None:
        self.module = module
        self.environment = environment
        self.settings = environment.settings
        self.log_decisions = log_decisions
        self.explain = explain
        self.progress = progress
        self.limit_bytes = self.settings.memory_limit_bytes
        self.decisions: dict[Computation, list[Decision]] = {}
        self.start_reasons: dict[Computation, dict[Instruction, str]] = {}
        self.dropped_hazards: dict[Computation, tuple[tuple[str, str], ...]] = {}
        self.costs_us: dict[Computation, dict[Instruction, float]] = {}
        self.latencies_us: dict[Instruction, float] = {}
        self.explanation = ""
        self._told_at = time.monotonic()

    def run(
        self, why_left: Callable[[Computation], str] = lambda _: ""
    ) -> ScheduleResult:
        found = computations_to_schedule(self.module, self.environment.tracker)
        left = {c: why for c in found if (why := why_left(c))}
        chosen = [c for c in found if c not in left]
        if not chosen:
            self._check_unscheduled()
            return ScheduleResult(self.module, (), left=left)
        # Remember the input order and what it costs, for the report and as a way back.
        input_orders = {c: c.instructions for c in chosen}
        memory = self._memory()
        before = {c: self._statistics(c, memory) for c in chosen}
        needed_before = self._needed_bytes(before, memory)
        # Schedule, and again with a lower limit as long as memory is over it.
        self._schedule_all(chosen, memory)
        reruns = 0
        last: dict[Computation, tuple[Instruction, ...]] = {}
        while reruns < self.settings.rerun and self._is_over(self._rerun_bytes(memory)):
            orders = {c: c.instructions for c in chosen}
            if not self.limit_bytes and orders == last:
                break  # neither limit nor orders change any more
            last = orders
            reruns += 1
            memory = memory.replayed(orders)
            self.limit_bytes = int((self.limit_bytes or 0) * _RERUN_SHARE)
            self._schedule_all(chosen, memory)
        # Measure what came out.
        memory = memory.replayed({c: c.instructions for c in chosen})
        after = {c: self._statistics(c, memory) for c in chosen}
        # If a hard limit is exceeded, the input order may be kept instead.
        kept = ""
        needed = self._needed_bytes(after, memory)
        if self.settings.hard_memory_limit != "off" and self._is_over(needed):
            kept = self._keep_input(input_orders, needed_before, needed)
            after = before
        if self.progress is not None:
            self.progress("")
        return ScheduleResult(
            self.module,
            tuple(
                ComputationSchedule(
                    c,
                    c.instructions,
                    before[c],
                    after[c],
                    tuple(self.decisions.get(c, ())),
                    self.start_reasons.get(c, {}),
                    self.dropped_hazards.get(c, ()),
                )
                for c in chosen
            ),
            _peak(after),
            self.limit_bytes,
            reruns,
            self.explanation,
            kept,
            left,
        )

    # -- memory ---------------------------------------------------------------

    def _memory(self) -> ModuleMemory:
        settings = self.settings
        return ModuleMemory(
            self.module,
            top_down=settings.top_down_scheduling,
            sizes=settings.part_sizes,
        )

    def _rerun_bytes(self, memory: ModuleMemory) -> int:
        """The figure that decides a rerun: the peak, perhaps with fragmentation."""
        peak = memory.module_peak_bytes
        if not self.settings.estimate_fragmentation_size:
            return peak
        return peak + fragmentation_bytes(self.module, memory.buffers)

    def _needed_bytes(
        self, statistics: dict[Computation, Statistics], memory: ModuleMemory
    ) -> int:
        """The whole module's peak, which may be where nothing was scheduled."""
        return max(_peak(statistics), memory.stored_peak_bytes(self.module.entry))

    def _is_over(self, peak_bytes: int) -> bool:
        limit = self.settings.memory_limit_bytes
        return limit is not None and peak_bytes > limit

    def _keep_input(
        self,
        orders: dict[Computation, tuple[Instruction, ...]],
        before_bytes: int,
        peak_bytes: int,
    ) -> str:
        """Restore the input orders, if that is allowed and helps; returns why."""
        what = self._above("the schedule", peak_bytes)
        if self.settings.hard_memory_limit == "fail":
            hint = "use rerun=5, or raise the limit"
            if not self._is_over(before_bytes):
                hint = f"hard-memory-limit=input-order, {hint}"
            what += f"; the input order needs {before_bytes:,}"
            raise PassError(what, code="E032", hint=hint)
        if self._is_over(before_bytes):
            self._refuse(f"{what}; the input order needs {before_bytes:,}")
        for computation, order in orders.items():
            computation.set_order(order)
        return f"kept the input order: {what}"

    def _check_unscheduled(self) -> None:
        """Check a module in which nothing is scheduled against a hard limit."""
        if self.settings.hard_memory_limit == "off":
            return
        peak = self._needed_bytes({}, self._memory())
        if self._is_over(peak):
            self._refuse(self._above("the order", peak))

    def _above(self, what: str, peak_bytes: int) -> str:
        limit = self.settings.memory_limit_bytes or 0
        needed = f"{what} needs {peak_bytes:,} bytes at its peak"
        return f"{needed}, but the limit is {limit:,}"

    def _refuse(self, message: str) -> NoReturn:
        hint = "raise the limit, or use hard-memory-limit=off"
        raise PassError(message, code="E032", hint=hint)

    # -- scheduling -----------------------------------------------------------

    def _schedule_all(self, chosen: list[Computation], memory: ModuleMemory) -> None:
        for computation in chosen:
            order = self._schedule(computation, memory)
            computation.set_order(order)
            self.environment.tracker.forget_order(computation)

    def _schedule(
        self, computation: Computation, memory: ModuleMemory
    ) -> list[Instruction]:
        self._explain_in(computation, memory)
        log = DecisionLog() if self.log_decisions else None
        attempt = Attempt(
            computation,
            memory,
            self.environment,
            memory_limit_bytes=self.limit_bytes,
            costs_us=self._costs_us(computation),
            watch=None if log is None else log.watch,
        )
        count = len(attempt.graph)
        order = attempt.place_all(progress=lambda n: self._tell(computation, n, count))
        memory.rescheduled(computation, attempt.peak_delta_bytes)
        if log is not None:
            self.decisions[computation] = log.decisions
        self.start_reasons[computation] = attempt.start_reasons
        name = attempt.graph.name
        self.dropped_hazards[computation] = tuple(
            (name(user), name(start)) for user, start in attempt.graph.dropped_hazards
        )
        return order

    def _explain_in(self, computation: Computation, memory: ModuleMemory) -> None:
        """Schedule once more with a watcher, if it has the instruction to explain."""
        wanted = computation.find(self.explain) if self.explain else None
        if wanted is None:
            return
        attempt = Attempt(
            computation,
            memory,
            self.environment,
            memory_limit_bytes=self.limit_bytes,
            costs_us=self._costs_us(computation),
        )
        explainer = Explainer(
            attempt.graph.index[wanted],
            attempt.state,
            self.environment.rules,
            attempt.policy(),
        )
        attempt.place_all(explainer)
        self.explanation = explainer.text(attempt.state)

    def _tell(self, computation: Computation, placed: int, count: int) -> None:
        now = time.monotonic()
        if self.progress is not None and now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
            self.progress(
                f"scheduling %{computation.name}: {placed:,} of {count:,} instructions"
            )

    def _costs_us(self, computation: Computation) -> dict[Instruction, float]:
        """Node costs, computed once."""
        known = self.costs_us.get(computation)
        if known is None:
            estimator = self.environment.estimator
            known = self.costs_us[computation] = {
                i: node_cost_us(estimator, i) for i in computation.instructions
            }
        return known

    def _statistics(self, computation: Computation, memory: ModuleMemory) -> Statistics:
        initial = memory.of(computation).initial_bytes
        return lhs_statistics(
            computation,
            self.environment.estimator,
            self.environment.tracker,
            costs_us=self._costs_us(computation),
            latencies_us=self.latencies_us,
            peak_bytes=initial + memory.stored_peak_bytes(computation),
        )


def _peak(statistics: dict[Computation, Statistics]) -> int:
    return max((s.peak_bytes or 0 for s in statistics.values()), default=0)
