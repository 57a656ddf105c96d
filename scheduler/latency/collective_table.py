"""Measured NCCL throughput inside one partition, looked up as XLA does.

    size 3 MiB, 6 devices -> row of 4 MiB and 8 devices -> time = 3 MiB / throughput

There is no averaging: the nearest power of two is used, the higher one when halfway,
clamped to 1 KiB .. 1 GiB and 2 .. 8 devices. So time jumps at 1.5 * 2^k bytes, and
below 1 KiB it falls with the size.

Rows: `data/collective_perf_*.csv`, bytes per second of f32 operations.
Source: openxla/xla `collective_interpolator.cc`, `interpolator.h` (Aug 2026).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.replica_groups import (
    IotaGroups,
    ReplicaGroups,
    parse_replica_groups,
)
from hlo_passes.scheduler.latency.collectives import Collective
from hlo_passes.scheduler.latency.communication import (
    CommunicationType,
    Groups,
    PermuteType,
    communication_type,
    permute_type,
)
from hlo_passes.scheduler.latency.data_tables import COLLECTIVE_TABLES, rows
from hlo_passes.scheduler.latency.durations import ticks_of_s
from hlo_passes.scheduler.latency.network import NotEstimated

_SMALLEST_BYTES: Final = 1 << 10
_LARGEST_BYTES: Final = 1 << 30
_FEWEST_DEVICES: Final = 2
_MOST_DEVICES: Final = 8
#: Groups in a permute's row: the devices of its pattern.
_PATTERN_DEVICES: Final = "world="
_REDUCING: Final = frozenset(("all-reduce", "reduce-scatter"))


def nearest_power_of_two(n: int) -> int:
    """The nearest power of two, the higher one when halfway; 1 for 0."""
    if n <= 1:
        return 1
    low = 1 << (n.bit_length() - 1)
    high = low if low == n else low * 2
    return low if n - low < high - n else high


@dataclass(frozen=True, slots=True)
class TableRow:
    """One measurement: bytes moved by an operation on groups, per second.

    Attributes:
        kind: synchronous opcode.
        element_type: of the measured operation.
        groups: replica groups; for a permute, the devices of the pattern as one group.
        pattern: of a permute, otherwise ''.
        size_bytes: transfer size.
        bytes_per_s: throughput; 0 if it was not measured.
    """

    kind: str
    element_type: str
    groups: ReplicaGroups
    pattern: str
    size_bytes: int
    bytes_per_s: int


def _pairs_of(pattern: str, devices: int) -> tuple[tuple[int, int], ...]:
    """The pairs with which a permute was measured."""
    half = devices // 2
    if pattern == "one_way":
        return tuple((i, i + half) for i in range(half))
    if pattern == "two_way_all_mutual":
        return tuple((i, i ^ 1) for i in range(devices))
    return tuple((i, (i + 1) % devices) for i in range(devices))


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """Rows of one device, with XLA's keys.

    Attributes:
        exact: (kind, groups, element type if it reduces) -> size -> bytes per second.
        by_type: (kind, communication type) -> (size, group size) -> bytes per second.
        permutes: class -> size -> bytes per second.
    """

    exact: dict[tuple[str, Groups, str], dict[int, int]] = field(default_factory=dict)
    by_type: dict[
        tuple[str, CommunicationType], dict[tuple[int, int], int]
    ] = field(default_factory=dict)  # fmt: skip
    permutes: dict[PermuteType, dict[int, int]] = field(default_factory=dict)

    @staticmethod
    def of(table_rows: Iterable[TableRow], gpus_per_node: int) -> CollectiveTable:
        """Build the maps. NotEstimated if a row does not fit gpus_per_node."""
        table = CollectiveTable()
        for row in table_rows:
            size, speed = row.size_bytes, row.bytes_per_s
            if row.kind == "collective-permute":
                pairs = _pairs_of(row.pattern, row.groups.device_count)
                key = permute_type(pairs, gpus_per_node)
                table.permutes.setdefault(key, {})[size] = speed
                continue
            groups = row.groups.groups
            kind = communication_type(groups, gpus_per_node, replica_count=1)
            dtype = row.element_type if row.kind in _REDUCING else ""
            table.exact.setdefault((row.kind, groups, dtype), {})[size] = speed
            table.by_type.setdefault((row.kind, kind), {})[
                size, row.groups.size or 0
            ] = speed
        return table

    def ticks(self, collective: Collective, gpus_per_node: int) -> int:
        """Time of a collective inside one partition. NotEstimated without a row."""
        sent = collective.transferred_bytes
        size = min(max(nearest_power_of_two(sent), _SMALLEST_BYTES), _LARGEST_BYTES)
        if collective.kind == "collective-permute":
            # The class in the key uses the number of partitions of the module.
            key = permute_type(collective.pairs, max(1, collective.num_partitions))
            if key not in self.permutes:
                raise NotEstimated(f"no measured permute of class {key.value}")
            return _ticks_at(self.permutes[key], size, sent)
        if collective.form != "start":
            exact = self.exact.get(_exact_key(collective))
            if exact is not None:
                return _ticks_at(exact, size, sent)
        kind = communication_type(
            collective.listed_groups, gpus_per_node, collective.replica_count
        )
        known = self.by_type.get((collective.kind, kind))
        if known is None:
            raise NotEstimated(f"no measured {collective.kind} of class {kind.value}")
        _, members = collective.count_and_size()
        devices = nearest_power_of_two(members)
        devices = min(max(devices, _FEWEST_DEVICES), _MOST_DEVICES)
        return _ticks_at(known, (size, devices), sent)


def _ticks_at(speeds: dict, at: object, sent_bytes: int) -> int:
    speed = speeds.get(at)
    if not speed:
        raise NotEstimated(f"the measured table has no row for {at}")
    return ticks_of_s(sent_bytes / speed)


def _exact_key(collective: Collective) -> tuple[str, Groups, str]:
    groups = collective.groups
    if groups is not None and isinstance(groups.form, IotaGroups):
        listed = groups.groups
    else:
        count, size = collective.count_and_size()
        listed = ReplicaGroups.of_iota(count, size).groups
    dtype = collective.element_type if collective.kind in _REDUCING else ""
    return collective.kind, listed, dtype


@functools.cache
def table_rows(table_key: str) -> tuple[TableRow, ...]:
    """The package's rows of a device; () if it has none."""
    stem = COLLECTIVE_TABLES.get(table_key)
    return tuple(
        TableRow(
            row["collective"],
            row["dtype"],
            _row_groups(row["groups"]),
            row["permute_pattern"],
            int(row["transfer_bytes"]),
            int(row["throughput_bytes_per_sec"]),
        )
        for row in (rows(stem) if stem else ())
    )


def _row_groups(text: str) -> ReplicaGroups:
    if text.startswith(_PATTERN_DEVICES):
        return ReplicaGroups.of_iota(1, int(text.removeprefix(_PATTERN_DEVICES)))
    return parse_replica_groups(text)


@functools.lru_cache(maxsize=64)
def builtin_table(table_key: str, gpus_per_node: int) -> CollectiveTable:
    """XLA's table of a device. NotEstimated if there is none, or none that fits."""
    found = table_rows(table_key)
    if not found:
        raise NotEstimated(f"no collective table for {table_key}")
    return CollectiveTable.of(found, gpus_per_node)
