"""Fit lines to the measured times of other ways to carry collectives.

    kind,bytes,us,devices,hosts
    copied-exchange,1048576,22.1,8,1
    copied-exchange,16777216,167.0,8,1      copied-exchange:12.44:94.9797

    T = setup + bytes sent / rate

`kind` is a row of `collective_backends.csv`. The fit is that of `calibration`: least
squares of relative errors with Huber's weights, nothing below zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_passes.errors import UsageError
from hlo_passes.scheduler.calibration import Measurement, robust_fit
from hlo_passes.scheduler.latency.backend_rows import backend_row, line_rows
from hlo_passes.scheduler.latency.measured_lines import MeasuredLine, bytes_sent
from hlo_passes.scheduler.sums import sequential_sum


@dataclass(frozen=True, slots=True)
class LineFit:
    """A fitted line.

    Attributes:
        line: that fits best.
        rows: how many were fitted.
        relative_rms: root mean square of the relative residuals.
    """

    line: MeasuredLine
    rows: int
    relative_rms: float

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "row": self.line.row,
            "setup_us": self.line.setup_us,
            "gb_per_s": self.line.gb_per_s,
            "rows": self.rows,
            "relative_rms": self.relative_rms,
        }


def fit_lines(
    rows: Iterable[Measurement], *, filename: str = "<rows>"
) -> tuple[LineFit, ...]:
    """A line for each row of the table that was measured, in the table's order.

    Args:
        rows: times of ways to carry collectives.
        filename: of the rows, for messages.

    Raises:
        UsageError: U214, fewer than two sizes, or times that do not rise.
    """
    found: dict[str, list[Measurement]] = {}
    for row in rows:
        found.setdefault(row.kind, []).append(row)
    return tuple(
        _fit(name, found[name], filename) for name in line_rows() if name in found
    )


def _fit(name: str, rows: Sequence[Measurement], filename: str) -> LineFit:
    kind = backend_row(name).kind
    sent = np.array([bytes_sent(kind, row.size_bytes, row.devices) for row in rows])
    if len(set(sent.tolist())) < 2:
        raise _refuse(filename, name, "a line needs two sizes")
    measured = np.array([row.us for row in rows])
    matrix = np.stack([np.ones(len(rows)), sent], axis=1)
    found, _ = robust_fit(matrix, measured, measured, np.zeros(2), (0, 1))
    setup, per_byte = map(float, found)
    if per_byte <= 0:
        raise _refuse(filename, name, "the times do not rise with the bytes")
    errors = [float(e) for e in (matrix @ found - measured) / measured]
    rms = math.sqrt(sequential_sum(e * e for e in errors) / len(errors))
    line = MeasuredLine(name, setup, 1e-3 / per_byte)
    try:
        MeasuredLine.parse(line.text)
    except ValueError:
        raise _refuse(filename, name, "no link has such a rate") from None
    return LineFit(line, len(rows), rms)


def _refuse(filename: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"{filename}: {name}: {why}",
        code="U214",
        hint="measure small and large messages, of 1 KiB and of 64 MiB for example",
    )


def lines_text(fits: Sequence[LineFit]) -> str:
    """The lines for a reader, and how the pass takes them."""
    lines = [
        f"  {fit.line.row:20} {fit.line.setup_us:10.3f} us + bytes sent / "
        f"{fit.line.gb_per_s:.3f} GB/s   ({fit.rows} rows, relative residual "
        f"{fit.relative_rms:.2%})"
        for fit in fits
    ]
    given = " ".join(fit.line.text for fit in fits)
    lines.append(f"--passes=\"collective-backend-choice{{measured-lines='{given}'}}\"")
    return "\n".join(lines) + "\n"
