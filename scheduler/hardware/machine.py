"""The machine that a module runs on, from hosts as people count them.

    machine_of(module, Pricing(hosts=2))                    2x1x8: two H100 hosts
    machine_of(module, Pricing(target="gb200", hosts=36))   2x18x4: two NVL72 racks
    machine_for(Pricing(target="gb200"), 512)               8x16x4

How many GPUs a host of the target has, and how many NVLink joins (XLA's partition), is
in `data/gpu_hosts.csv`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import (
    Topology,
    TpuGrid,
    device_count_of,
)
from hlo_passes.scheduler.latency.data_tables import rows
from hlo_passes.scheduler.tpu.chips import chip, is_chip
from hlo_passes.whole_numbers import whole_number

_UNKNOWN: Final = "<unknown>"
#: More hosts than any machine has.
_MOST_HOSTS: Final = 10**9


@dataclass(frozen=True, slots=True)
class HostFigures:
    """The hosts that a GPU comes in.

    Attributes:
        gpus_per_host: GPUs of one host.
        fast_domain_gpus: GPUs that NVLink joins, of one host or of several.
        system: whose figures these are; '' for a GPU that nobody described.
    """

    gpus_per_host: int
    fast_domain_gpus: int
    system: str

    @property
    def hosts_of_a_domain(self) -> int:
        """Hosts that NVLink joins, however many of their GPUs are used."""
        return max(1, self.fast_domain_gpus // self.gpus_per_host)


def host_figures(part: Target) -> HostFigures:
    """The hosts of a target; for an unknown GPU XLA's eight, without a system."""
    table = {row["device_name"]: row for row in rows("gpu_hosts")}
    row = table.get(part.name, table[_UNKNOWN])
    return HostFigures(
        int(row["gpus_per_host"]), int(row["fast_domain_gpus"]), row["system"]
    )


def topology_of_hosts(
    part: Target, hosts: int, gpus_per_host: int | None = None
) -> Topology:
    """The machine of so many hosts: as few NVLink domains as hold them, equally full.

    Args:
        part: the GPU.
        hosts: their number.
        gpus_per_host: None for as many as a host of the target has.

    Raises UsageError U225 for hosts that do not exist, or that fill domains unequally.
    """
    figures = host_figures(part)
    each = figures.gpus_per_host if gpus_per_host is None else gpus_per_host
    _require_hosts_that_exist(part, hosts, each)
    most = figures.hosts_of_a_domain
    domains = _domains_for(hosts, most)
    if hosts % domains:
        fewer, more = (_that_fill_equally(hosts, most, step) for step in (-1, 1))
        raise UsageError(
            f"{hosts} hosts of {each} GPUs do not fill {domains} NVLink domains of "
            f"{part.spec} equally: each joins at most {most} hosts",
            code="U225",
            hint=f"use --hosts={fewer} or --hosts={more}",
        )
    return Topology(domains, hosts // domains, each)


def machine_for(on: Pricing, devices: int) -> Topology:
    """The machine that a user named, else the smallest one for so many devices.

    The smallest one has whole hosts, where one is not enough; fewer devices than a host
    has GPUs are one host with as many.

    Raises UsageError U202 for a text that is not a topology, and U225 for hosts that do
    not exist or disagree with the topology.
    """
    if is_chip(on.target):
        return _chips_for(on, devices)
    named = machine_named(on)
    if named is not None:
        return named
    part = target(on.target)
    figures = host_figures(part)
    each = figures.gpus_per_host if on.gpus_per_host is None else on.gpus_per_host
    if devices <= each:
        own = on.gpus_per_host is not None
        return Topology(1, 1, each if own else devices)
    most = figures.hosts_of_a_domain
    hosts = _that_fill_equally(-(-devices // each), most, 1)
    return topology_of_hosts(part, hosts, on.gpus_per_host)


def _chips_for(on: Pricing, devices: int) -> Topology:
    """The TPUs that a user named, else as many as there are devices."""
    part, grid = chip(on.target), on.topology_text
    if grid and not isinstance(on.topology, TpuGrid):
        sizes = [whole_number(size) for size in grid.split("x")]
        if len(sizes) != part.dimensions or not all(sizes):
            raise UsageError(
                f"--topology={grid} is no grid of {part.name}, a {part.torus}",
                code="U252",
                hint="chips in each dimension, as in "
                + ("2x4" if part.dimensions == 2 else "2x2x1"),
            )
        devices = math.prod(n for n in sizes if n) * part.devices_per_chip
    if isinstance(on.topology, TpuGrid):
        return on.topology
    return TpuGrid(1, 1, devices, grid or f"{devices} devices")


def machine_of(module: Module, on: Pricing) -> Topology:
    """The machine that a module is priced for.

    Raises UsageError as `machine_for`, and U218 for a machine with fewer devices than
    the module runs on.
    """
    needed = on.devices or device_count_of(module)
    machine = machine_for(on, needed)
    if machine.is_regular and machine.device_count < needed:
        enough = -(-needed // machine.devices_per_host)
        most = host_figures(target(on.target)).hosts_of_a_domain
        raise UsageError(
            f"the machine {machine.to_text()} has {machine.device_count} devices, but "
            f"the module runs on {needed}",
            code="U218",
            hint=f"use --hosts={_that_fill_equally(enough, most, 1)} "
            f"--gpus-per-host={machine.devices_per_host}, or --devices if the module "
            "names too many",
        )
    return machine


def machine_named(on: Pricing) -> Topology | None:
    """The machine that a user named, whatever the module; None where nobody did.

    Raises UsageError U202, U225 as `machine_for`.
    """
    _require_numbers(on)
    wanted = _topology_named(on)
    if wanted is None:
        if on.hosts is not None:
            return topology_of_hosts(target(on.target), on.hosts, on.gpus_per_host)
        if on.gpus_per_host is not None:
            _require_hosts_that_exist(target(on.target), 1, on.gpus_per_host)
        return None
    if wanted.is_regular:
        require_agreement(wanted, on)
        hosts = wanted.partitions * wanted.hosts_per_partition
        _require_hosts_that_exist(target(on.target), hosts, wanted.devices_per_host)
    return wanted


def _require_numbers(on: Pricing) -> None:
    for name, number in _hosts_named(on).items():
        if not 1 <= number <= _MOST_HOSTS:
            raise UsageError(
                f"--{name}={number} is not a number of {name.partition('-')[0]}",
                code="U225",
                hint="as in --hosts=2 --gpus-per-host=8",
            )


def require_agreement(wanted: Topology, on: Pricing) -> None:
    """Refuse a topology that disagrees with the hosts that are named, too; U225."""
    hosts = wanted.partitions * wanted.hosts_per_partition
    own = {"hosts": hosts, "gpus-per-host": wanted.devices_per_host}
    named = _hosts_named(on)
    if any(own[name] != number for name, number in named.items()):
        given = " ".join(f"--{name}={number}" for name, number in named.items())
        raise UsageError(
            f"--topology={wanted.to_text()} has {hosts} hosts of "
            f"{wanted.devices_per_host} GPUs, which disagrees with {given}",
            code="U225",
            hint="leave --topology out: --hosts and --gpus-per-host are enough",
        )


def _hosts_named(on: Pricing) -> dict[str, int]:
    """The numbers of hosts and GPUs that a user gave, by the name of the flag."""
    named = (("hosts", on.hosts), ("gpus-per-host", on.gpus_per_host))
    return {name: number for name, number in named if number is not None}


def _topology_named(on: Pricing) -> Topology | None:
    wanted = on.topology
    if isinstance(wanted, str):
        return Topology.parse(wanted) if wanted else None
    if not isinstance(wanted, Topology):
        msg = f"topology is a text or a Topology, not {type(wanted).__name__}"
        raise TypeError(msg)
    return wanted


def domain_remark(machine: Topology, part: Target) -> str:
    """What is odd about a machine's NVLink domains; '' where nothing is.

    The topology is for experts: it may have larger domains than the target is sold in.
    """
    figures = host_figures(part)
    if not (machine.is_regular and figures.system):
        return ""
    if machine.partition_size <= figures.fast_domain_gpus:
        return ""
    hosts = machine.partitions * machine.hosts_per_partition
    return (
        f"{machine.to_text()} joins {machine.partition_size} GPUs by NVLink, but "
        f"{part.spec} at most {figures.fast_domain_gpus}; for {hosts} hosts use "
        f"--hosts={hosts}"
    )


def _require_hosts_that_exist(part: Target, hosts: int, gpus_per_host: int) -> None:
    """Refuse more GPUs in one host than the target's hosts have; U225."""
    figures = host_figures(part)
    if not figures.system or gpus_per_host <= figures.gpus_per_host:
        return
    enough = -(-hosts * gpus_per_host // figures.gpus_per_host)
    most = figures.hosts_of_a_domain
    hosts = _that_fill_equally(enough, most, 1)
    raise UsageError(
        f"a host of {part.spec} has {figures.gpus_per_host} GPUs, not {gpus_per_host} "
        f"({figures.system})",
        code="U225",
        hint=f"use --hosts={hosts}, which is "
        f"{topology_of_hosts(part, hosts).to_text()}",
    )


def _domains_for(hosts: int, most: int) -> int:
    """The fewest domains that hold so many hosts."""
    return -(-hosts // most)


def _that_fill_equally(hosts: int, most: int, step: int) -> int:
    """The nearest number of hosts, up or down, that fills its domains equally."""
    while hosts % _domains_for(hosts, most):
        hosts += step
    return hosts
