"""XLA's rules, in XLA's order: the first with an opinion decides.

    RULES                      all of them; settings turn some off
    active_rules(settings)     those that a run asks

Comparisons are exact. The relation is not transitive (kAvoidWaste), so a scan compares
each candidate in list order with the best so far.

Source: openxla/xla `latency_hiding_scheduler.cc`, ReadySetLt (Aug 2026).
"""

from __future__ import annotations

import math
from typing import Final

from hlo_passes.scheduler.latency_hiding.memory_rules import MEMORY_RULES, is_decrease
from hlo_passes.scheduler.latency_hiding.resources import Resource, Usage
from hlo_passes.scheduler.latency_hiding.rule import Rule, bottom_up, by_number
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.scheduler.latency_hiding.target_rules import TARGET_RULES


def _preference(state: SchedulingState, a: int, b: int) -> int:
    of_a, of_b = state.preference.get(a), state.preference.get(b)
    if of_a is None or of_b is None:
        return 0
    return (of_a > of_b) - (of_a < of_b)


def _occupies_now(state: SchedulingState, n: int) -> bool:
    """Whether it occupies anything and is no host send whose done can wait."""
    return bool(state.graph.occupies[n]) and not _is_delayed_host_send(state, n)


def _is_delayed_host_send(state: SchedulingState, n: int) -> bool:
    graph = state.graph
    if graph.instructions[n].opcode != "send-done":
        return False
    if all(r is not Resource.SEND_HOST for r, _ in graph.resources.get(n, ())):
        return False
    start = graph.start_of(n)
    if start is None:
        return False
    latencies = graph.succ_us[start]
    estimated = 0.0
    for k, s in enumerate(graph.succs[start]):
        if state.ready_at[s] == math.inf:
            return False
        us = 1.0 if latencies is None else latencies[k]
        estimated = max(estimated, state.ready_at[s] + us)
    return estimated - state.now > graph.latency_us(start, n)


def _starts_now(state: SchedulingState, n: int) -> bool:
    return bool(state.graph.is_start[n] and state.graph.occupies[n])


def _start_is_delayed(state: SchedulingState, n: int) -> bool:
    start = state.graph.start_of(n) if state.graph.is_done[n] else None
    return start is not None and bool(state.graph.force_delay[start])


def _delayed_start(state: SchedulingState, a: int, b: int) -> int:
    graph = state.graph
    if not (graph.is_done[a] and graph.is_done[b]):
        return 0
    if graph.instructions[a].opcode != graph.instructions[b].opcode:
        return 0
    verdict = _start_is_delayed(state, b) - _start_is_delayed(state, a)
    return -verdict if state.top_down else verdict


def _past_due(state: SchedulingState, n: int) -> float:
    tracker = state.graph.tracker
    for resource, usage in state.graph.resources.get(n, ()):
        if usage is Usage.RELEASE and tracker.is_nonextendable(resource):
            return max(state.now - state.ready_at[n], 0.0)
    return 0.0


def _is_ready_permute_start(state: SchedulingState, n: int) -> bool:
    entry = (Resource.COLLECTIVE_PERMUTE, Usage.RELEASE)
    return state.ready_at[n] <= state.now and entry in state.graph.resources.get(n, ())


def _release_start(state: SchedulingState, a: int, b: int) -> int:
    of_a, of_b = _is_ready_permute_start(state, a), _is_ready_permute_start(state, b)
    if of_a != of_b:
        return of_a - of_b
    if not of_a:
        return 0
    return (state.ready_at[a] > state.ready_at[b]) - (
        state.ready_at[a] < state.ready_at[b]
    )


def _is_free_at_zero_depth(state: SchedulingState, n: int) -> bool:
    """A start with no asynchronous work above it that nobody waits for."""
    return (
        bool(state.graph.releases[n])
        and state.async_depth[n] == 0
        and not state.is_constrained(n)
    )


def _stall(state: SchedulingState, n: int) -> float:
    return max(state.ready_at[n] - state.now, 0.0)


def _serial_conflicts(state: SchedulingState, n: int) -> int:
    in_flight, tracker = state.in_flight, state.graph.tracker
    if in_flight is None:
        return 0
    return sum(
        in_flight.count(r)
        for r, usage in state.graph.resources.get(n, ())
        if usage is Usage.OCCUPY and tracker.is_serial(r)
    )


def _frees_backup(state: SchedulingState, n: int) -> bool:
    return bool(state.graph.releases[n]) and state.is_constrained(n)


def _cost_distance(state: SchedulingState, n: int) -> float:
    """How far its cost is from the time until the next candidate becomes ready."""
    top = state.queue.top()
    return 0.0 if top is None else abs(top - state.now - state.graph.cost[n])


def _avoid_waste(state: SchedulingState, a: int, b: int) -> int:
    if state.queue.top() is None:
        return 0
    of_a, of_b = _cost_distance(state, a), _cost_distance(state, b)
    releases = state.graph.releases
    return (not releases[a] and of_a < of_b) - (not releases[b] and of_b < of_a)


def _hides_near_copy(state: SchedulingState, n: int) -> bool:
    """Whether it could hide a copy that is near; XLA then holds it back."""
    if state.graph.not_valuable[n]:
        return False
    nearest = min((state.hops[y] for y in state.ready if y != n), default=2**63 - 1)
    return nearest <= state.settings.max_hops_to_closest_selective_overlap


def _hold_back(state: SchedulingState, a: int, b: int) -> int:
    if state.selective_releasers:
        return 0
    return _hides_near_copy(state, b) - _hides_near_copy(state, a)


def _aggressive(settings: SchedulerSettings) -> bool:
    return settings.aggressive_scheduling_policies


def _depth_before_stall(settings: SchedulerSettings) -> bool:
    return _aggressive(settings) and settings.prioritize_async_depth_over_stall


def _depth_after_stall(settings: SchedulerSettings) -> bool:
    return _aggressive(settings) and not settings.prioritize_async_depth_over_stall


def _delays_after_target_first(settings: SchedulerSettings) -> bool:
    return (
        settings.aggressive_flexible_annotation_scheduling
        and settings.force_delay_over_memory_pressure
    )


def _delays_after_target_later(settings: SchedulerSettings) -> bool:
    return (
        settings.aggressive_flexible_annotation_scheduling
        and not settings.force_delay_over_memory_pressure
    )


def _delay_after_target(name: str, first: bool) -> Rule:
    return by_number(
        name,
        "kForceDelayAfterTarget",
        "what no flexible group holds back",
        lambda s, n: n in s.delay_after_target,
        smaller=True,
        reversed_top_down=True,
        applies=_delays_after_target_first if first else _delays_after_target_later,
        condition="aggressive-flexible-annotation-scheduling"
        + (", force-delay-over-memory-pressure" if first else ""),
    )


def _start_at_zero_depth(name: str, before_stall: bool) -> Rule:
    return by_number(
        name,
        "kStartAtZeroDepth",
        "anything but a start without asynchronous work above it, unless its resource "
        "is exhausted and wanted",
        _is_free_at_zero_depth,
        smaller=True,
        applies=_depth_before_stall if before_stall else _depth_after_stall,
        condition="aggressive-scheduling-policies"
        + (", prioritize-async-depth-over-stall" if before_stall else ""),
    )


#: All rules in XLA's order.
RULES: Final[tuple[Rule, ...]] = (
    by_number(
        "force-early", "kForceEarly", "the hint force_early",
        lambda s, n: s.graph.force_early[n], reversed_top_down=True,
    ),
    by_number(
        "force-delay", "kForceDelay", "what has no hint force_delay",
        lambda s, n: s.graph.force_delay[n], smaller=True, reversed_top_down=True,
    ),
    by_number(
        "force-delay-priority", "kForceDelayPriority", "the smaller delay priority",
        lambda s, n: s.graph.delay_priority.get(n, 0),
        smaller=True, reversed_top_down=True,
    ),
    Rule(
        "preference", "kPreference", "the greater preference, where both have one",
        _preference, lambda s, n: s.preference.get(n),
    ),
    *(rule for rule in TARGET_RULES if rule.name.endswith("-over-memory")),
    _delay_after_target("force-delay-after-target-over-memory", first=True),
    *MEMORY_RULES,
    *(rule for rule in TARGET_RULES if not rule.name.endswith("-over-memory")),
    _delay_after_target("force-delay-after-target", first=False),
    by_number(
        "delay-start-of-same-preference", "kDelayAsyncStartOfSamePreference",
        "what is no start", lambda s, n: s.graph.is_start[n], smaller=True,
        applies=lambda s: s.enable_schedule_by_structure and not s.top_down_scheduling,
        condition="enable-schedule-by-structure",
    ),
    by_number(
        "delay-done-of-same-preference", "kDelayAsyncDoneOfSamePreference",
        "what is no done", lambda s, n: s.graph.is_done[n], smaller=True,
        applies=lambda s: s.enable_schedule_by_structure and s.top_down_scheduling,
        condition="enable-schedule-by-structure, top-down",
    ),
    by_number(
        "schedule-done", "kScheduleDone",
        "what occupies a resource (a done, a loop with dones), a host send that can "
        "wait excepted",
        _occupies_now, applies=bottom_up,
    ),
    by_number(
        "schedule-start", "kScheduleAsyncStart", "a start that occupies a resource",
        _starts_now, applies=lambda s: s.top_down_scheduling, condition="top-down",
    ),
    Rule(
        "delay-done-of-delayed-start", "kDelayDoneOfForceDelayedAsyncStart",
        "of two dones of one opcode, that whose start has no hint force_delay",
        _delayed_start, _start_is_delayed,
    ),
    by_number(
        "release-nonextendable", "kReleaseNonextendable",
        "what should have released its resource longer ago", _past_due,
    ),
    Rule(
        "release-start", "kScheduleStart", "the start of a permute that is ready",
        _release_start, _is_ready_permute_start,
        lambda s: s.enable_release_start_policy, "enable-release-start-policy",
    ),
    _start_at_zero_depth("start-at-zero-depth-over-stall", before_stall=True),
    by_number(
        "less-stall", "kLessStall", "the shorter stall, us", _stall, smaller=True,
    ),
    by_number(
        "less-serial-conflict", "kLessSerialResourceConflict",
        "fewer holders of its serial resources", _serial_conflicts, smaller=True,
        applies=lambda s: s.resource_serializing, condition="resource-serializing",
    ),
    _start_at_zero_depth("start-at-zero-depth", before_stall=False),
    by_number(
        "free-backed-up-resource", "kFreeBackedupResource",
        "a start whose resource is exhausted and wanted", _frees_backup,
    ),
    by_number(
        "async-depth", "kAsyncDepth", "more asynchronous latency above it, us",
        lambda s, n: s.async_depth[n],
        applies=lambda s: _aggressive(s) and bottom_up(s),
        condition="aggressive-scheduling-policies",
    ),
    by_number(
        "async-height", "kAsyncHeight", "more asynchronous latency below it, us",
        lambda s, n: s.async_height[n],
        applies=lambda s: _aggressive(s) and s.top_down_scheduling,
        condition="aggressive-scheduling-policies, top-down",
    ),
    Rule(
        "avoid-waste", "kAvoidWaste",
        "while candidates wait to become ready, the cost nearest to the time until the "
        "first of them does; a start never wins by this",
        _avoid_waste, _cost_distance, _aggressive, "aggressive-scheduling-policies",
    ),
    by_number(
        "unlock-done", "kUnlockDone", "what reads a done",
        lambda s, n: s.graph.operand_is_done[n], applies=bottom_up,
    ),
    by_number(
        "unlock-start", "kUnlockStart", "what a start reads",
        lambda s, n: s.graph.user_is_start[n],
        applies=lambda s: s.top_down_scheduling, condition="top-down",
    ),
    Rule(
        "not-valuable-for-selective-overlap", "kNotValuableForSelectiveOverlap",
        "while no copy is open but one is near, what could not hide it",
        _hold_back, _hides_near_copy, lambda s: s.enable_selective_memcpy_overlap,
        "enable-selective-memcpy-overlap",
    ),
    by_number(
        "creates-more-ready-nodes", "kCreatesMoreReadyNodes",
        "what makes more others available", lambda s, n: s.unlocks[n],
        applies=_aggressive, condition="aggressive-scheduling-policies",
    ),
    by_number(
        "decrease-memory", "kDecreaseMemory",
        "what shrinks memory, once usage is above half the limit", is_decrease,
    ),
    by_number(
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
