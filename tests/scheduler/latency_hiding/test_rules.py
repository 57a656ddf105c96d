"""XLA's rules row by row: their order, what turns them on, which candidate they prefer.

A row is asked about two candidates that differ in one number, through a stand-in for the
state that holds numbers alone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hlo_passes.scheduler.latency_hiding.resources import Resource
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings

#: XLA's list, as ReadySetLt asks: name -> what its log says.
IN_ORDER = {
    "force-early": "kForceEarly",
    "force-delay": "kForceDelay",
    "force-delay-priority": "kForceDelayPriority",
    "preference": "kPreference",
    "prefer-compute-for-copies-over-memory": "kPreferComputeForD2DMemcpyOverlap",
    "delay-start-for-compute-over-memory": "kDelayAsyncStartForCompute",
    "delay-start-for-depth-over-memory": "kDelayAsyncStartForDepth",
    "delay-host-writes-over-memory": "kDelayMoveToHostAsyncStart",
    "force-delay-after-target-over-memory": "kForceDelayAfterTarget",
    "no-increase-over-limit": "kNoIncreaseMemoryOverLimit",
    "depth-over-limit": "kDepthOverLimit",
    "decrease-memory-over-limit": "kDecreaseMemoryOverLimit",
    "memory-peak-over-limit": "kMemoryPeakOverLimit",
    "prefer-compute-for-copies": "kPreferComputeForD2DMemcpyOverlap",
    "delay-start-for-compute": "kDelayAsyncStartForCompute",
    "delay-start-for-depth": "kDelayAsyncStartForDepth",
    "delay-host-writes": "kDelayMoveToHostAsyncStart",
    "force-delay-after-target": "kForceDelayAfterTarget",
    "delay-start-of-same-preference": "kDelayAsyncStartOfSamePreference",
    "delay-done-of-same-preference": "kDelayAsyncDoneOfSamePreference",
    "schedule-done": "kScheduleDone",
    "schedule-start": "kScheduleAsyncStart",
    "delay-done-of-delayed-start": "kDelayDoneOfForceDelayedAsyncStart",
    "release-nonextendable": "kReleaseNonextendable",
    "release-start": "kScheduleStart",
    "start-at-zero-depth-over-stall": "kStartAtZeroDepth",
    "less-stall": "kLessStall",
    "less-serial-conflict": "kLessSerialResourceConflict",
    "start-at-zero-depth": "kStartAtZeroDepth",
    "free-backed-up-resource": "kFreeBackedupResource",
    "async-depth": "kAsyncDepth",
    "async-height": "kAsyncHeight",
    "avoid-waste": "kAvoidWaste",
    "done-data-dependency": "kAsyncDoneDataDependency",
    "unlock-done": "kUnlockDone",
    "unlock-start": "kUnlockStart",
    "not-valuable-for-selective-overlap": "kNotValuableForSelectiveOverlap",
    "creates-more-ready-nodes": "kCreatesMoreReadyNodes",
    "decrease-memory": "kDecreaseMemory",
    "original-order": "kOriginalOrder",
}
AROUND_MEMORY = (
    "prefer-compute-for-copies delay-start-for-compute delay-start-for-depth "
    "delay-host-writes force-delay-after-target"
).split()


def test_all_rules_are_in_xlas_order() -> None:
    assert {rule.name: rule.reason for rule in RULES} == IN_ORDER
    assert [rule.name for rule in RULES] == list(IN_ORDER)


def active(**changes: Any) -> set[str]:
    return {rule.name for rule in active_rules(SchedulerSettings(**changes))}


#: On with the settings of XLA's GPU back end.
USUAL = {
    "force-early", "force-delay", "force-delay-priority", "preference",
    "decrease-memory-over-limit", "memory-peak-over-limit", "delay-start-for-compute",
    "delay-start-for-depth", "delay-host-writes", "schedule-done",
    "delay-done-of-delayed-start", "release-nonextendable", "less-stall",
    "start-at-zero-depth", "free-backed-up-resource", "async-depth", "avoid-waste",
    "unlock-done", "creates-more-ready-nodes", "decrease-memory", "original-order",
}  # fmt: skip
#: Settings -> (rules that they add, rules that they take away).
SWITCHES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "", ""),
    (
        {"flavour": "generic"}, "",
        "delay-start-for-compute delay-start-for-depth delay-host-writes",
    ),
    (
        {"aggressive_scheduling_policies": False}, "",
        "delay-start-for-compute delay-start-for-depth start-at-zero-depth async-depth "
        "avoid-waste creates-more-ready-nodes",
    ),
    (
        {"prioritize_async_depth_over_stall": True},
        "start-at-zero-depth-over-stall", "start-at-zero-depth",
    ),
    (
        {"prioritize_async_depth_over_stall": True,
         "aggressive_scheduling_policies": False}, "",
        "delay-start-for-compute delay-start-for-depth start-at-zero-depth async-depth "
        "avoid-waste creates-more-ready-nodes",
    ),
    (
        {"depth_based_memory_pressure_reduction": True},
        "no-increase-over-limit depth-over-limit", "",
    ),
    (
        {"aggressive_flexible_annotation_scheduling": True},
        "force-delay-after-target", "",
    ),
    (
        {"enable_selective_memcpy_overlap": True},
        "prefer-compute-for-copies not-valuable-for-selective-overlap", "",
    ),
    (
        {"enable_selective_memcpy_overlap": True, "flavour": "generic"},
        "not-valuable-for-selective-overlap",
        "delay-start-for-compute delay-start-for-depth delay-host-writes",
    ),
    (
        {"flavour": "tpu"}, "done-data-dependency",
        "delay-start-for-compute delay-start-for-depth delay-host-writes",
    ),
    ({"enable_release_start_policy": True}, "release-start", ""),
    ({"resource_serializing": True}, "less-serial-conflict", ""),
    ({"enable_schedule_by_structure": True}, "delay-start-of-same-preference", ""),
    (
        {"top_down_scheduling": True}, "schedule-start async-height unlock-start",
        "schedule-done delay-host-writes async-depth unlock-done",
    ),
    (
        {"top_down_scheduling": True, "enable_schedule_by_structure": True},
        "schedule-start async-height unlock-start delay-done-of-same-preference",
        "schedule-done delay-host-writes async-depth unlock-done",
    ),
    (
        {"top_down_scheduling": True, "aggressive_scheduling_policies": False},
        "schedule-start unlock-start",
        "schedule-done delay-host-writes async-depth unlock-done "
        "delay-start-for-compute delay-start-for-depth start-at-zero-depth avoid-waste "
        "creates-more-ready-nodes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "added", "dropped"), SWITCHES)
def test_settings_turn_rules_on(
    changes: dict[str, Any], added: str, dropped: str
) -> None:
    wanted = (USUAL | {*added.split()}) - {*dropped.split()}
    assert active(**changes) == wanted
    # The GPU's own rules stand before those of memory where that is asked for.
    moved = {f"{n}-over-memory" if n in AROUND_MEMORY else n for n in wanted}
    assert active(force_delay_over_memory_pressure=True, **changes) == moved


def state(top_down: bool = False, **numbers: Any) -> Any:
    """A stand-in: the numbers of nodes 0 and 1, given as pairs; others are 0."""
    flags = (0, 0)
    of_graph: dict[str, Any] = dict.fromkeys(
        "force_early force_delay delay_priority not_valuable occupies releases "
        "is_start is_done writes_to_host is_delayed_done done_kind operand_is_done "
        "user_is_start".split(),
        flags,
    )
    asked: dict[str, Any] = dict.fromkeys(
        "memory_increase keeps_peak is_constrained delays_host_send past_due "
        "permute_ready_in stall serial_conflicts cost_distance hides_near_copy".split(),
        flags,
    )
    own: dict[str, Any] = dict.fromkeys(
        "preference is_preferred delay_after_target is_top_start depth graph_depth "
        "async_depth async_height unlocks".split(),
        flags,
    )
    own |= {
        "delays_after_target": True, "delays_starts": True, "selective_releasers": [],
        "has_preferences": True,
        "used": 10, "waits": True, "open": True,
    }  # fmt: skip
    for name, value in numbers.items():
        known = next(t for t in (of_graph, asked, own) if name in t)
        known[name] = value
    for name, values in asked.items():
        own[name] = lambda n, values=values: values[n]
    limits = [5] * len(Resource)
    free = list(limits)
    free[Resource.GPU_MEMCPY] -= own["open"]
    return SimpleNamespace(
        graph=SimpleNamespace(**of_graph),
        queue=SimpleNamespace(top=lambda: 3.0 if own["waits"] else None),
        free=free, limits=limits, top_down=top_down, **own,
        memory=SimpleNamespace(usage_bytes=own["used"]), memory_limit_bytes=10,
        is_memory_tight=lambda: own["used"] > 5,
    )  # fmt: skip


#: rule -> numbers of two candidates -> which one is preferred, bottom-up and top-down:
#: 0, 1, or - for no opinion.
PREFERS: list[tuple[str, dict[str, Any], str]] = [
    ("force-early", {"force_early": (0, 1)}, "10"),
    ("force-delay", {"force_delay": (0, 1)}, "01"),
    ("force-delay-priority", {"delay_priority": (2, 5)}, "01"),
    ("preference", {"preference": (2.0, 5.0), "is_preferred": (1, 1)}, "11"),
    ("preference", {"preference": (0.0, 5.0), "is_preferred": (0, 1)}, "--"),
    ("prefer-compute-for-copies", {"not_valuable": (0, 1)}, "00"),
    ("prefer-compute-for-copies", {"not_valuable": (0, 1), "open": False}, "--"),
    ("delay-start-for-compute", {"releases": (0, 1)}, "00"),
    ("delay-start-for-compute", {"releases": (0, 1), "is_constrained": (0, 1)}, "--"),
    ("delay-start-for-compute", {"releases": (0, 1), "occupies": (1, 0)}, "--"),
    ("delay-start-for-compute", {"releases": (0, 1), "occupies": (0, 1)}, "--"),
    ("delay-start-for-depth", {"releases": (1, 1), "depth": (2.0, 5.0)}, "11"),
    ("delay-start-for-depth", {"releases": (0, 1), "depth": (2.0, 5.0)}, "--"),
    ("delay-start-for-depth", {"depth": (2.0, 5.0)}, "--"),
    (
        "delay-start-for-depth",
        {"releases": (1, 1), "depth": (2.0, 5.0), "occupies": (0, 1)}, "--",
    ),
    (
        "delay-start-for-depth",
        {"releases": (1, 1), "depth": (2.0, 5.0), "is_constrained": (1, 0)}, "--",
    ),
    ("delay-host-writes", {"writes_to_host": (0, 1)}, "00"),
    ("delay-host-writes", {"writes_to_host": (0, 1), "occupies": (1, 0)}, "--"),
    (
        "delay-host-writes",
        {"writes_to_host": (0, 1), "occupies": (1, 0), "delays_starts": False}, "00",
    ),
    ("force-delay-after-target", {"delay_after_target": (0, 1)}, "01"),
    (
        "force-delay-after-target",
        {"delay_after_target": (0, 1), "delays_after_target": False}, "--",
    ),
    ("no-increase-over-limit", {"memory_increase": (0, 7)}, "00"),
    ("no-increase-over-limit", {"memory_increase": (-3, 0)}, "00"),
    ("no-increase-over-limit", {"memory_increase": (1, 7)}, "--"),
    (
        "no-increase-over-limit",
        {"memory_increase": (0, 7), "used": 9}, "--",
    ),
    ("depth-over-limit", {"graph_depth": (2, 5)}, "11"),
    ("depth-over-limit", {"graph_depth": (2, 5), "used": 9}, "--"),
    ("decrease-memory-over-limit", {"memory_increase": (1, 7)}, "00"),
    (
        "decrease-memory-over-limit",
        {"memory_increase": (1, 7), "used": 9}, "--",
    ),
    ("memory-peak-over-limit", {"keeps_peak": (True, False)}, "00"),
    (
        "memory-peak-over-limit",
        {"keeps_peak": (True, False), "used": 9}, "00",
    ),
    (
        "memory-peak-over-limit",
        {"keeps_peak": (True, False), "used": 5}, "--",
    ),
    ("delay-start-of-same-preference", {"is_start": (0, 1)}, "00"),
    ("delay-done-of-same-preference", {"is_done": (0, 1)}, "00"),
    ("schedule-done", {"occupies": (0, 1)}, "11"),
    ("schedule-done", {"occupies": (0, 1), "delays_host_send": (False, True)}, "--"),
    ("schedule-start", {"is_start": (1, 1), "occupies": (0, 1)}, "11"),
    ("schedule-start", {"is_start": (0, 0), "occupies": (0, 1)}, "--"),
    (
        "delay-done-of-delayed-start",
        {"is_delayed_done": (0, 1), "done_kind": (1, 1)}, "01",
    ),
    (
        "delay-done-of-delayed-start",
        {"is_delayed_done": (0, 1), "done_kind": (2, 1)}, "--",
    ),
    (
        "delay-done-of-delayed-start",
        {"is_delayed_done": (0, 1), "done_kind": (0, 0)}, "--",
    ),
    ("release-nonextendable", {"past_due": (2.0, 5.0)}, "11"),
    ("release-start", {"permute_ready_in": (-5.0, -2.0)}, "11"),
    ("start-at-zero-depth-over-stall", {"is_top_start": (0, 1)}, "00"),
    ("start-at-zero-depth", {"is_top_start": (0, 1)}, "00"),
    ("start-at-zero-depth", {"is_top_start": (0, 1), "is_constrained": (0, 1)}, "--"),
    ("less-stall", {"stall": (2.0, 5.0)}, "00"),
    ("less-serial-conflict", {"serial_conflicts": (0, 1)}, "00"),
    ("free-backed-up-resource", {"releases": (1, 1), "is_constrained": (0, 1)}, "11"),
    ("free-backed-up-resource", {"releases": (0, 0), "is_constrained": (0, 1)}, "--"),
    ("async-depth", {"async_depth": (2.0, 5.0)}, "11"),
    ("async-height", {"async_height": (2.0, 5.0)}, "11"),
    ("avoid-waste", {"cost_distance": (2.0, 5.0)}, "00"),
    ("avoid-waste", {"cost_distance": (2.0, 5.0), "waits": False}, "--"),
    ("avoid-waste", {"cost_distance": (2.0, 5.0), "releases": (1, 0)}, "--"),
    ("avoid-waste", {"cost_distance": (2.0, 5.0), "releases": (0, 1)}, "00"),
    ("unlock-done", {"operand_is_done": (0, 1)}, "11"),
    ("unlock-start", {"user_is_start": (0, 1)}, "11"),
    ("not-valuable-for-selective-overlap", {"hides_near_copy": (False, True)}, "00"),
    (
        "not-valuable-for-selective-overlap",
        {"hides_near_copy": (False, True), "selective_releasers": [1]}, "--",
    ),
    ("creates-more-ready-nodes", {"unlocks": (2, 5)}, "11"),
    ("decrease-memory", {"memory_increase": (-1, 0)}, "00"),
    ("decrease-memory", {"memory_increase": (0, 3)}, "--"),
    ("decrease-memory", {"memory_increase": (-1, 0), "used": 5}, "--"),
    ("original-order", {}, "10"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "numbers", "wanted"), PREFERS)
def test_a_row_prefers(name: str, numbers: dict[str, Any], wanted: str) -> None:
    rules = [rule for rule in RULES if rule.name in (name, f"{name}-over-memory")]
    for rule in rules:
        for top_down, winner in zip((False, True), wanted, strict=True):
            asked = state(top_down, **numbers)
            verdict = {"0": 1, "1": -1, "-": 0}[winner]
            assert rule.compare(asked, 0, 1) == verdict
            assert rule.compare(asked, 1, 0) == -verdict
            assert rule.compare(asked, 0, 0) == 0


@pytest.mark.parametrize(
    ("increase", "verdict"),
    [((-3, 0), 1), ((-1, 0), 1), ((0, 1), 1), ((0, 7), 1), ((1, 2), 0), ((1, 7), 0)],
)
def test_what_adds_nothing_comes_first_above_the_limit(
    increase: tuple[int, int], verdict: int
) -> None:
    """What frees or adds nothing wins, whatever the other adds; the setting asks it."""
    settings = SchedulerSettings(depth_based_memory_pressure_reduction=True)
    found = {rule.name: rule for rule in active_rules(settings)}
    rule = found["no-increase-over-limit"]
    assert rule.compare(state(memory_increase=increase), 0, 1) == verdict
    assert rule.compare(state(memory_increase=increase), 1, 0) == -verdict
    below = state(memory_increase=increase, used=9)
    assert rule.compare(below, 0, 1) == 0


def test_a_rule_prefers_the_larger_number_unless_it_says_otherwise() -> None:
    row = RULES[0]
    rule = Rule("own", "kOwn", "anything", row.compare, row.number, by_number=True)
    assert not rule.wants_smaller(top_down=False)
    assert not rule.wants_smaller(top_down=True)


def test_every_rule_has_its_line() -> None:
    """A rule with a comparison of its own has its tests with its subject."""
    assert {name for name, _, _ in PREFERS} == {
        rule.name
        for rule in RULES
        if rule.by_number and not rule.name.endswith("-over-memory")
    }
