"""Spans of a computation laid out for drawing: lanes of rows that do not overlap.

    compute          [fusion.1][   ][fusion.2]
    communication 0      [all-gather-start.1 ]

Above the compute lane is one that shows only when the device waits: a done whose
collective is not finished, or a synchronous collective.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    Span,
    TimelineData,
)

#: Roles of a lane: one that shows when the device waits, and any other.
LaneRole = Literal["wait", "work"]
_WAIT_LABEL: Final = "Exposed"
#: Spans that overlap by less count as consecutive: sums of times are not exact.
_TOUCHING_US: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: rows of spans by start; no two spans of a row overlap."""

    label: str
    role: LaneRole
    rows: tuple[tuple[Span, ...], ...]


def lanes_of(timeline: TimelineData, spans: Sequence[Span]) -> list[Lane]:
    """Lanes of one computation from its spans (ascending start).

    Where nothing queues, streams make no difference: everything in flight shares one
    lane.
    """
    by_label: dict[str, list[Span]] = {}
    if spans:
        for lane in timeline.lanes(spans[0].computation):
            by_label.setdefault(lane_label(lane, timeline), [])
    for span in spans:
        by_label[lane_label(span.lane, timeline)].append(span)
    lanes: list[Lane] = []
    for label, members in by_label.items():
        if members[0].lane == COMPUTE_LANE:
            waits = [span for span in members if is_exposed_wait(span)]
            lanes.append(Lane(_WAIT_LABEL, "wait", rows_of(waits)))
        work = [span for span in members if span.kind != "wait"]
        lanes.append(Lane(label, "work", rows_of(work)))
    return lanes


def is_exposed_wait(span: Span) -> bool:
    """Whether the device waits, and does not compute, while the span lasts."""
    return span.lane == COMPUTE_LANE and span.kind in ("wait", "collective", "transfer")


def lane_label(lane: str, timeline: TimelineData) -> str:
    """'communication 0' -> 'Communication 0'; no number where nothing queues."""
    name, _, number = lane.rpartition(" ")
    shown = name if name and number.isdecimal() and timeline.streams == 0 else lane
    return shown[:1].upper() + shown[1:]


def rows_of(spans: Iterable[Span]) -> tuple[tuple[Span, ...], ...]:
    """Spread spans over as few rows as possible, each into the first free one."""
    rows: list[list[Span]] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for span in spans:
        while busy and busy[0][0] <= span.start_us + _TOUCHING_US:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            number = heapq.heappop(free)
        else:
            number = len(rows)
            rows.append([])
        rows[number].append(span)
        heapq.heappush(busy, (span.end_us, number))
    return tuple(map(tuple, rows))
