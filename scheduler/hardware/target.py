"""A GPU as the latency model sees it, by name or from a description file.

    target("h100_sxm").memory_bandwidth_bytes_per_s     3352320000000
    target("my_gpu.txtpb")                              a file of the user

A description is XLA's `GpuTargetConfigProto` in text form, the file that
`--xla_gpu_target_config_filename` takes. Network constants from a calibration are in a
comment, which XLA ignores:

    # latency-options: nccl_op_launch_us=47.5,nic_speed_gbps=24.1
    # backend-lines: copied-exchange:12.5:95

Source of the fields: openxla/xla `xla/stream_executor/device_description.proto`.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from hlo_passes.analysis.module_state import how_to_price_tpus
from hlo_passes.errors import UsageError, nearest
from hlo_passes.files import read_text
from hlo_passes.pricing import DEFAULT_TARGET
from hlo_passes.scheduler.hardware.text_proto import (
    Message,
    integer,
    number,
    parse_text_proto,
    string,
    submessage,
    submessages,
)
from hlo_passes.scheduler.latency.measured_lines import MeasuredLine
from hlo_passes.scheduler.latency.network_constants import target_constant
from hlo_passes.scheduler.tpu.chips import chip_names, is_chip

_SUFFIX: Final = ".txtpb"

NETWORK_COMMENT: Final = "# latency-options:"
_NETWORK: Final = re.compile(rf"(?m)^{NETWORK_COMMENT}[ \t]*(\S.*)$")
LINES_COMMENT: Final = "# backend-lines:"
_LINES: Final = re.compile(rf"(?m)^{LINES_COMMENT}[ \t]*(\S.*)$")
#: Of a toolkit, as in 12.8.1.
_VERSION: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?![0-9])")

#: One direction of one NVLink, 1e9 bytes/s, by major compute capability; parts that
#: are not listed have the newest rate. Source: openxla/xla
#: `gpu_collective_performance_model.cc`.
_NVLINK_GB_PER_S: Final = {6: 18.0, 7: 20.0, 8: 20.0, 9: 20.0, 10: 40.0}
_NVLINK_GB_PER_S_NEWEST: Final = 40.0

#: Memory transaction per SM and clock, bytes; L1 cache per SM, bytes. NVIDIA parts.
MEMORY_TRANSACTION_BYTES_PER_CLOCK: Final = 32
L1_CACHE_BYTES_PER_SM: Final = 2048
DRAM_TRANSACTION_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Target:
    """Figures of one GPU.

    Attributes:
        spec: the short name ('h100_sxm') or the file it was read from.
        name: the name that the driver reports ('NVIDIA H100 80GB HBM3').
        capability: major and minor compute capability; (0, 0) if it is not from NVIDIA.
        sm_count: streaming multiprocessors.
        fpus_per_sm: f32 lanes of one multiprocessor.
        threads_per_sm: most resident threads of one multiprocessor.
        clock_ghz: boost clock.
        memory_bandwidth_bytes_per_s: of HBM.
        l2_cache_bytes: of the L2 cache.
        memory_bytes: of HBM.
        nvlink_links: active links; 0 if the description does not say.
        pcie_bandwidth_bytes_per_s: 0 if unknown.
        toolkit_version: (major, minor) of CUDA, (0, 0) if unknown.
        peak_ops_per_s: dense matrix rate by XLA's number of the element type.
        network: calibrated network constants by option name, see `calibration`.
        lines: measured times of other ways to carry collectives, see `line_fits`.
    """

    spec: str
    name: str
    capability: tuple[int, int]
    sm_count: int
    fpus_per_sm: int
    threads_per_sm: int
    clock_ghz: float
    memory_bandwidth_bytes_per_s: int
    l2_cache_bytes: int
    memory_bytes: int
    nvlink_links: int
    pcie_bandwidth_bytes_per_s: int
    toolkit_version: tuple[int, int]
    peak_ops_per_s: Mapping[int, float] = field(default_factory=dict)
    network: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[MeasuredLine, ...] = ()

    @property
    def max_threads(self) -> int:
        """Threads that the whole GPU holds at once."""
        return self.threads_per_sm * self.sm_count

    @property
    def nvlink_gb_per_s(self) -> float:
        """One direction of one link, 1e9 bytes/s; 0 if it is not from NVIDIA."""
        if not self.capability[0]:
            return 0.0
        return _NVLINK_GB_PER_S.get(self.capability[0], _NVLINK_GB_PER_S_NEWEST)

    @property
    def table_key(self) -> str:
        """The entry of XLA's performance tables: 'sm_90', 'sm_100_B200'."""
        major, minor = self.capability
        key = f"sm_{major}{minor}"
        return f"{key}_{self.name.rsplit(' ', 1)[-1]}" if key == "sm_100" else key

    @property
    def op_profile(self) -> str:
        """The rows of the elementwise cycle table that belong to the part."""
        return "sm_{}{}".format(*self.capability)

    @property
    def has_analytical_model(self) -> bool:
        """Whether XLA turns its analytical model on: Hopper and data-center Blackwell.

        Source: openxla/xla `sol_latency_estimator.cc`, IsSupportedForModule.
        """
        return self.capability[0] in (9, 10)


def target_text(name: str) -> str:
    """The description file of a target. Raises UsageError U200, U001."""
    if name in target_names():
        folder = resources.files("hlo_passes.scheduler").joinpath("data", "gpu_targets")
        return folder.joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    if is_chip(name):
        raise UsageError(
            f"{name} is a TPU, and this is about GPUs",
            code="U200",
            hint=how_to_price_tpus(name),
        )
    # Unlike pathlib's, this one answers for names that are too long for a file, too.
    if not os.path.isfile(name):
        names = (*target_names(), *chip_names())
        raise UsageError(
            f"unknown target {name}",
            code="U200",
            hint=_beginning_with(name, names)
            or nearest(name, names)
            or f"use one of {', '.join(names)}, or a .txtpb file",
        )
    return read_text(name)


def _beginning_with(name: str, names: tuple[str, ...]) -> str:
    """'did you mean h100_pcie or h100_sxm?' for 'h100'."""
    found = [n for n in names if name and n.startswith(name)]
    return f"did you mean {' or '.join(found)}?" if found else ""


@functools.cache
def target_names() -> tuple[str, ...]:
    """Names of the GPUs that come with the package, sorted."""
    folder = resources.files("hlo_passes.scheduler").joinpath("data", "gpu_targets")
    return tuple(
        sorted(
            entry.name.removesuffix(_SUFFIX)
            for entry in folder.iterdir()
            if entry.name.endswith(_SUFFIX)
        )
    )


def target(name: str = DEFAULT_TARGET) -> Target:
    """The GPU of that name, or of a description file as it is now.

    Raises:
        UsageError: U200, no such target and no such file.
        ParseError: P400, the file is not a text proto; UsageError U201, figures are
        missing.
    """
    if name in target_names():
        return _own_target(name)
    return parse_target(target_text(name), spec=name, filename=name)


@functools.cache
def _own_target(name: str) -> Target:
    return parse_target(target_text(name), spec=name, filename=name + _SUFFIX)


def parse_target(text: str, *, spec: str, filename: str = "<target>") -> Target:
    """Read a description. Raises ParseError P400, UsageError U201."""
    config = parse_text_proto(text, filename)
    device = submessage(config, "gpu_device_info")
    capability = submessage(device, "cuda_compute_capability")
    required = ("core_count", "fpus_per_core", "memory_bandwidth", "clock_rate_ghz")
    missing = [name for name in required if not number(device, name) > 0]
    if missing:
        raise UsageError(
            f"{filename}: gpu_device_info lacks {', '.join(missing)}",
            code="U201",
            hint="a description is a GpuTargetConfigProto in text form",
        )
    return Target(
        spec=spec,
        name=string(device, "name") or string(config, "device_description_str"),
        capability=(integer(capability, "major"), integer(capability, "minor")),
        sm_count=integer(device, "core_count"),
        fpus_per_sm=integer(device, "fpus_per_core"),
        threads_per_sm=integer(device, "threads_per_core_limit"),
        clock_ghz=number(device, "clock_rate_ghz"),
        memory_bandwidth_bytes_per_s=integer(device, "memory_bandwidth"),
        l2_cache_bytes=integer(device, "l2_cache_size"),
        memory_bytes=integer(device, "device_memory_size"),
        nvlink_links=integer(
            submessage(device, "device_interconnect_info"), "active_links"
        ),
        pcie_bandwidth_bytes_per_s=max(0, integer(device, "pcie_bandwidth")),
        toolkit_version=_version(string(device, "compile_time_toolkit_version")),
        peak_ops_per_s=_matrix_rates(device),
        network=_network(text, filename),
        lines=_lines(text, filename),
    )


def _network(text: str, filename: str) -> dict[str, float]:
    """The constants of the `latency-options` comment; UsageError U201 for bad ones."""
    match = _NETWORK.search(text)
    found: dict[str, float] = {}
    for item in match[1].split(",") if match else ():
        name, _, value = (part.strip() for part in item.partition("="))
        found[name] = target_constant(name, value, filename)
    return found


def _lines(text: str, filename: str) -> tuple[MeasuredLine, ...]:
    """The lines of the `backend-lines` comment; UsageError U201 for bad ones."""
    match = _LINES.search(text)
    try:
        return tuple(map(MeasuredLine.parse, match[1].split() if match else ()))
    except ValueError as problem:
        raise UsageError(
            f"{filename}: {LINES_COMMENT} {problem}",
            code="U201",
            hint="hlo-passes calibrate writes such lines",
        ) from problem


def _version(text: str) -> tuple[int, int]:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _matrix_rates(device: Message) -> dict[int, float]:
    """Rates of the element types; a fused multiply-add counts as two operations."""
    sms = integer(device, "core_count")
    rates = {}
    for row in submessages(submessage(device, "matrix_unit_description"), "rate_infos"):
        value = submessage(row, "value")
        rates[integer(row, "key")] = (
            2e9
            * number(value, "clock_rate_ghz")
            * integer(value, "units_per_core")
            * integer(value, "ops_per_clock")
            * sms
        )
    return rates
