"""Replica groups and source-target pairs: which devices take part in a collective.

    no channel                      ids are replicas
    channel, no global ids          ids are replicas, over all partitions
    channel and global ids          id = replica * partitions + partition
    channel, opcode without flag    ids are partitions

Source: openxla/xla `hlo_verifier.cc` (CheckReplicaGroups,
CheckDuplicatedSourceOrTarget), `xla/service/collective_ops_utils.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_passes.ir.replica_groups import (
    parse_replica_groups,
    parse_source_target_pairs,
)
from hlo_passes.ir.shape_inference import Query

_REMEMBERED: Final = 4096

#: Collectives whose groups may be over flattened ids.
_WITH_GLOBAL_IDS: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})


@dataclass(frozen=True, slots=True)
class Devices:
    """The header's device counts; for the checks a count of 1 means "unknown"."""

    replicas: int = 1
    partitions: int = 1


def _mode(query: Query, kind: str) -> str:
    channel = "channel_id" in query.attributes
    flag = query.flag("use_global_device_ids", default=False)
    if kind not in _WITH_GLOBAL_IDS:
        return "partitions" if channel else "replicas"
    if not channel:
        if flag:
            query.fail("use_global_device_ids=true needs a channel_id")
        return "replicas"
    return "flattened" if flag else "replicas over partitions"


@lru_cache(maxsize=_REMEMBERED)
def _group_problem(text: str) -> str:
    """What is wrong with the groups themselves; '' if they are correct."""
    groups = parse_replica_groups(text).groups
    count = sum(map(len, groups))
    seen: set[int] = set()
    for group in groups:
        if not group:
            return "an empty replica group"
        for member in group:
            if not 0 <= member < count:
                return f"{member} in replica_groups is outside [0, {count})"
            if member in seen:
                return f"{member} appears twice in replica_groups"
            seen.add(member)
    return ""


def group_size(
    query: Query, kind: str, devices: Devices, *, uniform: bool = True
) -> int:
    """Check the groups of a collective; returns the participants of one group.

    Args:
        query: the collective.
        kind: its synchronous opcode.
        devices: the counts of the header.
        uniform: whether groups must be of one size (all but all-reduce).
    """
    mode = _mode(query, kind)
    text = query.attributes.get("replica_groups", "{}")
    groups = parse_replica_groups(text).groups
    if not groups:
        if mode == "flattened":
            query.fail("replica_groups must not be empty with use_global_device_ids")
        if mode == "partitions":
            return devices.partitions
        over = devices.partitions if mode == "replicas over partitions" else 1
        return devices.replicas * over
    problem = _group_problem(text)
    if problem:
        query.fail(problem)
    expected = {
        "partitions": devices.partitions,
        "flattened": devices.replicas * devices.partitions,
    }.get(mode, devices.replicas)
    count = sum(map(len, groups))
    if expected not in (1, count):
        query.fail(f"replica_groups hold {count} of {expected} {mode}")
    size = len(groups[0])
    if uniform and any(len(group) != size for group in groups):
        query.fail("replica groups have different sizes")
    if mode == "replicas over partitions":
        return size * devices.partitions
    return size


def check_pairs(query: Query, devices: Devices, *, repeats: int = 1) -> None:
    """Refuse pairs out of range, and sources or targets that occur too often.

    Args:
        query: a collective-permute.
        devices: the counts of the header.
        repeats: how often one id may be a source (a target): once per slice.
    """
    limit = devices.partitions if "channel_id" in query.attributes else devices.replicas
    problem = _pair_problem(query.text("source_target_pairs"), limit, repeats)
    if problem:
        query.fail(problem)


@lru_cache(maxsize=_REMEMBERED)
def _pair_problem(text: str, limit: int, repeats: int) -> str:
    pairs = list(parse_source_target_pairs(text))
    if limit == 1:
        limit = max((1 + max(pair) for pair in pairs), default=1)
    for role in (0, 1):
        counts: dict[int, int] = {}
        name = ("source", "target")[role]
        for pair in pairs:
            device = pair[role]
            if not 0 <= device < limit:
                return f"{name} {device} is outside [0, {limit})"
            counts[device] = counts.get(device, 0) + 1
            if counts[device] > repeats:
                often = "once" if repeats == 1 else f"{repeats} times"
                return (
                    f"{name} {device} appears more than {often} in source_target_pairs"
                )
    return ""
