"""Reads the package's CSV files: `#` comments, then a header, then rows."""

from __future__ import annotations

import csv
import functools
from importlib import resources


@functools.cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """All rows of `data/<name>.csv`, cells as text by column name."""
    file = resources.files("hlo_passes.scheduler").joinpath("data", f"{name}.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(line for line in lines if not line.startswith("#")))


#: XLA's key of a device -> stem of the collective table, and of the GEMM table.
COLLECTIVE_TABLES = {
    "sm_90": "collective_perf_h100",
    "sm_100_B200": "collective_perf_b200",
    "sm_100_GB200": "collective_perf_gb200",
    "sm_103": "collective_perf_gb300",
}
MATMUL_TABLES = {"sm_90": "matmul_perf_h100", "sm_100_B200": "matmul_perf_b200"}


@functools.cache
def op_cycles(profile: str) -> dict[tuple[str, str], int]:
    """(opcode, element type) -> cycles per element of an op profile ('sm_86').

    Missing entries cost `DEFAULT_OP_CYCLES`. A part without rows uses the default
    profile's. Source: openxla/xla `hlo_op_profiles_data.h`.
    """
    found = {
        (row["opcode"], row["dtype"]): int(row["cycles"])
        for row in rows("elementwise_op_cycles")
        if row["profile"] == profile
    }
    if not found and profile != DEFAULT_OP_PROFILE:
        return op_cycles(DEFAULT_OP_PROFILE)
    return found


DEFAULT_OP_PROFILE = "sm_86"
DEFAULT_OP_CYCLES = 3
