"""`ring`: XLA's legacy analytical estimator.

    t = 5 us + reduction / channels + bytes accessed / (bus bandwidth * ratio)

It knows no hosts: groups across hosts are priced as if inside one. Every other
instruction is priced by the roofline with the part's own cycle profile.

Source: openxla/xla `analytical_latency_estimator.cc`,
`gpu_collective_performance_model.cc` (Aug 2026). NCCL's environment variables, which
XLA reads there, are ignored: the same module must cost the same everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hlo_passes.ir.async_form import is_pair
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import LOW, is_async_collective
from hlo_passes.scheduler.estimators.fingerprint import Fingerprints
from hlo_passes.scheduler.fusions.instruction_time import instruction_ticks
from hlo_passes.scheduler.fusions.launch_dimensions import LaunchDimensions
from hlo_passes.scheduler.fusions.roofline import compute_ticks
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.collectives import (
    Collective,
    describe,
    participant_counts,
)
from hlo_passes.scheduler.latency.data_tables import op_cycles
from hlo_passes.scheduler.latency.durations import ticks_of_s, ticks_of_us, us_of_ticks
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency.network import NotEstimated

_LAUNCH_TICKS: Final = ticks_of_us(5.0)
_MOST_CHANNELS: Final = 32
_THREADS: Final = 640
_FEW_THREADS: Final = 256
_RING_DISCOUNT: Final = 0.92
_GIB: Final = 1 << 30
#: Per major capability: slowest path, GB/s, and LL128 GB/s of a channel; newest last.
_SLOW_GB_PER_S: Final = {7: 40.0, 8: 40.0, 9: 60.0, 10: 60.0}
_SLOW_NEWEST: Final = 60.0
_LL128_GB_PER_S: Final = {7: 20.0, 8: 20.0, 9: 36.7, 10: 36.7}
_LL128_NEWEST: Final = 36.7
_RING_KINDS: Final = ("all-reduce", "all-gather", "reduce-scatter")


@dataclass(slots=True)
class RingEstimator:
    """The legacy estimator for one target."""

    target: Target
    name: str = "ring"
    _coarse: GpuApproximateEstimator = field(default_factory=GpuApproximateEstimator)
    _prints: Fingerprints = field(default_factory=Fingerprints)
    _known: dict[Hashable, Estimate] = field(default_factory=dict)

    def node_cost(self, instruction: Instruction) -> Estimate:
        """Roofline of the instruction, us; starts and dones 1."""
        key = self._prints.key(instruction)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._node_cost(instruction)
        return known

    def _node_cost(self, instruction: Instruction) -> Estimate:
        if is_async_collective(instruction):
            return Estimate(LOW, "ring/constant")
        cycles = op_cycles(self.target.op_profile)
        ticks = instruction_ticks(instruction, self.target, cycles)
        return Estimate(us_of_ticks(ticks), "ring/roofline")

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        """Time of a pair; the coarse answer for any other edge."""
        if not is_pair(start, user):
            return self._coarse.latency(start, user)
        key = ("latency", self._prints.key(start))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._latency(start)
        return known

    def _latency(self, start: Instruction) -> Estimate:
        try:
            collective = describe(start)
        except NotEstimated as problem:
            coarse = self._coarse.latency(start, start.users[0])
            return Estimate(coarse.us, coarse.model, str(problem))
        if collective is None or collective.kind not in _RING_KINDS:
            us = us_of_ticks(_LAUNCH_TICKS)
            return Estimate(us, "ring/constant", "only the launch is known")
        ticks = ring_collective_ticks(collective, self.target)
        return Estimate(us_of_ticks(ticks), "ring/formula")


def ring_collective_ticks(collective: Collective, target: Target) -> int:
    """Time of an all-reduce, all-gather or reduce-scatter, ticks."""
    ranks = max(
        1,
        *participant_counts(
            collective.listed_groups,
            collective.group_mode,
            collective.replica_count,
            collective.num_partitions,
        ),
    )
    if ranks == 1:
        return _LAUNCH_TICKS
    major = target.capability[0]
    slow = _SLOW_GB_PER_S.get(major, _SLOW_NEWEST)
    channels = max(ranks, _MOST_CHANNELS)
    pcie_gb_per_s = target.pcie_bandwidth_bytes_per_s // _GIB
    threads = _FEW_THREADS if slow * channels <= pcie_gb_per_s else _THREADS
    flops = collective.reduction_flops(target.op_profile) // channels
    ticks = _LAUNCH_TICKS
    ticks += compute_ticks(flops, LaunchDimensions(channels, threads), target)
    lane = slow
    if target.nvlink_links:
        lane = target.nvlink_gb_per_s
        channels = min(target.nvlink_links, channels)
    per_channel = float(np.float32(_LL128_GB_PER_S.get(major, _LL128_NEWEST)))
    bus = min(lane * channels * _RING_DISCOUNT, channels * per_channel)
    steps = (ranks - 1) * (2 if collective.kind == "all-reduce" else 1)
    ratio = float(np.float32(ranks) / np.float32(steps))
    return ticks + ticks_of_s(collective.accessed_bytes / (1e9 * bus * ratio))
