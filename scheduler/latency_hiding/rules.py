"""XLA's rules, in XLA's order: the first with an opinion decides.

    RULES                      all of them; settings turn some off
    active_rules(settings)     those that a run asks

A row says which number decides; `rule.py` says how rows are applied. Comparisons are
exact. The relation is not transitive (kAvoidWaste), so the order of candidates counts.

Rules of memory have an opinion once usage is above half the limit. Above the limit, the
candidate that adds least comes first; below it, candidates that would raise the peak
above the limit are delayed.

TPUs have one rule of their own, kAsyncDoneDataDependency. It is not in the open
sources: it was found in decisions that nothing else explains (docs/tpu.md). The GPU has
three groups of rules:

    E1  while a copy inside the GPU is open, work that can hide it
    E2  start delay: starts yield to compute, so that their windows grow
    E3  a start that writes a slice to the host goes as far up as possible

E2 came with openxla pull request 26196. Without it a start is placed as soon as its
latency is covered; with it every available start yields to all work that is ready, and
among starts the one under the deeper chain is placed first. Where either candidate
occupies a resource, E2 leaves the pair to the general rules, and so does E3 then.

Source: openxla/xla `latency_hiding_scheduler.cc` (ReadySetLt, MemoryPressurePolicy),
`gpu_hlo_schedule.cc`, `gpu_latency_hiding_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from hlo_passes.scheduler.latency_hiding.resources import Resource
from hlo_passes.scheduler.latency_hiding.rule import Rule, bottom_up, by_number
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: A row of XLA's list. A test checks that arrays and nodes receive the same answers.
_row = partial(by_number, proven=True)


# -- what settings turn on ----------------------------------------------------------


def _aggressive(settings: SchedulerSettings) -> bool:
    return settings.aggressive_scheduling_policies


def _depth_before_stall(settings: SchedulerSettings) -> bool:
    return _aggressive(settings) and settings.prioritize_async_depth_over_stall


def _depth_after_stall(settings: SchedulerSettings) -> bool:
    return _aggressive(settings) and not settings.prioritize_async_depth_over_stall


def _by_depth(settings: SchedulerSettings) -> bool:
    return settings.depth_based_memory_pressure_reduction


def _delays_after_target(settings: SchedulerSettings) -> bool:
    return settings.aggressive_flexible_annotation_scheduling


def _on_gpu(settings: SchedulerSettings) -> bool:
    return settings.flavour == "gpu"


def _selective(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and settings.enable_selective_memcpy_overlap


def _aggressive_gpu(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and _aggressive(settings)


def _bottom_up_tpu(settings: SchedulerSettings) -> bool:
    return settings.flavour == "tpu" and bottom_up(settings)


def _bottom_up_gpu(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and bottom_up(settings)


# -- when a rule has an opinion, of which candidates --------------------------------


def _copy_is_open(state: SchedulingState) -> bool:
    """Whether a copy inside the GPU is open."""
    memcpy = Resource.GPU_MEMCPY
    return state.free[memcpy] != state.limits[memcpy]


def _delays_starts(state: SchedulingState) -> bool:
    return state.delays_starts


def _somebody_waits(state: SchedulingState) -> bool:
    """Whether candidates are left that are not ready yet."""
    return state.queue.top() is not None


def _occupies_nothing(s: Any, n: Any) -> Any:
    return s.graph.occupies[n] == 0


def _is_free_start(s: Any, n: Any) -> Any:
    """Whether it releases a resource that nobody is waiting for."""
    return (s.graph.releases[n] == 1) > s.is_constrained(n)


def _is_left_to_delay(s: Any, n: Any) -> Any:
    """Whether it is a start that E2 looks at, whose resource nobody waits for."""
    return _is_free_start(s, n) > s.graph.occupies[n]


def _is_left_to_host_writes(s: Any, n: Any) -> Any:
    """Under E2, what occupies nothing; else everything."""
    return (s.graph.occupies[n] == 0) | (not s.delays_starts)


# -- rows that XLA's list has twice -------------------------------------------------


def _around_memory(row: Rule) -> tuple[Rule, Rule]:
    """A rule before the rules of memory, and the same after them: one of them is on."""

    def first(settings: SchedulerSettings) -> bool:
        return settings.force_delay_over_memory_pressure and row.applies(settings)

    def later(settings: SchedulerSettings) -> bool:
        return not settings.force_delay_over_memory_pressure and row.applies(settings)

    return (
        replace(
            row,
            name=f"{row.name}-over-memory",
            applies=first,
            condition=f"{row.condition}, force-delay-over-memory-pressure",
        ),
        replace(row, applies=later),
    )


def _start_at_zero_depth(name: str, before_stall: bool) -> Rule:
    return _row(
        name,
        "kStartAtZeroDepth",
        "anything but a start without asynchronous work above it, unless its resource "
        "is exhausted and wanted",
        lambda s, n: (s.is_top_start[n] == 1) > s.is_constrained(n),
        smaller=True,
        by_class="all",
        applies=_depth_before_stall if before_stall else _depth_after_stall,
        condition="aggressive-scheduling-policies"
        + (", prioritize-async-depth-over-stall" if before_stall else ""),
    )


#: The GPU's own rules and that of flexible groups, (before, after) the rules of memory.
_AROUND_MEMORY: Final = tuple(
    map(
        _around_memory,
        (
            _row(
                "prefer-compute-for-copies", "kPreferComputeForD2DMemcpyOverlap",
                "while a copy inside the GPU is open, what memory does not bound",
                lambda s, n: s.graph.not_valuable[n] == 0,
                awake=_copy_is_open, applies=_selective,
                condition="enable-selective-memcpy-overlap",
            ),
            _row(
                "delay-start-for-compute", "kDelayAsyncStartForCompute",
                "anything but a start whose resource nobody waits for",
                _is_free_start, smaller=True, by_class="all", kind=_occupies_nothing,
                concerns=_delays_starts, applies=_aggressive_gpu,
                condition="start-delay",
            ),
            _row(
                "delay-start-for-depth", "kDelayAsyncStartForDepth",
                "of two such starts, that under the deeper chain of work, us",
                lambda s, n: s.depth[n], by_class="kind", kind=_is_left_to_delay,
                concerns=_delays_starts, applies=_aggressive_gpu,
                condition="start-delay",
            ),
            _row(
                "delay-host-writes", "kDelayMoveToHostAsyncStart",
                "anything but the start of a fusion that updates a slice",
                lambda s, n: s.graph.writes_to_host[n] == 1, smaller=True,
                by_class="all", kind=_is_left_to_host_writes,
                concerns=lambda s: 1 in s.graph.writes_to_host,
                applies=_bottom_up_gpu, condition="gpu",
            ),
            _row(
                "force-delay-after-target", "kForceDelayAfterTarget",
                "what no flexible group holds back",
                lambda s, n: s.delay_after_target[n] == 1,
                smaller=True, reversed_top_down=True,
                awake=lambda s: s.delays_after_target, applies=_delays_after_target,
                condition="aggressive-flexible-annotation-scheduling",
            ),
        ),
    )
)  # fmt: skip

#: All rules in XLA's order.
RULES: Final[tuple[Rule, ...]] = (
    _row(
        "force-early", "kForceEarly", "the hint force_early",
        lambda s, n: s.graph.force_early[n], reversed_top_down=True, by_class="all",
    ),
    _row(
        "force-delay", "kForceDelay", "what has no hint force_delay",
        lambda s, n: s.graph.force_delay[n],
        smaller=True, reversed_top_down=True, by_class="all",
    ),
    _row(
        "force-delay-priority", "kForceDelayPriority", "the smaller delay priority",
        lambda s, n: s.graph.delay_priority[n],
        smaller=True, reversed_top_down=True, by_class="all",
    ),
    _row(
        "preference", "kPreference", "the greater preference, where both have one",
        lambda s, n: s.preference[n], kind=lambda s, n: s.is_preferred[n],
        concerns=lambda s: s.has_preferences,
    ),
    *(before for before, _ in _AROUND_MEMORY),
    _row(
        "no-increase-over-limit", "kNoIncreaseMemoryOverLimit",
        "above the limit, what adds nothing and less than the other, bytes",
        lambda s, n: s.memory_increase(n), smaller=True,
        kind=lambda s, n: s.memory_increase(n) <= 0, winner_only=True,
        awake=SchedulingState.is_memory_over, applies=_by_depth,
        condition="depth-based-memory-pressure-reduction",
    ),
    _row(
        "depth-over-limit", "kDepthOverLimit", "above the limit, the deeper one",
        lambda s, n: s.graph_depth[n], awake=SchedulingState.is_memory_over,
        applies=_by_depth, condition="depth-based-memory-pressure-reduction",
    ),
    _row(
        "decrease-memory-over-limit", "kDecreaseMemoryOverLimit",
        "above the limit, what adds less memory, bytes",
        lambda s, n: s.memory_increase(n), smaller=True,
        awake=SchedulingState.is_memory_over,
    ),
    _row(
        "memory-peak-over-limit", "kMemoryPeakOverLimit",
        "above half the limit, what keeps the peak below it",
        lambda s, n: s.keeps_peak(n), awake=SchedulingState.is_memory_tight,
    ),
    *(after for _, after in _AROUND_MEMORY),
    _row(
        "delay-start-of-same-preference", "kDelayAsyncStartOfSamePreference",
        "what is not a start", lambda s, n: s.graph.is_start[n],
        smaller=True, by_class="all",
        applies=lambda s: s.enable_schedule_by_structure and not s.top_down_scheduling,
        condition="enable-schedule-by-structure",
    ),
    _row(
        "delay-done-of-same-preference", "kDelayAsyncDoneOfSamePreference",
        "what is not a done", lambda s, n: s.graph.is_done[n],
        smaller=True, by_class="all",
        applies=lambda s: s.enable_schedule_by_structure and s.top_down_scheduling,
        condition="enable-schedule-by-structure, top-down",
    ),
    _row(
        "schedule-done", "kScheduleDone",
        "what occupies a resource (a done, a loop with dones), except a host send that "
        "can wait",
        lambda s, n: (s.graph.occupies[n] == 1) > s.delays_host_send(n),
        by_class="all", applies=bottom_up,
    ),
    _row(
        "schedule-start", "kScheduleAsyncStart", "a start that occupies a resource",
        lambda s, n: (s.graph.is_start[n] & s.graph.occupies[n]) == 1,
        by_class="all",
        applies=lambda s: s.top_down_scheduling, condition="top-down",
    ),
    _row(
        "delay-done-of-delayed-start", "kDelayDoneOfForceDelayedAsyncStart",
        "of two dones of one opcode, that whose start has no hint force_delay",
        lambda s, n: s.graph.is_delayed_done[n] == 1,
        smaller=True, reversed_top_down=True,
        kind=lambda s, n: s.graph.done_kind[n],
        concerns=lambda s: s.graph.has_delayed_dones,
    ),
    _row(
        "release-nonextendable", "kReleaseNonextendable",
        "what should have released its resource longer ago",
        lambda s, n: s.past_due(n), concerns=lambda s: s.graph.has_nonextendable,
    ),
    _row(
        "release-start", "kScheduleStart",
        "the start of a permute that is ready, of two the one ready later, us",
        lambda s, n: s.permute_ready_in(n),
        applies=lambda s: s.enable_release_start_policy,
        condition="enable-release-start-policy",
    ),
    _start_at_zero_depth("start-at-zero-depth-over-stall", before_stall=True),
    _row(
        "less-stall", "kLessStall", "the shorter stall, us",
        lambda s, n: s.stall(n), smaller=True,
    ),
    _row(
        "less-serial-conflict", "kLessSerialResourceConflict",
        "fewer holders of its serial resources",
        lambda s, n: s.serial_conflicts(n), smaller=True,
        applies=lambda s: s.resource_serializing, condition="resource-serializing",
    ),
    _start_at_zero_depth("start-at-zero-depth", before_stall=False),
    _row(
        "free-backed-up-resource", "kFreeBackedupResource",
        "a start whose resource is exhausted and wanted",
        lambda s, n: s.is_constrained(n) & (s.graph.releases[n] == 1), by_class="all",
    ),
    _row(
        "async-depth", "kAsyncDepth", "more asynchronous latency above it, us",
        lambda s, n: s.async_depth[n],
        applies=lambda s: _aggressive(s) and bottom_up(s),
        condition="aggressive-scheduling-policies",
    ),
    _row(
        "async-height", "kAsyncHeight", "more asynchronous latency below it, us",
        lambda s, n: s.async_height[n],
        applies=lambda s: _aggressive(s) and s.top_down_scheduling,
        condition="aggressive-scheduling-policies, top-down",
    ),
    _row(
        "avoid-waste", "kAvoidWaste",
        "while candidates wait to become ready, the cost nearest to the time until the "
        "first of them does; a start never wins by this",
        lambda s, n: s.cost_distance(n), smaller=True,
        kind=lambda s, n: s.graph.releases[n] == 0, winner_only=True,
        awake=_somebody_waits, applies=_aggressive,
        condition="aggressive-scheduling-policies",
    ),
    Rule(
        "done-data-dependency", "kAsyncDoneDataDependency",
        "of two dones, that whose start sends what is computed from what the other's "
        "start sends",
        lambda s, a, b: s.graph.sent_after.compare(a, b), lambda s, n: None,
        applies=_bottom_up_tpu, condition="tpu",
        concerns=lambda s: s.graph.sent_after.speaks,
    ),
    _row(
        "unlock-done", "kUnlockDone", "what reads a done",
        lambda s, n: s.graph.operand_is_done[n], applies=bottom_up,
    ),
    _row(
        "unlock-start", "kUnlockStart", "what a start reads",
        lambda s, n: s.graph.user_is_start[n],
        applies=lambda s: s.top_down_scheduling, condition="top-down",
    ),
    _row(
        "not-valuable-for-selective-overlap", "kNotValuableForSelectiveOverlap",
        "while no copy is open but one is near, what could not hide it",
        lambda s, n: s.hides_near_copy(n), smaller=True,
        awake=lambda s: not s.selective_releasers,
        applies=lambda s: s.enable_selective_memcpy_overlap,
        condition="enable-selective-memcpy-overlap",
    ),
    _row(
        "creates-more-ready-nodes", "kCreatesMoreReadyNodes",
        "what makes more others available", lambda s, n: s.unlocks[n],
        applies=_aggressive, condition="aggressive-scheduling-policies",
    ),
    _row(
        "decrease-memory", "kDecreaseMemory",
        "what shrinks memory, once usage is above half the limit",
        lambda s, n: s.memory_increase(n) < 0, awake=SchedulingState.is_memory_tight,
    ),
    _row(
        "original-order", "kOriginalOrder", "the later one of the order given",
        lambda s, n: -n if s.top_down else n,
    ),
)  # fmt: skip


def active_rules(
    settings: SchedulerSettings,
    rules: tuple[Rule, ...] = RULES,
) -> tuple[Rule, ...]:
    """The rules that settings leave on, in order."""
    return tuple(rule for rule in rules if rule.applies(settings))
