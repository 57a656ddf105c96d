"""The path of a collective: inside one partition, rail-aligned, across hosts.

A device's partition is its id // partition size: ids of one partition are contiguous.

Source: openxla/xla `collective_ops_utils.cc` (gpu and service), Aug 2026.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from enum import Enum

from hlo_passes.scheduler.latency.network import NotEstimated

Groups = tuple[tuple[int, ...], ...]


class CommunicationType(Enum):
    """The path of a collective with replica groups."""

    SINGLE_PARTITION = "single-partition"
    #: All devices of every partition that it touches ("rail-aligned").
    WORLD_LEVEL = "multi-host-world-level"
    #: Some devices of each partition that it touches.
    NON_WORLD_LEVEL = "multi-host-non-world-level"


class PermuteType(Enum):
    """The path of a collective-permute."""

    INTRA_ONE_WAY = "intra-one-way"
    INTRA_TWO_WAY_ALL_MUTUAL = "intra-two-way-all-mutual"
    INTRA_TWO_WAY_HAS_NON_MUTUAL = "intra-two-way-has-non-mutual"
    INTER_ONE_WAY = "inter-one-way"
    INTER_TWO_WAY_ALL_MUTUAL = "inter-two-way-all-mutual"
    INTER_TWO_WAY_HAS_NON_MUTUAL = "inter-two-way-has-non-mutual"

    @property
    def is_inter(self) -> bool:
        """Whether some pair crosses a partition's border."""
        return self.value.startswith("inter")


def communication_type(
    groups: Groups, partition_size: int, replica_count: int
) -> CommunicationType:
    """Classify groups by how many devices they have in each partition they touch.

    Raises NotEstimated if the groups differ in that.
    """
    if len({len(group) for group in groups}) > 1:
        raise NotEstimated("the replica groups have different sizes")
    histograms = _histograms(groups, partition_size)
    if len(histograms) > 1:
        raise NotEstimated(
            "the replica groups are spread differently over partitions of "
            f"{partition_size} devices"
        )
    histogram = next(iter(histograms), None)
    if histogram is not None and len(histogram) == 1:
        return CommunicationType.SINGLE_PARTITION
    if histogram is None and 0 < replica_count <= partition_size:
        return CommunicationType.SINGLE_PARTITION
    if histogram is None or all(count == partition_size for count in histogram):
        return CommunicationType.WORLD_LEVEL
    return CommunicationType.NON_WORLD_LEVEL


@functools.lru_cache(maxsize=32)
def _histograms(groups: Groups, partition_size: int) -> frozenset[tuple[int, ...]]:
    """How many devices groups have in each partition they touch, ascending.

    Kept, as a collective is priced at many sizes.
    """
    return frozenset(
        tuple(sorted(Counter([i // partition_size for i in group]).values()))
        for group in groups
    )


def permute_type(pairs: Sequence[tuple[int, int]], partition_size: int) -> PermuteType:
    """Classify source-target pairs. Raises NotEstimated if there are none."""
    if not pairs:
        raise NotEstimated("no source-target pairs")
    inter = any(s // partition_size != t // partition_size for s, t in pairs)
    sources = {s for s, _ in pairs}
    known = set(pairs)
    if not any(t in sources for _, t in pairs):
        kind = "one-way"
    elif all((t, s) in known for s, t in pairs):
        kind = "two-way-all-mutual"
    else:
        kind = "two-way-has-non-mutual"
    return PermuteType(f"{'inter' if inter else 'intra'}-{kind}")
