"""Options of the analytical model, in XLA's spelling.

    --latency-options=nic_speed_gbps=50,rtt_us=30,partition_size=72

Source: openxla/xla `sol_gpu_cost_model.cc`. XLA silently drops a value that does not
parse or is not positive; here it is a usage error that gives the range.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hlo_passes.errors import UsageError, nearest
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.data_tables import rows
from hlo_passes.scheduler.latency.durations import ticks_of_us
from hlo_passes.scheduler.latency.network_constants import (
    NETWORK_CONSTANTS,
    OPTION_NAMES,
    is_option,
    range_of,
)

_UNKNOWN_DEVICE: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """What the user set; None means the target's own value."""

    nccl_op_launch_us: int | None = None
    nic_speed_gbps: float | None = None
    chunk_prep_us: int | None = None
    rtt_us: int | None = None
    gpus_per_node: int | None = None
    chunk_size_bytes: int | None = None
    partition_size: int | None = None
    ragged_imbalance: float | None = None

    @staticmethod
    def parse(text: str) -> LatencyOptions:
        """From `key=value,key=value`. Raises UsageError U203, U204."""
        found: dict[str, int | float] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = item.partition("=")
            if name not in NETWORK_CONSTANTS:
                raise UsageError(
                    f"unknown latency option {name}",
                    code="U203",
                    hint=nearest(name, NETWORK_CONSTANTS)
                    or f"one of {', '.join(NETWORK_CONSTANTS)}",
                )
            if not equals:
                raise UsageError(
                    f"latency option {name} has no value",
                    code="U204",
                    hint=range_of(name),
                )
            if name in found:
                raise UsageError(
                    f"latency option {name} is given twice",
                    code="U204",
                    hint="give one value for each",
                )
            found[name] = _value(name, value)
        return LatencyOptions(**found)  # type: ignore[arg-type]  # by NETWORK_CONSTANTS

    def to_text(self) -> str:
        """The options that are set, as `key=value,...`."""
        values = ((name, getattr(self, name)) for name in OPTION_NAMES)
        return ",".join(f"{n}={v:g}" for n, v in values if v is not None)


def latency_options(on: Pricing) -> LatencyOptions:
    """The options that a user set. Raises UsageError U203, U204."""
    given = on.options or ""
    if isinstance(given, str):
        return LatencyOptions.parse(given)
    if not isinstance(given, LatencyOptions):
        msg = f"options are a text or LatencyOptions, not {type(given).__name__}"
        raise TypeError(msg)
    return given


def _value(name: str, text: str) -> int | float:
    kind = NETWORK_CONSTANTS[name].kind
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not is_option(name, value):
        raise UsageError(
            f"{name}={text} is out of range", code="U204", hint=range_of(name)
        )
    return value


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Constants of the inter-partition formulas; durations in ticks (0.25 ns).

    Attributes:
        launch_ticks: of an NCCL operation, once.
        nic_gb_per_s: of one GPU's NIC, 1e9 bytes/s.
        chunk_prep_ticks: preparation of one chunk.
        rtt_ticks: of one step.
        barrier_ticks: of an NVLink kernel.
        gpus_per_node: devices of one host; it decides how NICs are shared.
        chunk_size_bytes: the piece that is prepared at once.
        partition_size: given by the user, else 0.
        ragged_imbalance: rows that the device with most of them sends or receives in a
            ragged all-to-all, divided by those that fill the smaller buffer; XLA has no
            such constant.
    """

    launch_ticks: int
    nic_gb_per_s: float
    chunk_prep_ticks: int
    rtt_ticks: int
    barrier_ticks: int
    gpus_per_node: int
    chunk_size_bytes: int
    partition_size: int
    ragged_imbalance: float = 1.0

    def with_options(self, options: LatencyOptions) -> NetworkConfig:
        """Replace constants by the user's values, which are not scaled."""
        return self.with_values(
            {
                name: value
                for name in OPTION_NAMES
                if (value := getattr(options, name)) is not None
            }
        )

    def with_values(self, values: Mapping[str, float]) -> NetworkConfig:
        """Replace constants by options, given by name."""
        changes: dict[str, int | float] = {}
        for name, value in values.items():
            if name.endswith("_us"):
                field = {"nccl_op_launch_us": "launch"}.get(name, name[:-3])
                changes[f"{field}_ticks"] = ticks_of_us(value)
            elif name == "nic_speed_gbps":
                changes["nic_gb_per_s"] = float(value)
            elif name == "ragged_imbalance":
                changes[name] = float(value)
            else:
                changes[name] = int(value)
        return replace(self, **changes)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _builtin_config(device_name: str) -> NetworkConfig:
    table = {row["device_name"]: row for row in rows("sol_config")}
    row = table.get(device_name, table[_UNKNOWN_DEVICE])
    return NetworkConfig(
        launch_ticks=ticks_of_us(float(row["nccl_op_launch_us"])),
        nic_gb_per_s=float(row["nic_speed_gbps"]),
        chunk_prep_ticks=ticks_of_us(float(row["chunk_prep_us"])),
        rtt_ticks=ticks_of_us(float(row["rtt_us"])),
        barrier_ticks=ticks_of_us(float(row["nvlink_barrier_us"])),
        gpus_per_node=int(row["gpus_per_node"]),
        chunk_size_bytes=int(row["chunk_size_bytes"]),
        partition_size=int(row["partition_size"]),
    )


def network_config(target: Target, options: LatencyOptions) -> NetworkConfig:
    """The target's constants: XLA's by exact device name, then what its file says.

    Source: openxla/xla `sol_gpu_cost_model.cc`; raw values times 0.45.
    """
    builtin = _builtin_config(target.name)
    return builtin.with_values(target.network).with_options(options)
