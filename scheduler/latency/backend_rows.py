"""What may carry a collective instead of NCCL: the rows of `collective_backends.csv`.

    row                kind         backend  types      most_bytes  reach    price
    two-shots          all-reduce   kernel   f32 bf16.. 4194304     release  kernel
    copied-exchange    all-to-all   copies   any        any         host     line

XLA's own kernels are here with types, reductions and bytes; what else they need is
in `collective_kernels.py`. A row priced by a `line` counts only with one that the user
measured (`latency/measured_lines.py`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.latency.data_tables import rows

#: What may carry a collective: XLA's kernels over NVLink; copies out of the memory of
#: peers; memory that all devices registered; copies in place of NCCL's sends; NVSHMEM.
BACKENDS: Final = ("kernel", "peer", "symmetric", "copies", "nvshmem")
#: `most_devices` and `reach` of rows for which the release of XLA decides.
BY_RELEASE: Final = "release"


@dataclass(frozen=True, slots=True)
class BackendRow:
    """One row: which collectives it takes, how XLA is told, and how it is priced.

    Attributes:
        name: of the row.
        kind: opcode of the collective.
        backend: one of `BACKENDS`.
        types: element types; empty for any.
        reductions: as `reduction_kind` names them; empty for any.
        most_devices: of one group; 0 for any, and where the release decides.
        most_bytes: of what `measures` says; 0 for any.
        measures: 'operand' or 'result'.
        reach: 'host', 'domain', `BY_RELEASE`, or '' for anywhere.
        spelling: a field of `collective_backend_config`, 'flag', or '' for none.
        value: of the field, or the flag's name.
        price: 'kernel' or 'line'.
    """

    name: str
    kind: str
    backend: str
    types: frozenset[str]
    reductions: frozenset[str]
    most_devices: int
    most_bytes: int
    measures: str
    reach: str
    spelling: str
    value: str
    price: str


@functools.cache
def backend_rows() -> tuple[BackendRow, ...]:
    """The table, in its order."""
    return tuple(_row(cells) for cells in rows("collective_backends"))


@functools.cache
def line_rows() -> tuple[str, ...]:
    """Names of the rows that a measured line prices."""
    return tuple(row.name for row in backend_rows() if row.price == "line")


@functools.cache
def kernel_strategies() -> frozenset[str]:
    """The values of `kernel_strategy` that name a kernel."""
    return frozenset(
        row.value for row in backend_rows() if row.spelling == "kernel_strategy"
    )


@functools.cache
def backend_row(name: str) -> BackendRow:
    """The row of a name, which exists."""
    return next(row for row in backend_rows() if row.name == name)


def _row(cells: dict[str, str]) -> BackendRow:
    devices = cells["most_devices"]
    return BackendRow(
        name=cells["row"],
        kind=cells["kind"],
        backend=cells["backend"],
        types=frozenset(cells["types"].split()),
        reductions=frozenset(cells["reductions"].split()),
        most_devices=0 if devices == BY_RELEASE else int(devices or 0),
        most_bytes=int(cells["most_bytes"] or 0),
        measures=cells["measures"],
        reach=cells["reach"],
        spelling=cells["spelling"],
        value=cells["value"],
        price=cells["price"],
    )
