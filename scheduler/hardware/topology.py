"""How devices are joined: partitions of hosts of GPUs.

    2x1x8      two hosts of eight GPUs, joined by InfiniBand
    8x18x4     eight NVL72 racks: 18 trays of four GPUs each
    1x2x8      two hosts of eight that NVLink joins, which no H100 has

A partition is what a fast fabric joins: an HGX host, an NVL72 rack. Devices of one
partition have contiguous ids.

Source: openxla/xla `xla/pjrt/distributed/topology_util.cc`, `gpu_topology.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.analysis.devices import device_counts
from hlo_passes.ir.module import Module
from hlo_passes.plurals import counted
from hlo_passes.pricing import parse_topology

_NO_FABRIC: Final = "00000000-0000-0000-0000-000000000000/0"


@dataclass(frozen=True, slots=True)
class Topology:
    """Partitions x hosts per partition x devices per host.

    A mixed machine (partitions of different size) has -1 for the last two, as in XLA.
    """

    partitions: int
    hosts_per_partition: int
    devices_per_host: int

    @staticmethod
    def parse(text: str) -> Topology:
        """From `PxHxG`. Raises UsageError U202."""
        return Topology(*parse_topology(text))

    @property
    def is_regular(self) -> bool:
        """Whether all partitions have the same size."""
        return self.hosts_per_partition > 0

    @property
    def device_count(self) -> int:
        """All devices; the product is meaningless for a mixed machine."""
        return self.partitions * self.hosts_per_partition * self.devices_per_host

    @property
    def partition_size(self) -> int:
        """Devices of one partition; 1 for a mixed machine, as in XLA."""
        return self.hosts_per_partition * self.devices_per_host

    @property
    def fast_link(self) -> str:
        """What joins the devices of a partition, as reports name it."""
        return "nvlink"

    def to_text(self) -> str:
        """`2x1x8`."""
        return f"{self.partitions}x{self.hosts_per_partition}x{self.devices_per_host}"

    @property
    def described(self) -> str:
        """In words: '2 hosts of 8 GPUs', '2 NVLink domains of 18 hosts of 4 GPUs'."""
        if not self.is_regular:
            return "hosts of different size"
        gpus = counted(self.devices_per_host, "GPU")
        hosts = self.partitions * self.hosts_per_partition
        if hosts == 1:
            return f"{gpus} in one host"
        if self.hosts_per_partition == 1:
            return f"{hosts} hosts of {gpus}"
        domains = counted(self.partitions, "NVLink domain")
        return f"{domains} of {self.hosts_per_partition} hosts of {gpus}"


@dataclass(frozen=True, slots=True)
class TpuGrid(Topology):
    """TPUs that links join to a grid: for accounts by device, one domain of one host.

    Attributes:
        grid: chips in each dimension, as '2x4', or the number of devices.
    """

    grid: str = ""

    @property
    def fast_link(self) -> str:
        """The chips' own links (ICI)."""
        return "interconnect"

    def to_text(self) -> str:
        """`2x4`."""
        return self.grid

    @property
    def described(self) -> str:
        """In words: '8 TPU devices'."""
        return counted(self.devices_per_host, "TPU device")


def device_count_of(module: Module) -> int:
    """The number of devices that a module asks for, by its header or its groups."""
    replicas, partitions = device_counts(module)
    return replicas * partitions


def topology_of_devices(devices: Sequence[Any]) -> Topology:
    """Group devices (as `jax.devices()` gives them) by host and by fabric.

    It reads `process_index`, and on devices that have them `partition_index`,
    `slice_index` and `fabric_uuid`. An explicit index decides; otherwise the fabric, if
    every device has one; otherwise the host is the partition.
    """
    indices = partition_indices(devices)
    hosts: dict[int, dict[int, int]] = {}
    for device, index in zip(devices, indices, strict=True):
        counts = hosts.setdefault(index, {})
        process = int(device.process_index)
        counts[process] = counts.get(process, 0) + 1
    first = next(iter(hosts.values()), {})
    hosts_per_partition = len(first)
    per_host = next(iter(first.values()), 0)
    regular = all(
        len(counts) == hosts_per_partition and set(counts.values()) == {per_host}
        for counts in hosts.values()
    )
    if not regular:
        return Topology(len(hosts), -1, -1)
    return Topology(len(hosts), hosts_per_partition, per_host)


def partition_indices(devices: Iterable[Any]) -> list[int]:
    """Per device, the number of its partition, in order of first appearance.

    An index that is the same everywhere does not count: devices of ahead-of-time
    compilation all carry 0, whatever their topology.
    """
    listed = list(devices)
    for attribute in ("partition_index", "slice_index"):
        explicit = [getattr(device, attribute, None) for device in listed]
        if None not in explicit and len(set(explicit)) > 1:
            return _numbered(explicit)
    fabrics = [getattr(device, "fabric_uuid", None) for device in listed]
    if listed and all(fabric and fabric != _NO_FABRIC for fabric in fabrics):
        return _numbered(fabrics)
    return _numbered([device.process_index for device in listed])


def _numbered(keys: Iterable[Any]) -> list[int]:
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
