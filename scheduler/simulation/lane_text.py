"""Lanes as plain text: one line per lane, one character per slice of time.

compute         |######--####LLLLLL##|
exposed         |      !!            |
communication 0 |  ======   --       |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    Span,
    TimelineData,
)

_EXPOSED: Final = "exposed"
#: The marks of a slice that is busy for at least half of it, and for less.
_MARKS: Final = {COMPUTE_LANE: "#-", "loop": "Ll", _EXPOSED: "!.", "": "=-"}
#: From this share on, a slice counts as busy.
_HALF: Final = 0.5
LEGEND: Final = "# compute  L loop  ! exposed  = beside compute  (- l . less than half)"


def lanes_text(timeline: TimelineData, computation: str, width: int) -> list[str]:
    """Lines of at most `width` characters, the legend last."""
    spans = timeline.spans_of(computation)
    step = timeline.computations[computation].step_time_us
    exposed = [s for s in spans if _is_exposed(s)]
    lanes: dict[str, list[Span]] = {COMPUTE_LANE: [], _EXPOSED: exposed}
    for lane in timeline.lanes(computation):
        lanes[lane] = [s for s in spans if s.lane == lane and not _is_exposed(s)]
    label_width = max(map(len, lanes))
    cells = width - label_width - len(" ||")
    lines = [
        f"{lane.ljust(label_width)} |{_line(lane, of_lane, step, cells)}|"
        for lane, of_lane in lanes.items()
    ]
    return [*lines, f"{'':{label_width}}  {LEGEND}"]


def _is_exposed(span: Span) -> bool:
    return span.lane == COMPUTE_LANE and span.kind in ("wait", "collective")


def _line(lane: str, spans: Iterable[Span], step_us: float, cells: int) -> str:
    busy = [0.0] * cells
    loops = [0.0] * cells
    for span in spans:
        first = span.start_us / step_us * cells
        last = min(span.end_us / step_us * cells, float(cells))
        for cell in range(int(first), min(int(last), cells - 1) + 1):
            part = max(0.0, min(last, cell + 1) - max(first, cell))
            busy[cell] += part
            loops[cell] += part if span.kind == "loop" else 0.0
    marks = _MARKS.get(lane, _MARKS[""])
    return "".join(
        _mark(_MARKS["loop"] if loop > share / 2 else marks, share)
        for share, loop in zip(busy, loops, strict=True)
    )


def _mark(marks: str, share: float) -> str:
    if share <= 0.0:
        return " "
    return marks[0] if share >= _HALF else marks[1]
