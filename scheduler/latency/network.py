"""Time on the wire between partitions, and of NVLink kernels inside one.

    T(B) = launch + rounds * k * (rtt + prep * ceil(p / chunk) + p * wire)

with piece p = B // g for g GPUs, of which m share each host's NICs, and
k = (g - 1) / m steps across a host border. On log axes T is flat, then has slope one:
the S-curve of bandwidth against size.

Source: openxla/xla `sol_gpu_cost_model.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.scheduler.latency.durations import scaled, ticks_of_s, ticks_of_us
from hlo_passes.scheduler.latency.options import NetworkConfig

RingKind = Literal["all-gather", "all-reduce", "reduce-scatter", "send-recv"]

#: Bytes on the wire per byte of payload.
_HEADER_OVERHEAD: Final = 1.025
_KERNEL_LAUNCH_TICKS: Final = ticks_of_us(1.0)
#: Up to this size a collective kernel moves everything in one shot.
_ONE_SHOT_BYTES: Final = 256 * 1024


class NotEstimated(Exception):  # noqa: N818  # a state, not a fault of anybody
    """XLA's model has no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class WireTime:
    """Parts of an inter-partition time, in ticks.

    They add up to `total` except for the rounding of a tick per step.

    Attributes:
        total: of the whole operation, including launch.
        launch: of the operation.
        rtt: round trips of all steps.
        preparation: of chunks in all steps.
        wire: bytes of all steps.
        piece_bytes: bytes of one step.
    """

    total: int
    launch: int
    rtt: int
    preparation: int
    wire: int
    piece_bytes: int


def participants(config: NetworkConfig, hosts: int, communicators: int) -> int:
    """GPUs of one communicator: hosts * gpus_per_node / communicators.

    Raises NotEstimated if the communicators do not divide gpus_per_node.
    """
    if communicators < 1 or config.gpus_per_node % communicators:
        raise NotEstimated(
            f"{communicators} communicators do not divide "
            f"gpus_per_node={config.gpus_per_node}"
        )
    return hosts * config.gpus_per_node // communicators


def _wire_ticks(config: NetworkConfig, size_bytes: int) -> int:
    us = 1e6 * size_bytes / (1e9 * config.nic_gb_per_s) * _HEADER_OVERHEAD
    return ticks_of_us(us)


def _preparation_ticks(config: NetworkConfig, size_bytes: int) -> int:
    return math.ceil(size_bytes / config.chunk_size_bytes) * config.chunk_prep_ticks


def ring_time(
    config: NetworkConfig,
    size_bytes: int,
    hosts: int,
    kind: RingKind,
    communicators: int,
) -> WireTime:
    """A ring over hosts; `size_bytes` is the whole message.

    Raises NotEstimated, see `participants`.
    """
    if kind == "send-recv":
        gpus, piece = 2, size_bytes
    else:
        gpus = participants(config, hosts, communicators)
        piece = size_bytes // gpus
    per_host = max(1, gpus // hosts)
    steps = (gpus - 1) / per_host
    rounds = 2 if kind == "all-reduce" else 1
    wire = _wire_ticks(config, piece)
    preparation = _preparation_ticks(config, piece)
    step = wire + preparation + config.rtt_ticks
    total = scaled(step, steps) * rounds + config.launch_ticks
    return WireTime(
        total,
        config.launch_ticks,
        scaled(config.rtt_ticks, steps * rounds),
        scaled(preparation, steps * rounds),
        scaled(wire, steps * rounds),
        piece,
    )


def all_to_all_time(
    config: NetworkConfig, size_bytes: int, hosts: int, communicators: int
) -> WireTime:
    """Time of an all-to-all: each GPU sends one piece to every GPU of the other hosts.

    Raises NotEstimated, see `participants`.
    """
    gpus = participants(config, hosts, communicators)
    peers = gpus // hosts * (hosts - 1)
    piece = size_bytes // (gpus - 1) if gpus > 1 else size_bytes
    wire = _wire_ticks(config, piece)
    preparation = _preparation_ticks(config, piece)
    total = peers * (wire + preparation + config.rtt_ticks) + config.launch_ticks
    return WireTime(
        total,
        config.launch_ticks,
        peers * config.rtt_ticks,
        peers * preparation,
        peers * wire,
        piece,
    )


def nvlink_kernel_ticks(
    config: NetworkConfig,
    size_bytes: int,
    gpus: int,
    links: int,
    link_gb_per_s: float,
) -> int:
    """An all-reduce kernel over NVLink: one shot up to 256 KiB, then two shots.

    Raises NotEstimated if the target has no links.
    """
    bandwidth = links * link_gb_per_s * 1e9
    if not bandwidth:
        raise NotEstimated("the target has no NVLink links")
    sent = (gpus - 1) * size_bytes
    if size_bytes <= _ONE_SHOT_BYTES:
        return (
            _KERNEL_LAUNCH_TICKS + ticks_of_s(sent / bandwidth) + config.barrier_ticks
        )
    shot = ticks_of_s(sent / gpus / bandwidth) + config.barrier_ticks
    return _KERNEL_LAUNCH_TICKS + 2 * shot
