"""Scheduling a whole module: which computations, in which order, how often.

    result = schedule_module(module, make_estimator("sol", ...), SchedulerSettings())
    result.computations[0].order, result.computations[0].after.total_wasted_us

Scheduled are the computations that hold an asynchronous half or a delayed instruction,
callees first; all others keep their order. A caller sees its callees' new orders.

Source: openxla/xla `latency_hiding_scheduler.cc`, LatencyHidingScheduler (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from scheduler.estimators.base import Estimator
from scheduler.latency_hiding.async_form import SPELLINGS
from scheduler.latency_hiding.edges import connect_all
from scheduler.latency_hiding.fast_scan import FastScan, is_regular, knows
from scheduler.latency_hiding.gpu_tracker import make_tracker
from scheduler.latency_hiding.graph import ScheduleGraph
from scheduler.latency_hiding.groups import GroupState, find_groups
from scheduler.latency_hiding.hints import is_delayed_by_hint
from scheduler.latency_hiding.loop import run
from scheduler.latency_hiding.result import (
    FIRST,
    ComputationSchedule,
    Decision,
    ScheduleResult,
)
from scheduler.latency_hiding.rule import Rule
from scheduler.latency_hiding.rules import RULES, active_rules
from scheduler.latency_hiding.scan import Policy, RuleScan, Watcher
from scheduler.latency_hiding.settings import SchedulerSettings
from scheduler.latency_hiding.state import SchedulingState
from scheduler.latency_hiding.statistics import Statistics, lhs_statistics
from scheduler.latency_hiding.tracker import AsyncTracker
from scheduler.memory.pressure import ModuleMemory

#: What remains of the limit in each further round.
_RERUN_SHARE: Final = 0.9

#: Called with (computation, placed so far, instructions) now and then.
Progress = Callable[[Computation, int, int], None]


def schedule_module(
    module: Module,
    estimator: Estimator,
    settings: SchedulerSettings | None = None,
    *,
    rules: Sequence[Rule] = RULES,
    log_decisions: bool = False,
) -> ScheduleResult:
    """Give every computation with asynchronous operations its new order, in place.

    Args:
        module: scheduled (is_scheduled=true).
        estimator: of costs and latencies, us.
        settings: of the run; the GPU's where not given.
        rules: in place of XLA's, in order.
        log_decisions: note every comparison, in XLA's layout.

    Raises PassError E030 to E034 (see docs/errors.md).
    """
    return _Run(
        module, estimator, settings or SchedulerSettings(), tuple(rules), log_decisions
    ).run()


def computations_to_schedule(
    module: Module, tracker: AsyncTracker
) -> list[Computation]:
    """Those that hold a supported half or a delayed instruction, callees first."""
    return [
        computation
        for computation in computations_post_order(module, fusions=False)
        if any(_is_worth_it(tracker, i) for i in computation.instructions)
    ]


def _is_worth_it(tracker: AsyncTracker, instruction: Instruction) -> bool:
    half = SPELLINGS[instruction.opcode][0]
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
        estimator: Estimator,
        settings: SchedulerSettings,
        rules: tuple[Rule, ...],
        log_decisions: bool,
    ) -> None:
        self.module = module
        self.estimator = estimator
        self.settings = settings
        self.rules = active_rules(settings, rules)
        self.log_decisions = log_decisions
        self.tracker = make_tracker(settings)
        self.limit_bytes = settings.memory_limit_bytes
        self.delays_starts = settings.delays_starts(estimator.name)
        self.decisions: dict[Computation, list[Decision]] = {}

    def run(self) -> ScheduleResult:
        chosen = computations_to_schedule(self.module, self.tracker)
        if not chosen:
            return ScheduleResult(self.module, ())
        settings = self.settings
        memory = ModuleMemory(self.module, top_down=settings.top_down_scheduling)
        peaks = {
            c: memory.of(c).initial_bytes + memory.stored_peak_bytes(c) for c in chosen
        }
        before = {c: self._statistics(c, peaks[c]) for c in chosen}
        self._schedule_all(chosen, memory)
        reruns = 0
        while reruns < settings.rerun and self._is_too_large(memory):
            reruns += 1
            memory = memory.replayed()
            self.limit_bytes = int((self.limit_bytes or 0) * _RERUN_SHARE)
            self._schedule_all(chosen, memory)
        replayed = ModuleMemory(self.module, top_down=settings.top_down_scheduling)
        done = tuple(
            ComputationSchedule(
                c,
                c.instructions,
                before[c],
                self._statistics(
                    c,
                    replayed.of(c).initial_bytes + replayed.stored_peak_bytes(c),
                ),
                tuple(self.decisions.get(c, ())),
            )
            for c in chosen
        )
        return ScheduleResult(
            self.module, done, memory.module_peak_bytes, self.limit_bytes, reruns
        )

    def _is_too_large(self, memory: ModuleMemory) -> bool:
        limit = self.settings.memory_limit_bytes
        return limit is not None and memory.module_peak_bytes > limit

    def _schedule_all(self, chosen: list[Computation], memory: ModuleMemory) -> None:
        for computation in chosen:
            order = self._schedule(computation, memory)
            computation.set_order(order)
            self.tracker.forget_order(computation)

    def _schedule(
        self, computation: Computation, memory: ModuleMemory
    ) -> list[Instruction]:
        graph = ScheduleGraph(
            computation, computation.instructions, self.estimator, self.tracker
        )
        connect_all(graph, memory.alias_hazard_uses)
        state = SchedulingState(
            graph,
            memory=memory.of(computation),
            memory_limit_bytes=self.limit_bytes,
            delays_starts=self.delays_starts,
        )
        watcher = self._watcher(graph)
        groups = find_groups(graph)
        if groups:
            state.groups = GroupState(state, groups, watcher)
        state.seed()
        order = run(state, self._policy(state, watcher))
        if state.memory is not None:
            memory.rescheduled(computation, state.memory.peak_delta_bytes)
        return [graph.instructions[n] for n in order]

    def _policy(self, state: SchedulingState, watcher: Watcher | None) -> Policy:
        is_plain = watcher is None and knows(self.rules, self.settings)
        if is_plain and is_regular(state):
            return FastScan(state)
        return RuleScan(self.rules, watcher)

    def _watcher(self, graph: ScheduleGraph) -> Watcher | None:
        if not self.log_decisions:
            return None
        log = self.decisions[graph.computation] = []

        def note(chosen: int, other: int | None, rule: Rule | None) -> None:
            log.append(
                Decision(
                    graph.name(chosen),
                    "" if other is None else graph.name(other),
                    FIRST if rule is None else rule.reason,
                )
            )

        return note

    def _statistics(self, computation: Computation, peak_bytes: int) -> Statistics:
        return lhs_statistics(
            computation, self.estimator, self.tracker, peak_bytes=peak_bytes
        )
