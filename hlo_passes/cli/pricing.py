"""Command lines that say what a module is priced on: their arguments, the value.

--target=h100_sxm --hosts=2 --costs=costs.json  ->  Pricing(...)
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Final

from hlo_passes.cli.command import positive
from hlo_passes.cli.xla_option import add_xla_argument
from hlo_passes.files import require_file
from hlo_passes.pricing import DEFAULT_TARGET, Pricing, parse_topology

_FIELDS: Final = tuple(f.name for f in dataclasses.fields(Pricing))


def add_machine_arguments(
    parser: argparse.ArgumentParser, targets: str = "a name"
) -> None:
    """Add the arguments of every command whose passes or prices need the machine."""
    parser.add_argument(
        "--target", default=DEFAULT_TARGET,
        help=f"the GPU or TPU: {targets}, or a .txtpb file",
    )  # fmt: skip
    add_host_arguments(parser)
    parser.add_argument(
        "--devices", type=positive, help="number of devices, instead of the module's"
    )
    parser.add_argument("--costs", default="", metavar="FILE", help="costs.json")
    add_xla_argument(parser)


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how many GPUs there are, and what joins them."""
    parser.add_argument(
        "--hosts", type=positive, metavar="N",
        help="number of hosts; default: as many as the module's devices need",
    )  # fmt: skip
    parser.add_argument(
        "--gpus-per-host", type=positive, metavar="N",
        help="default: as many as a host of the target has, 8 of an H100",
    )  # fmt: skip
    parser.add_argument(
        "--topology", default="", metavar="PxHxG",
        help="for experts: NVLink domains x hosts per domain x GPUs per host; two H100 "
        "hosts are 2x1x8; for a TPU, chips in each dimension, as in 2x4",
    )  # fmt: skip


def check_machine_arguments(arguments: argparse.Namespace) -> None:
    """Refuse, before any work, what no pass can read. Raises UsageError U001, U202.

    The scheduler's own commands ask `scheduler.command_arguments` instead.
    """
    if arguments.costs:
        require_file(arguments.costs)
    if arguments.topology:
        parse_topology(arguments.topology)


def pricing_of(arguments: argparse.Namespace) -> Pricing:
    """All of a command line that has the name of a field of `Pricing`."""
    given = vars(arguments)
    return Pricing(**{name: given[name] for name in _FIELDS if name in given})
