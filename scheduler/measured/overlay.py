"""Predicted beside measured: by kind, and instruction by instruction.

kind         count  predicted  measured  error
fusion          12    1.20 ms   1.50 ms  -20.0%
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.async_form import is_done, work_of
from hlo_passes.ir.calls import runs_callees, scheduled_computations
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.base import Estimator, is_constant
from hlo_passes.scheduler.measured.trace import NO_GRAPHS, Measured
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.scheduler.written_profile import simulated_price

#: A share of the measured time.
_WORTH_A_WORD: Final = 0.01


@dataclass(frozen=True, slots=True)
class Compared:
    """One instruction.

    Attributes:
        name: of the instruction.
        kind: its operation, of a start without `-start`.
        executions: in a step.
        predicted_us: of one execution; None where only a constant is known.
        measured_us: of one execution.
    """

    name: str
    kind: str
    executions: int
    predicted_us: float | None
    measured_us: float


@dataclass(frozen=True, slots=True)
class KindError:
    """All instructions of a kind that have both times, in a step.

    Attributes:
        kind: the operation.
        count: instructions.
        predicted_us: their sum in a step.
        measured_us: the same.
        median_error: of the instructions, absolute, relative to what was measured.
    """

    kind: str
    count: int
    predicted_us: float
    measured_us: float
    median_error: float

    @property
    def error(self) -> float | None:
        """Predicted less measured, relative to measured; None if nothing took time."""
        if self.measured_us <= 0.0:
            return None
        return self.predicted_us / self.measured_us - 1.0

    def to_json(self) -> dict[str, Any]:
        """The row of the key 'kinds'."""
        names = ("kind", "count", "predicted_us", "measured_us", "median_error")
        return {name: getattr(self, name) for name in names} | {"error": self.error}


@dataclass(frozen=True, slots=True)
class Overlay:
    """What was measured of a module, beside what the estimator says."""

    measured: Measured
    estimator: str
    rows: tuple[Compared, ...]

    @property
    def kinds(self) -> list[KindError]:
        """By kind, what takes longest first."""
        groups: dict[str, list[Compared]] = {}
        for row in self.rows:
            if row.predicted_us is not None:
                groups.setdefault(row.kind, []).append(row)
        found = [_error(kind, rows) for kind, rows in groups.items()]
        return sorted(found, key=lambda each: (-each.measured_us, each.kind))

    @property
    def head(self) -> str:
        """What was measured, in a line."""
        unpriced = sum(row.predicted_us is None for row in self.rows)
        told = (
            f"measured {len(self.rows)} instructions in {self.measured.runs} runs on "
            f"{self.measured.devices} devices ({self.measured.path}); a run took "
            f"{time_text(self.measured.step_us)}"
        )
        if unpriced:
            told += f"; {unpriced} of them have no predicted time"
        if self.measured.lost >= _WORTH_A_WORD:
            told += (
                f"; {100 * self.measured.lost:.0f}% of the time ran in CUDA graphs, in "
                f"kernels that name no instruction: {NO_GRAPHS}"
            )
        return told

    def to_lines(self) -> list[str]:
        """The table of a report."""
        lines = [self.head]
        cells = [("kind", "count", "predicted", "measured", "error", "median")]
        cells += [
            (
                k.kind,
                str(k.count),
                time_text(k.predicted_us),
                time_text(k.measured_us),
                "" if k.error is None else f"{100 * k.error:+.1f}%",
                f"{100 * k.median_error:.1f}%",
            )
            for k in self.kinds
        ]
        widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
        for first, *others in cells:
            right = (c.rjust(w) for c, w in zip(others, widths[1:], strict=True))
            lines.append("  ".join((first.ljust(widths[0]), *right)).rstrip())
        return lines

    def to_sentence(self) -> str:
        """The same in a sentence, for a page."""
        told = [
            f"{k.kind} {time_text(k.measured_us)} "
            f"(predicted {time_text(k.predicted_us)})"
            for k in self.kinds
        ]
        return f"{self.head}; in a step {', '.join(told)}" if told else self.head

    def to_json(self) -> dict[str, Any]:
        """The key 'measured' of `simulate --json`."""
        return {
            "file": self.measured.path,
            "runs": self.measured.runs,
            "devices": self.measured.devices,
            "step_us": self.measured.step_us,
            "lost": self.measured.lost,
            "kinds": [kind.to_json() for kind in self.kinds],
            "instructions": [
                {n: getattr(row, n) for n in Compared.__slots__} for row in self.rows
            ],
        }


def overlay_of(
    module: Module,
    estimator: Estimator,
    measured: Measured,
    trip_counts: Mapping[str, int] | None = None,
) -> Overlay:
    """Compare what was measured with what an estimator says.

    Loops, calls and branches are left out: what they run is measured by itself.
    """
    prices = Prices(estimator)
    counts = executions(TripCounts(module, trip_counts or {}))
    rows = []
    for computation in scheduled_computations(module):
        for instruction in computation.instructions:
            us = measured.us.get(instruction.name)
            if us is None or runs_callees(instruction) or is_done(instruction):
                continue
            found = simulated_price(instruction, prices)
            priced = found is not None and not is_constant(found.model)
            rows.append(
                Compared(
                    instruction.name,
                    work_of(instruction),
                    counts[computation],
                    found.us if found is not None and priced else None,
                    us,
                )
            )
    return Overlay(measured, estimator.name, tuple(rows))


def _error(kind: str, rows: list[Compared]) -> KindError:
    errors = [
        abs((row.predicted_us or 0.0) / row.measured_us - 1.0)
        for row in rows
        if row.measured_us > 0.0
    ]
    return KindError(
        kind,
        len(rows),
        sequential_sum((row.predicted_us or 0.0) * row.executions for row in rows),
        sequential_sum(row.measured_us * row.executions for row in rows),
        statistics.median(errors) if errors else 0.0,
    )
