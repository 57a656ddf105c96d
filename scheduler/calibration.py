"""Fit the network constants of the latency model to measured times.

    kind,bytes,us,devices,hosts
    all-gather,1048576,152.0,16,2

    T = launch + r k (rtt + prep ceil(p / chunk) + wire p) + HBM

For a fixed chunk size the model is linear in launch, round trip, preparation and wire
time per byte. The fit minimizes Huber's loss of the relative errors, with no constant
below zero, by least squares with weights that are found again until they stay: a row
far off (a straggler, a first call) hardly counts. It is solved with every power of two
from 64 KiB to 64 MiB as the chunk size. A constant that the rows cannot separate from
another keeps the target's value, and the result says so.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hlo_passes.errors import UsageError
from hlo_passes.files import read_text
from hlo_passes.scheduler.estimators.base import MOST_US
from hlo_passes.scheduler.hardware.machine import host_figures
from hlo_passes.scheduler.hardware.target import (
    LINES_COMMENT,
    NETWORK_COMMENT,
    Target,
    target_text,
)
from hlo_passes.scheduler.latency.backend_rows import line_rows
from hlo_passes.scheduler.latency.durations import TICKS_PER_US
from hlo_passes.scheduler.latency.measured_lines import MeasuredLine
from hlo_passes.scheduler.latency.network_constants import (
    MOST_NIC_GB_PER_S,
    is_constant,
    range_of,
)
from hlo_passes.scheduler.latency.options import LatencyOptions, network_config
from hlo_passes.scheduler.sums import sequential_sum

_COLUMNS: Final = ("kind", "bytes", "us", "devices", "hosts")
#: Figures beyond these are mistakes.
LEAST_US: Final = 1e-6
_MOST_BYTES: Final = 1 << 62
_MOST_DEVICES: Final = 1 << 31
KINDS: Final = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute",
)  # fmt: skip
_CHUNK_BYTES: Final = tuple(1 << k for k in range(16, 27))
_HEADER_OVERHEAD: Final = 1.025
_PARAMETERS: Final = (
    "nccl_op_launch_us",
    "rtt_us",
    "chunk_prep_us",
    "wire_us_per_byte",
)
_WIRE: Final = _PARAMETERS.index("wire_us_per_byte")
#: Relative residual above which a fit does not describe the measurements.
_POOR_RMS: Final = 0.2
_RANK_TOLERANCE: Final = 1e-9
#: Huber's constant: 95% as good as least squares where errors are normal.
_HUBER: Final = 1.345
#: Standard deviation over median absolute error, of normal errors.
_DEVIATION: Final = 1.4826
#: Relative errors below this are rounding.
_LEAST_SCALE: Final = 1e-9
_MOST_ROUNDS: Final = 50
_SETTLED: Final = 1e-6
#: A row of less weight is called an outlier.
_OUTLIER_WEIGHT: Final = 0.2


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured collective across hosts, or one that is not carried by NCCL.

    Attributes:
        kind: synchronous opcode, or one of `line_rows`.
        size_bytes: of the message: gathered result, reduced array, whole input,
            operand.
        us: measured time.
        devices: in one group.
        hosts: that the group spans; of a GPU whose hosts NVLink joins, the domains.
    """

    kind: str
    size_bytes: int
    us: float
    devices: int
    hosts: int

    @property
    def piece_bytes(self) -> int:
        """Bytes of one step."""
        if self.kind == "collective-permute":
            return self.size_bytes
        parts = self.devices - 1 if self.kind == "all-to-all" else self.devices
        return self.size_bytes // max(1, parts)

    @property
    def steps(self) -> float:
        """Steps that cross a host's border, over all rounds."""
        if self.kind == "collective-permute":
            return 1.0
        per_host = max(1, self.devices // self.hosts)
        if self.kind == "all-to-all":
            return float(per_host * (self.hosts - 1))
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * (self.devices - 1) / per_host

    @property
    def memory_bytes(self) -> float:
        """Bytes that go through HBM."""
        ranks = self.devices
        factor = {
            "all-gather": (3 * ranks - 1) / ranks,
            "reduce-scatter": (3 * ranks - 1) / ranks,
            "all-reduce": 1.0,
            "all-to-all": 2.0,
        }.get(self.kind, 3.0)
        return factor * self.size_bytes


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a fit.

    Attributes:
        target: the GPU measured on.
        options: latency options under XLA's names; floats, as fitted.
        held: options that the rows cannot separate; they kept their value.
        rows: the measurements.
        fitted_us: the model's time of each.
        weights: of each in the fit, from 0 to 1.
    """

    target: str
    options: dict[str, float]
    held: tuple[str, ...]
    rows: tuple[Measurement, ...]
    fitted_us: tuple[float, ...]
    weights: tuple[float, ...] = ()

    @property
    def outliers(self) -> int:
        """Rows that hardly counted."""
        return sum(weight < _OUTLIER_WEIGHT for weight in self.weights)

    @property
    def residuals_us(self) -> tuple[float, ...]:
        """Measured minus fitted time, us."""
        return tuple(r.us - f for r, f in zip(self.rows, self.fitted_us, strict=True))

    @property
    def relative_rms(self) -> float:
        """Root mean square of the relative residuals, weighted as in the fit."""
        weights = self.weights or (1.0,) * len(self.rows)
        squares = [
            w * (d / r.us) ** 2
            for w, d, r in zip(weights, self.residuals_us, self.rows, strict=True)
        ]
        return math.sqrt(sequential_sum(squares) / sequential_sum(weights))

    @property
    def is_poor(self) -> bool:
        """Whether the fit is too far from the rows to be used."""
        return self.relative_rms > _POOR_RMS

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "target": self.target,
            "options": self.options,
            "held": list(self.held),
            "relative_rms": self.relative_rms,
            "is_poor": self.is_poor,
            "outliers": self.outliers,
            "rows": [
                {
                    "kind": row.kind,
                    "bytes": row.size_bytes,
                    "measured_us": row.us,
                    "fitted_us": fitted,
                    "residual_us": residual,
                    "weight": weight,
                }
                for row, fitted, residual, weight in zip(
                    self.rows,
                    self.fitted_us,
                    self.residuals_us,
                    self.weights or (1.0,) * len(self.rows),
                    strict=True,
                )
            ],
        }


def read_measurements(path: str, target: Target) -> tuple[Measurement, ...]:
    """Read the CSV of a GPU's times; lines that start with `#` are comments.

    Raises UsageError U001 (no such file), U214 (a row that is not a measurement).
    """
    text = read_text(path)
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    reader = csv.DictReader(line for _, line in numbered)
    joined = host_figures(target).hosts_of_a_domain
    try:
        missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
        if missing:
            raise _refuse(path, 1, f"no column {', '.join(missing)}")
        found = tuple(
            _measurement(path, number, row, joined)
            for (number, _), row in zip(numbered[1:], reader, strict=False)
        )
    except csv.Error as problem:
        raise _refuse(path, 1, str(problem)) from problem
    if not found:
        raise _refuse(path, 1, "no rows")
    return found


def _refuse(path: str, line: int, what: str) -> UsageError:
    return UsageError(
        f"{path}:{line}: {what}",
        code="U214",
        hint=f"columns {','.join(_COLUMNS)}; kind must be one of {', '.join(KINDS)}, "
        f"or a row that is priced by a line: {', '.join(line_rows())}",
    )


def _measurement(
    path: str, line: int, row: dict[str, str | None], joined: int
) -> Measurement:
    """One row, of a GPU of which NVLink joins so many hosts.

    A row of another way to carry a collective may lie within a host.
    """
    kind = row["kind"] or ""
    try:
        size, devices, hosts = (
            int(row[c] or "") for c in ("bytes", "devices", "hosts")
        )
        us = float(row["us"] or "")
    except ValueError as problem:
        what = "bytes, devices and hosts must be whole numbers, us a number"
        raise _refuse(path, line, what) from problem
    carried = kind in line_rows()
    if kind not in KINDS and not carried:
        raise _refuse(path, line, f"{kind!r} is not a collective that the model knows")
    if not (
        0 <= size <= _MOST_BYTES
        and LEAST_US <= us <= MOST_US
        and 2 <= devices <= _MOST_DEVICES
        and hosts <= devices
    ):
        raise _refuse(path, line, "a size, time or count is out of range")
    if carried and hosts >= 1:
        return Measurement(kind, size, us, devices, hosts)
    if hosts < 2:
        what = f"hosts is {hosts}: these constants describe collectives across hosts"
        raise _refuse(path, line, what)
    domains = -(-hosts // joined)
    if domains < 2:
        what = f"NVLink joins {hosts} hosts: these constants describe the network"
        raise _refuse(path, line, what)
    return Measurement(kind, size, us, devices, domains)


def calibrate(
    rows: Sequence[Measurement], target: Target, *, filename: str = "<rows>"
) -> Calibration:
    """Fit launch, NIC rate, chunk preparation, round trip and chunk size.

    Args:
        rows: times of collectives that cross hosts.
        target: the GPU that they were measured on.
        filename: of the rows, for messages.

    Raises:
        UsageError: U214, the rows fit a constant that no network has.
    """
    # Memory traffic has a known price: only the rest of each time is fitted.
    default = network_config(target, LatencyOptions())
    bandwidth = target.memory_bandwidth_bytes_per_s
    measured = np.array([row.us for row in rows])
    memory = np.array([row.memory_bytes / bandwidth * 1e6 for row in rows])
    start = np.array(
        [
            default.launch_ticks / TICKS_PER_US,
            default.rtt_ticks / TICKS_PER_US,
            default.chunk_prep_ticks / TICKS_PER_US,
            _HEADER_OVERHEAD / (1e3 * default.nic_gb_per_s),
        ]
    )
    # Fit the parameters once for each chunk size, and take the best fit.
    best: tuple[float, int, np.ndarray, tuple[int, ...], np.ndarray, np.ndarray] | None
    best = None
    # The target's own chunk size comes first, so it wins a tie.
    for chunk in (default.chunk_size_bytes, *_CHUNK_BYTES):
        matrix = _design(rows, chunk)
        free = _independent(matrix / measured[:, None])
        found, weights = robust_fit(matrix, measured - memory, measured, start, free)
        if _WIRE in free and _rate(found) > MOST_NIC_GB_PER_S:
            # Times that hardly rise with the bytes do not show how fast the NIC is.
            free = tuple(k for k in free if k != _WIRE)
            found, weights = robust_fit(
                matrix, measured - memory, measured, start, free
            )
        fitted = matrix @ found + memory
        error = float(np.sum(np.abs((measured - fitted) / measured)))
        if best is None or error < best[0] * (1 - _RANK_TOLERANCE) - _RANK_TOLERANCE:
            best = (error, chunk, found, free, fitted, weights)
    assert best is not None
    _, chunk, found, free, fitted, weights = best
    # Express the fit as options of the model, and name the parameters that the
    # measurements do not determine.
    options = {
        "nccl_op_launch_us": float(found[0]),
        "rtt_us": float(found[1]),
        "chunk_prep_us": float(found[2]),
        "nic_speed_gbps": _rate(found),
        "chunk_size_bytes": float(chunk),
    }
    for name, value in options.items():
        if not is_constant(name, value):
            raise UsageError(
                f"{filename}: the rows fit {name}={value:g}, which is out of range",
                code="U214",
                hint=range_of(name),
            )
    held = tuple(
        "nic_speed_gbps" if name == "wire_us_per_byte" else name
        for k, name in enumerate(_PARAMETERS)
        if k not in free
    )
    return Calibration(
        target.spec,
        options,
        held,
        tuple(rows),
        tuple(map(float, fitted)),
        tuple(map(float, weights)),
    )


def _rate(values: np.ndarray) -> float:
    """The NIC's rate, 1e9 bytes/s; infinite for no time on the wire."""
    wire = float(values[_WIRE])
    return _HEADER_OVERHEAD / (1e3 * wire) if wire else math.inf


def _design(rows: Sequence[Measurement], chunk_bytes: int) -> np.ndarray:
    """One row per measurement: the factors of launch, rtt, prep and wire."""
    return np.array(
        [
            [
                1.0,
                row.steps,
                row.steps * math.ceil(row.piece_bytes / chunk_bytes),
                row.steps * row.piece_bytes,
            ]
            for row in rows
        ]
    )


def _independent(matrix: np.ndarray) -> tuple[int, ...]:
    """Columns that the rows can separate; launch and wire come before rtt and prep."""
    norms = np.linalg.norm(matrix, axis=0)
    chosen: list[int] = []
    for column in (0, 3, 1, 2):
        if not norms[column]:
            continue
        trial = [*chosen, column]
        scaled = matrix[:, trial] / norms[trial]
        smallest = np.linalg.svd(scaled, compute_uv=False)[-1]
        if len(matrix) >= len(trial) and smallest > math.sqrt(_RANK_TOLERANCE):
            chosen = trial
    return tuple(sorted(chosen))


def robust_fit(
    matrix: np.ndarray,
    wanted: np.ndarray,
    measured: np.ndarray,
    start: np.ndarray,
    free: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """(values, weights of the rows) with the least loss of Huber.

    The scale is that of the median error, so up to half of the rows may be far off.
    """
    weights = np.ones(len(wanted))
    found = _fit(matrix, wanted, measured, start, free)
    for _ in range(_MOST_ROUNDS):
        errors = np.abs(matrix @ found - wanted) / measured
        scale = max(_DEVIATION * float(np.median(errors)), _LEAST_SCALE)
        before, weights = (
            weights,
            np.minimum(1.0, _HUBER * scale / np.maximum(errors, _LEAST_SCALE)),
        )
        found = _fit(matrix, wanted, measured / np.sqrt(weights), start, free)
        if np.abs(weights - before).max() < _SETTLED:
            break
    return found, weights


def _fit(
    matrix: np.ndarray,
    wanted: np.ndarray,
    units: np.ndarray,
    start: np.ndarray,
    free: tuple[int, ...],
) -> np.ndarray:
    """Least squares without negatives, errors in units of each row: the best support.

    A row measured in larger units counts less.
    """
    held = [k for k in range(len(start)) if k not in free]
    rest = (wanted - matrix[:, held] @ start[held]) / units
    scaled = matrix / units[:, None]
    best_error, best = math.inf, start.copy()
    for size in range(len(free), -1, -1):
        for support in itertools.combinations(free, size):
            columns = list(support)
            norms = np.linalg.norm(scaled[:, columns], axis=0)
            # Without any column left, the constants that are held already exceed the
            # rows.
            solution = np.zeros(0)
            if columns:
                solution, *_ = np.linalg.lstsq(
                    scaled[:, columns] / norms, rest, rcond=None
                )
            if (solution < 0).any():
                continue
            values = start.copy()
            values[list(free)] = 0.0
            values[columns] = solution / norms
            error = float(np.sum((scaled[:, columns] @ values[columns] - rest) ** 2))
            if error < best_error:
                best_error, best = error, values
    return best


def calibration_text(found: Calibration) -> str:
    """The fit as text for a reader."""
    lines = [f"{found.target}: {len(found.rows)} rows", ""]
    for name, value in found.options.items():
        held = "  (not determined by these rows)" if name in found.held else ""
        lines.append(f"  {name:18} {value:14.4f}{held}")
    lines += ["", "  measured us     fitted us    residual  row"]
    for row, fitted, residual in zip(
        found.rows, found.fitted_us, found.residuals_us, strict=True
    ):
        lines.append(
            f"{row.us:13.3f} {fitted:13.3f} {residual:11.3f}  {row.kind} "
            f"{row.size_bytes} bytes, {row.devices} devices on {row.hosts} hosts"
        )
    lines += ["", f"relative residual, root mean square: {found.relative_rms:.2%}"]
    if found.outliers:
        lines.append(f"{found.outliers} of the rows are far off and hardly count")
    if found.is_poor:
        lines.append(
            "these constants do not fit the rows: noise, outliers or too few sizes"
        )
    return "\n".join(lines) + "\n"


def target_with_fits(
    name: str, found: Calibration | None, lines: Sequence[MeasuredLine] = ()
) -> str:
    """The target's description with what was fitted, for `--target=FILE`.

    Args:
        name: of the target, or its file.
        found: network constants; None keeps those that it has.
        lines: of other ways to carry collectives; with none it keeps those it has.
    """
    options = "" if found is None else _constants_text(found)
    fitted = {
        NETWORK_COMMENT: options,
        LINES_COMMENT: " ".join(line.text for line in lines),
    }
    new = [f"{comment} {text}" for comment, text in fitted.items() if text]
    kept = [
        line
        for line in target_text(name).splitlines()
        if not any(text and line.startswith(c) for c, text in fitted.items())
    ]
    return "\n".join([*new, *kept]) + "\n"


def _constants_text(found: Calibration) -> str:
    return ",".join(f"{n}={v:.9g}" for n, v in found.options.items())
