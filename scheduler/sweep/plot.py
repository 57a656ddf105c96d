"""A plot of a sweep: the step of every combination, and the memory that it needs.

It needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.scheduler.plots import new_figure, picture_bytes
from hlo_passes.scheduler.sweep.report import SweepReport
from hlo_passes.scheduler.sweep.run import SweepRow, fits

#: Nobody reads more bars than this; the fastest are drawn.
_MOST_BARS: Final = 40
_COMPUTE, _EXPOSED, _BEST, _OVER = "#7f93a8", "#c8431b", "#1b6e4b", "#b4bcc6"
_BYTES_PER_GIB: Final = 1 << 30
_BAR_INCHES: Final = 0.28
_FRAME_INCHES: Final = 1.6


def plot_sweep(report: SweepReport, file_format: str) -> bytes:
    """The picture of a sweep.

    Args:
        report: what the sweep found.
        file_format: one of `hlo_passes.scheduler.plots.FORMATS`.

    Raises UsageError U210 (matplotlib is missing), U211 (nothing to draw).
    """
    done = [row for row in report.rows if row.times is not None]
    if not done:
        raise UsageError(
            "no combination of the sweep has a time to draw",
            code="U211",
            hint="the table says why each failed",
        )
    shown = sorted(done, key=_step_us)[:_MOST_BARS]
    height = max(3.6, _FRAME_INCHES + _BAR_INCHES * len(shown))
    figure = new_figure((11.0, height))
    bars, scatter = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_bars(bars, report, shown)
    _draw_memory(scatter, report, done)
    return picture_bytes(figure, file_format)


@dataclass(frozen=True, slots=True)
class _Unit:
    name: str
    us: float


_UNITS: Final = (_Unit("s", 1e6), _Unit("ms", 1e3), _Unit("us", 1.0))


def _time_unit(rows: Sequence[SweepRow]) -> _Unit:
    """The unit that suits the longest step."""
    longest = max(map(_step_us, rows))
    return next((unit for unit in _UNITS if longest >= unit.us), _UNITS[-1])


def _step_us(row: SweepRow) -> float:
    assert row.times is not None, "only rows with times are drawn"
    return row.times.step_time_us


def _draw_bars(axes: Any, report: SweepReport, rows: Sequence[SweepRow]) -> None:
    """Compute and exposed time of each combination, the fastest on top."""
    best = report.best
    places = range(len(rows))
    unit = _time_unit(rows)
    compute = [row.times.compute_us / unit.us for row in rows if row.times]
    exposed = [row.times.exposed_us / unit.us for row in rows if row.times]
    axes.barh(places, compute, color=_COMPUTE, label="compute")
    axes.barh(
        places, exposed, left=compute, color=_EXPOSED, hatch="///",
        edgecolor="white", linewidth=0, label="exposed",
    )  # fmt: skip
    labels = [
        ", ".join(row.choice) + (" (best)" if row is best else "") for row in rows
    ]
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()
    names = ", ".join(each.label for each in report.swept)
    axes.set_title(names, loc="left", fontsize=9)
    axes.set(xlabel=f"step, {unit.name}")
    if report.given is not None:
        given = report.given.step_time_us / unit.us
        axes.axvline(
            given, color="black", linestyle="--", linewidth=1, label="as given"
        )
    axes.legend(fontsize=7, loc="lower right")


def _draw_memory(axes: Any, report: SweepReport, rows: Sequence[SweepRow]) -> None:
    """Step against peak memory; combinations over the limit are pale."""
    best = report.best
    unit = _time_unit(rows)
    for row in rows:
        if row.times is None:
            continue
        is_best = row is best
        within = fits(row.times, report.limit_bytes)
        axes.plot(
            row.times.peak_memory_bytes / _BYTES_PER_GIB,
            row.times.step_time_us / unit.us,
            marker="*" if is_best else "o",
            markersize=13 if is_best else 6,
            color=_BEST if is_best else _COMPUTE if within else _OVER,
            linestyle="none",
            label="best" if is_best else None,
        )
    if report.limit_bytes is not None:
        limit = report.limit_bytes / _BYTES_PER_GIB
        axes.axvline(limit, color=_EXPOSED, linestyle=":", label="memory limit")
    axes.set(xlabel="peak memory, GiB", ylabel=f"step, {unit.name}")
    axes.ticklabel_format(useOffset=False)
    axes.grid(visible=True, alpha=0.3)
    if best is not None or report.limit_bytes is not None:
        axes.legend(fontsize=7)
