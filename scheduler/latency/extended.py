"""Prices of our own where XLA's model gives up: other parts, odd groups, rare ops.

XLA uses abstract constants for GB200, GB300, B300 and A100, for groups that do not
divide a host, and for collectives such as a broadcast. This module extrapolates from
XLA's formulas and tables instead, and marks its prices (`extended/...`):

- A domain (what NVLink joins) is the partition size given, else the topology's.
- Across domains: XLA's ring and all-to-all with the group as it is, g = its members,
  m = members per domain, each with a NIC.
- Inside: rows of the group size nearest in log2; throughput interpolated on log-log
  axes between sizes, constant outside; rows without a value are skipped. A collective
  with a kernel takes XLA's formula of NVLink kernels, from the release on that has it.
- GEMMs and tables of a part without its own come from the nearest one, scaled by the
  ratio of the dense bf16 rate and of the NVLink bandwidth.
- collective-broadcast is priced as an all-gather of the same result, an upper bound.
- ragged-all-to-all is priced as an all-to-all of the smaller of its two buffers, full,
  times `ragged_imbalance` (1: all devices send and receive as many rows).
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass, replace
from typing import Final

from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_table import table_rows
from hlo_passes.scheduler.latency.collectives import Collective, leaf_bytes
from hlo_passes.scheduler.latency.communication import Groups
from hlo_passes.scheduler.latency.data_tables import MATMUL_TABLES
from hlo_passes.scheduler.latency.durations import scaled, ticks_of_s
from hlo_passes.scheduler.latency.matmul_table import Gemm, builtin_matmul_table
from hlo_passes.scheduler.latency.network import (
    NotEstimated,
    RingKind,
    WireTime,
    all_to_all_time,
    ring_time,
)
from hlo_passes.scheduler.latency.options import NetworkConfig

#: XLA's number of the element type bf16.
_BF16: Final = 16
#: For descriptions that lack them: active NVLinks and dense bf16 operations per second.
#: Source: NVIDIA A100 Tensor Core GPU datasheet (600 GB/s, 312 TFLOPS).
_NVLINKS: Final = {"sm_80": 12}
_BF16_OPS_PER_S: Final = {"sm_80": 312e12}
#: The part whose tables are used: for parts older than Hopper H100's, else B200's.
_HOPPER: Final = 9
_RING_KINDS: Final[dict[str, RingKind]] = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "collective-broadcast": "all-gather",
}
_STAND_INS: Final = {
    "collective-broadcast": "all-gather",
    "ragged-all-to-all": "all-to-all",
}

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class ExtendedTime:
    """An extrapolated time: of the wire (HBM and reduction to be added) or whole."""

    path: str
    ticks: int
    wire: WireTime | None = None


@dataclass(frozen=True, slots=True)
class ExtendedModel:
    """The extrapolation for one target."""

    target: Target
    config: NetworkConfig
    topology: Topology | None = None

    @property
    def domain(self) -> int:
        """Devices that NVLink joins."""
        if self.config.partition_size:
            return self.config.partition_size
        if self.topology is not None and self.topology.partition_size > 1:
            return self.topology.partition_size
        return self.config.gpus_per_node

    # -- GEMM -------------------------------------------------------------------

    def gemm_ticks(self, gemm: Gemm) -> int:
        """The substitute's table, scaled by the ratio of dense bf16 rates.

        Types that the table lacks count once, not as often as XLA counts them.
        """
        stand_in = self._stand_in(MATMUL_TABLES)
        own, other = _bf16_rate(self.target), _bf16_rate(stand_in)
        factor = other / own if own and other else 1.0
        table = builtin_matmul_table(stand_in.table_key)
        return scaled(table.ticks(gemm), factor / table.times_its_share(gemm))

    def _stand_in(self, tables: dict[str, str]) -> Target:
        if self.target.table_key in tables:
            return self.target
        return target("h100_sxm" if self.target.capability[0] <= _HOPPER else "b200")

    # -- collectives ------------------------------------------------------------

    def collective_ticks(self, collective: Collective) -> ExtendedTime:
        """Time of a collective. NotEstimated for one without groups or pairs."""
        if collective.kind == "collective-permute":
            return self._permute(collective)
        groups = collective.listed_groups or _everybody(collective)
        size = collective.transferred_bytes or leaf_bytes(collective.result)
        if collective.ragged_bytes:
            size = math.ceil(collective.ragged_bytes * self.config.ragged_imbalance)
        members, domains = self._worst_group(groups)
        if members == 1:
            return ExtendedTime("extended/constant", 0)
        if domains == 1:
            kind = _STAND_INS.get(collective.kind, collective.kind)
            return ExtendedTime("extended/table", self._table(kind, members, size))
        # One communicator, so that g = members and m = members per domain.
        per_domain = max(1, members // domains)
        config = replace(self.config, gpus_per_node=per_domain)
        kind = _RING_KINDS.get(collective.kind)
        if kind is not None:
            wire = ring_time(config, size, domains, kind, 1)
            return ExtendedTime("extended/ring", wire.total, wire)
        wire = all_to_all_time(config, size, domains, 1)
        return ExtendedTime("extended/all-to-all", wire.total, wire)

    def members_of_a_domain(self, collective: Collective) -> int:
        """Devices of its groups where each lies in one domain; 0 where one does not."""
        if collective.kind == "collective-permute":
            return 0
        groups = collective.listed_groups or _everybody(collective)
        members, domains = self._worst_group(groups)
        return members if domains == 1 else 0

    def _worst_group(self, groups: Groups) -> tuple[int, int]:
        """(members, domains touched) of the group that touches most domains."""
        counts = {
            (len({device // self.domain for device in group}), len(group))
            for group in groups
        }
        domains, members = max(counts)
        return members, domains

    def _permute(self, collective: Collective) -> ExtendedTime:
        pairs = collective.pairs
        if not pairs:
            raise NotEstimated("no source-target pairs")
        size = collective.transferred_bytes
        if any(s // self.domain != t // self.domain for s, t in pairs):
            wire = ring_time(self.config, size, 2, "send-recv", 1)
            return ExtendedTime("extended/ring", wire.total, wire)
        mutual = set(pairs) >= {(t, s) for s, t in pairs}
        pattern = "two_way_all_mutual" if mutual else "two_way_has_non_mutual"
        ticks = self._table(f"collective-permute {pattern}", 2, size)
        return ExtendedTime("extended/table", ticks)

    def _table(self, kind: str, members: int, size_bytes: int) -> int:
        key = self.target.table_key
        stand_in = self.target
        curves = _curves(key, kind)
        if not curves:
            stand_in = self._stand_in({})
            curves = _curves(stand_in.table_key, kind)
        if not curves:
            raise NotEstimated(f"no measured {kind}")
        nearest = min(curves, key=lambda n: (abs(math.log2(n / members)), n))
        speed = _interpolate(curves[nearest], size_bytes)
        if stand_in is not self.target:
            speed *= _nvlink_ratio(self.target, stand_in)
        return ticks_of_s(size_bytes / speed)


def _everybody(collective: Collective) -> Groups:
    count = collective.replica_count
    if collective.group_mode == "cross-partition" or count == 1:
        count = max(count, collective.num_partitions)
    return (tuple(range(count)),)


@functools.lru_cache(maxsize=256)
def _curves(table_key: str, kind: str) -> dict[int, Curve]:
    """Group size -> (log2 bytes, log2 bytes/s), ascending; {} without rows."""
    name, _, pattern = kind.partition(" ")
    found: dict[int, dict[int, int]] = {}
    for row in table_rows(table_key):
        if row.kind == name and row.pattern == pattern and row.bytes_per_s:
            devices = 2 if pattern else row.groups.size or 1
            found.setdefault(devices, {})[row.size_bytes] = row.bytes_per_s
    return {
        devices: tuple(
            (math.log2(size), math.log2(speed)) for size, speed in sorted(row.items())
        )
        for devices, row in sorted(found.items())
    }


def _interpolate(curve: Curve, size_bytes: int) -> float:
    """Bytes per second at a size."""
    at = math.log2(max(size_bytes, 1))
    sizes = [size for size, _ in curve]
    right = bisect.bisect_left(sizes, at)
    if right == 0:
        return 2.0 ** curve[0][1]
    if right == len(curve):
        return 2.0 ** curve[-1][1]
    (low, slow), (high, fast) = curve[right - 1], curve[right]
    return 2.0 ** (slow + (fast - slow) * (at - low) / (high - low))


def _nvlink_ratio(own: Target, other: Target) -> float:
    rates = [
        (part.nvlink_links or _NVLINKS.get(part.table_key, 0)) * part.nvlink_gb_per_s
        for part in (own, other)
    ]
    return rates[0] / rates[1] if all(rates) else 1.0


def _bf16_rate(part: Target) -> float:
    return part.peak_ops_per_s.get(_BF16, 0.0) or _BF16_OPS_PER_S.get(
        part.table_key, 0.0
    )
