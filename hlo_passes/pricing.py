"""What a module is priced on: the machine, and the source of its costs.

    Pricing(target="h100_sxm", hosts=2, costs="costs.json")

It is one value, as a user spells it. The command line makes it, passes find it in their
context, and `hlo_passes.scheduler` reads it. This package only hands it on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from hlo_passes.errors import UsageError

DEFAULT_TARGET: Final = "h100_sxm"

_TOPOLOGY: Final = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})")
_GRID: Final = re.compile(r"[1-9]\d{0,8}x[1-9]\d{0,8}")


def parse_topology(text: str, *, code: str = "U202") -> tuple[int, int, int]:
    """(partitions, hosts per partition, GPUs per host) of `PxHxG`.

    Raises UsageError U202, or the code given.
    """
    match = _TOPOLOGY.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--topology={text} is not of the form PxHxG",
            code=code,
            hint="use partitions x hosts per partition x GPUs per host, as in 2x1x8"
            + "; a grid of TPUs also needs --target=v5e or another TPU"
            * bool(_GRID.fullmatch(text)),
        )
    return int(match[1]), int(match[2]), int(match[3])


class Spelled(Protocol):
    """A value that was parsed already and that a text can spell."""

    def to_text(self) -> str:
        """The text."""
        ...


class Named(Protocol):
    """An estimator object."""

    @property
    def name(self) -> str:
        """As `--estimator` spells it."""
        ...


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a module is priced on.

    Attributes:
        target: name of a GPU, or a description file.
        topology: for experts: `PxHxG` (NVLink domains x hosts per domain x GPUs per
            host) or a `scheduler.Topology`; if empty, what `hosts` and `gpus_per_host`
            say.
        devices: instead of the number that the module asks for.
        estimator: names joined by '+', or an estimator object; if empty, `table` where
            costs are given, `profile` where a profile is given, else `sol`.
        costs: file of the table estimator.
        profile: file of the profile estimator.
        options: of the analytical model, `key=value,...` or `scheduler.LatencyOptions`.
        extended: give a price where XLA's model gives up.
        always: price modules that XLA leaves to the coarse estimator.
        xla: the release of XLA to follow, as '0.12'; if empty, what the module says,
            else the jaxlib installed.
        collective_perf_table: file of measured collectives, instead of XLA's table.
        matmul_perf_table: file of measured GEMMs, instead of XLA's table.
        hosts: their number; None for as many as the module's devices need.
        gpus_per_host: None for as many as a host of the target has.
    """

    target: str = DEFAULT_TARGET
    topology: str | Spelled = ""
    devices: int | None = None
    estimator: str | Named = ""
    costs: str = ""
    profile: str = ""
    options: str | Spelled | None = None
    extended: bool = False
    always: bool = False
    xla: str = ""
    collective_perf_table: str = ""
    matmul_perf_table: str = ""
    hosts: int | None = None
    gpus_per_host: int | None = None

    @property
    def topology_text(self) -> str:
        """The topology as `PxHxG`, '' where nobody named one."""
        given = self.topology
        return given if isinstance(given, str) else given.to_text()
