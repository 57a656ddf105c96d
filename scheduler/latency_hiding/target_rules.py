"""The GPU's own rules, applied before most of the general ones.

    E1  while a copy inside the GPU is open, work that can hide it
    E2  start delay: starts yield to compute, so that their windows grow
    E3  a start that writes a slice to the host goes as far up as possible

E2 came with openxla pull request 26196. Without it a start is placed as soon as its
latency is covered; with it every available start yields to all work that is ready, and
of two starts the one under the deeper chain is placed first. If either candidate
occupies a resource, E2 leaves the pair to the general rules, and so does E3.

Source: openxla/xla `gpu_hlo_schedule.cc`, `gpu_latency_hiding_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hlo_passes.scheduler.latency_hiding.async_form import (
    SPELLINGS,
    wrapped_instruction,
)
from hlo_passes.scheduler.latency_hiding.gpu_tracker import is_on_host
from hlo_passes.scheduler.latency_hiding.resources import Resource
from hlo_passes.scheduler.latency_hiding.rule import Compare, Number, Rule
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState


def _hides_open_copy(state: SchedulingState, a: int, b: int) -> int:
    memcpy = Resource.GPU_MEMCPY
    if state.free[memcpy] == state.limits[memcpy]:
        return 0
    not_valuable = state.graph.not_valuable
    return not_valuable[b] - not_valuable[a]


def is_free_start(state: SchedulingState, n: int) -> bool:
    """Whether it releases a resource that nothing waits for."""
    return bool(state.graph.releases[n]) and not state.is_constrained(n)


def _is_left_alone(state: SchedulingState, a: int, b: int) -> bool:
    """Whether E2 is on but does not apply to a pair."""
    occupies = state.graph.occupies
    return state.delays_starts and bool(occupies[a] or occupies[b])


def _delay_for_compute(state: SchedulingState, a: int, b: int) -> int:
    if not state.delays_starts or _is_left_alone(state, a, b):
        return 0
    return is_free_start(state, b) - is_free_start(state, a)


def _delay_for_depth(state: SchedulingState, a: int, b: int) -> int:
    if not state.delays_starts or _is_left_alone(state, a, b):
        return 0
    if not (is_free_start(state, a) and is_free_start(state, b)):
        return 0
    return (state.depth[a] > state.depth[b]) - (state.depth[a] < state.depth[b])


def _depth(state: SchedulingState, n: int) -> float:
    return state.depth[n] if state.depth else 0.0


def writes_slice_to_host(state: SchedulingState, n: int) -> bool:
    """Whether it starts a fusion that updates a slice.

    XLA 0.10.2 does not look where to; later releases leave slices of device memory
    alone (they log kLessStall where this rule would have decided).
    """
    instruction = state.graph.instructions[n]
    if SPELLINGS[instruction.opcode] != ("start", "generic"):
        return False
    wrapped = wrapped_instruction(instruction)
    if wrapped.opcode not in ("fusion", "fusion-start"):
        return False
    anywhere = state.settings.release.slices_to_anywhere_are_early
    if not (anywhere or is_on_host(wrapped.shape)):
        return False
    return any(
        inner.opcode == "dynamic-update-slice"
        for body in wrapped.called_computations
        for inner in body.instructions
    )


def _delay_host_writes(state: SchedulingState, a: int, b: int) -> int:
    if _is_left_alone(state, a, b):
        return 0
    return writes_slice_to_host(state, b) - writes_slice_to_host(state, a)


def _on_gpu(settings: SchedulerSettings) -> bool:
    return settings.flavour == "gpu"


def _selective(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and settings.enable_selective_memcpy_overlap


def _aggressive(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and settings.aggressive_scheduling_policies


def _bottom_up(settings: SchedulerSettings) -> bool:
    return _on_gpu(settings) and not settings.top_down_scheduling


def _twice(
    name: str,
    reason: str,
    prefers: str,
    compare: Compare,
    number: Number,
    applies: Callable[[SchedulerSettings], bool],
    condition: str,
) -> tuple[Rule, Rule]:
    """A rule before the memory rules, and the same after them: one of them is on."""

    def first(settings: SchedulerSettings) -> bool:
        return settings.force_delay_over_memory_pressure and applies(settings)

    def later(settings: SchedulerSettings) -> bool:
        return not settings.force_delay_over_memory_pressure and applies(settings)

    before = f"{condition}, force-delay-over-memory-pressure"
    return (
        Rule(f"{name}-over-memory", reason, prefers, compare, number, first, before),
        Rule(name, reason, prefers, compare, number, later, condition),
    )


#: In XLA's order, each twice.
TARGET_RULES: Final = (
    *_twice(
        "prefer-compute-for-copies", "kPreferComputeForD2DMemcpyOverlap",
        "while a copy inside the GPU is open, what memory does not bound",
        _hides_open_copy, lambda s, n: not s.graph.not_valuable[n],
        _selective, "enable-selective-memcpy-overlap",
    ),
    *_twice(
        "delay-start-for-compute", "kDelayAsyncStartForCompute",
        "anything but a start whose resource nothing waits for",
        _delay_for_compute, is_free_start, _aggressive, "start-delay",
    ),
    *_twice(
        "delay-start-for-depth", "kDelayAsyncStartForDepth",
        "of two such starts, that under the deeper chain of work, us",
        _delay_for_depth, _depth, _aggressive, "start-delay",
    ),
    *_twice(
        "delay-host-writes", "kDelayMoveToHostAsyncStart",
        "anything but the start of a fusion that updates a slice",
        _delay_host_writes, writes_slice_to_host, _bottom_up, "gpu",
    ),
)  # fmt: skip
