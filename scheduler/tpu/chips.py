"""The TPUs that modules are compiled and scheduled for, by their public figures.

    chip("v5e").tensorcore_mhz          1500.0
    chip("v5e").us(3000)                2.0, of 3000 cycles
    chip_names()                        ('v4', 'v5e', 'v5p', 'v6e', 'tpu7x')

The figures and their sources are in `data/tpu_chips.csv`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import UsageError, nearest
from hlo_passes.scheduler.latency.data_tables import rows

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Chip:
    """Public figures of one TPU.

    Attributes:
        name: as `--target` takes it.
        jax_kind: what JAX calls its devices.
        torus: '2D torus' or '3D torus'.
        dimensions: of the grid of chips that `--topology` names.
        devices_per_chip: that JAX shows.
        tensorcores: of one chip.
        tensorcore_mhz: the clock in which the compiler counts cycles.
        bf16_flops: of one chip, FLOP/s.
        hbm_bytes: memory of one chip.
        hbm_bytes_per_s: its bandwidth.
        ici_links: of one chip to its neighbors.
        ici_bytes_per_s: of one link, one way.
        tuple_table_bytes: what a tuple's table of pointers is rounded up to.
        is_aggressive: whether policies of depth and waste are on by default.
        sparsecore_calls: in flight on one SparseCore; 1 for chips without them.
        queues_calls: whether such calls wait in a queue instead, by default.
    """

    name: str
    jax_kind: str
    torus: str
    dimensions: int
    devices_per_chip: int
    tensorcores: int
    tensorcore_mhz: float
    bf16_flops: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    ici_links: int
    ici_bytes_per_s: float
    tuple_table_bytes: int
    is_aggressive: bool
    sparsecore_calls: int
    queues_calls: bool

    @property
    def device_bytes(self) -> int:
        """Memory of one of the devices that JAX shows."""
        return self.hbm_bytes // self.devices_per_chip

    def us(self, cycles: float) -> float:
        """Microseconds of cycles of a TensorCore."""
        return cycles / self.tensorcore_mhz


@functools.cache
def _chips() -> dict[str, Chip]:
    return {row["chip"]: _chip_of(row) for row in rows("tpu_chips")}


def _chip_of(row: dict[str, str]) -> Chip:
    return Chip(
        name=row["chip"],
        jax_kind=row["jax_kind"],
        torus=row["topology"],
        dimensions=int(row["dimensions"]),
        devices_per_chip=int(row["devices_per_chip"]),
        tensorcores=int(row["tensorcores"]),
        tensorcore_mhz=float(row["tensorcore_mhz"]),
        bf16_flops=float(row["bf16_tflops"]) * 1e12,
        hbm_bytes=int(row["hbm_gib"]) * _GIB,
        hbm_bytes_per_s=float(row["hbm_gb_per_s"]) * 1e9,
        ici_links=int(row["ici_links"]),
        ici_bytes_per_s=float(row["ici_gb_per_s"]) * 1e9,
        tuple_table_bytes=int(row["tuple_table_bytes"]),
        is_aggressive=row["aggressive"] == "true",
        sparsecore_calls=int(row["sparsecore_calls"] or 1),
        queues_calls=row["sparsecore_queue"] == "true",
    )


def chip_names() -> tuple[str, ...]:
    """The chips of the table, oldest first."""
    return tuple(_chips())


def is_chip(name: str) -> bool:
    """Whether a target's name is that of a TPU."""
    return name in _chips()


def chip(name: str) -> Chip:
    """A chip by name. Raises UsageError U250 for an unknown one."""
    found = _chips().get(name)
    if found is None:
        raise UsageError(
            f"unknown TPU {name}" if name else "no TPU is named",
            code="U250",
            hint=nearest(name, chip_names()) or f"one of {', '.join(chip_names())}",
        )
    return found
