"""Rules of memory pressure: they apply once usage is above half the limit.

Above the limit, the instruction that adds the least comes first; between half the limit
and all of it, instructions that would lift the peak over the limit are delayed.

Source: openxla/xla `latency_hiding_scheduler.cc`, MemoryPressurePolicy (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState


def _increase(state: SchedulingState, n: int) -> int:
    return state.memory_change(n)[0] if state.is_memory_tight() else 0


def _is_over(state: SchedulingState) -> bool:
    limit = state.memory_limit_bytes
    return (
        state.memory is not None
        and state.is_memory_tight()
        and state.memory.usage_bytes >= (limit or 0)
    )


def _no_increase(state: SchedulingState, a: int, b: int) -> int:
    if not _is_over(state):
        return 0
    of_a, of_b = state.memory_change(a)[0], state.memory_change(b)[0]
    return (of_a <= 0 and of_a < of_b) - (of_b <= 0 and of_b < of_a)


def _depth_over_limit(state: SchedulingState, n: int) -> int:
    return state.graph_depth[n] if _is_over(state) else 0


def _increase_over_limit(state: SchedulingState, n: int) -> int:
    return state.memory_change(n)[0] if _is_over(state) else 0


def _stays_below(state: SchedulingState, n: int) -> bool:
    if state.memory is None or not state.is_memory_tight():
        return False
    peak = state.memory.usage_bytes + state.memory_change(n)[1]
    return peak <= (state.memory_limit_bytes or 0)


def is_decrease(state: SchedulingState, n: int) -> bool:
    """Whether placing a node shrinks memory; asked under pressure only."""
    return state.is_memory_tight() and state.memory_change(n)[0] < 0


def _by_depth(settings: SchedulerSettings) -> bool:
    return settings.depth_based_memory_pressure_reduction


#: In XLA's order.
MEMORY_RULES: Final = (
    Rule(
        "no-increase-over-limit", "kNoIncreaseMemoryOverLimit",
        "above the limit, what adds nothing and less than the other, bytes",
        _no_increase, _increase, _by_depth, "depth-based-memory-pressure-reduction",
    ),
    by_number(
        "depth-over-limit", "kDepthOverLimit", "above the limit, the deeper one",
        _depth_over_limit, applies=_by_depth,
        condition="depth-based-memory-pressure-reduction",
    ),
    by_number(
        "decrease-memory-over-limit", "kDecreaseMemoryOverLimit",
        "above the limit, what adds less memory, bytes",
        _increase_over_limit, smaller=True,
    ),
    by_number(
        "memory-peak-over-limit", "kMemoryPeakOverLimit",
        "above half the limit, what keeps the peak below it", _stays_below,
    ),
)  # fmt: skip
