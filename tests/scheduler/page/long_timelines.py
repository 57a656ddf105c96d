"""Timelines of any length, made by hand: fusions on one lane, collectives on two."""

from __future__ import annotations

from hlo_passes.analysis.module_state import ModuleState
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    CollectiveRow,
    ComputationTimes,
    MemoryPoint,
    Span,
)

_EVERY = 20  # a collective after so many fusions
_FUSION_US, _GAP_US = 7.0, 0.5


def long_timeline(count: int) -> Timeline:
    """A computation of that many spans."""
    spans: list[Span] = []
    rows: list[CollectiveRow] = []
    points: list[MemoryPoint] = []
    now = 0.0
    for k in range(count - count // _EVERY):
        length = _FUSION_US * (1 + k % 5)
        spans.append(
            Span(
                "main",
                f"fusion.{k}",
                "fusion",
                COMPUTE_LANE,
                now,
                now + length,
                "compute",
            )
        )
        points.append(MemoryPoint("main", now, (k * 7919) % 10_000 * 1_000_000))
        if k % _EVERY == 0 and len(spans) < count:
            lane = f"communication {k // _EVERY % 2}"
            end = now + _FUSION_US * _EVERY
            name = f"all-gather-start.{k}"
            spans.append(
                Span("main", name, "all-gather-start", lane, now, end, "collective")
            )
            rows.append(_row(name, lane, now, end))
        now += length + _GAP_US
    times = ComputationTimes(
        name="main",
        step_time_us=now,
        exposed_us=0.0,
        other_exposed_us=0.0,
        compute_us=now,
        communication_us=sum(row.latency_us for row in rows),
        lower_bound_us=now,
        bound_by="compute",
        bound_why="nothing overlaps",
        serial_us=2 * now,
        peak_memory_bytes=max(p.bytes for p in points),
        trip_count=1,
        executions=1.0,
    )
    spans.sort(key=lambda span: span.start_us)
    return Timeline(
        module="long",
        state=ModuleState("gpu-scheduled", "scheduled for a GPU", ()),
        target="h100_sxm",
        topology="1x1x8",
        estimator="table",
        streams=2,
        entry="main",
        computations={"main": times},
        collectives=tuple(rows),
        spans=tuple(spans),
        memory=tuple(points),
    )


def _row(name: str, lane: str, start: float, end: float) -> CollectiveRow:
    return CollectiveRow(
        computation="main",
        name=name,
        done=name.replace("start", "done"),
        opcode="all-gather",
        stream=int(lane[-1]),
        lane=lane,
        bytes=1 << 20,
        operands=("f32[262144]{0} %x",),
        groups="{{0,1,2,3,4,5,6,7}}",
        latency_us=end - start,
        exposed_us=0.0,
        start_us=start,
        begin_us=start,
        end_us=end,
        done_us=end,
        executions=1.0,
        total_exposed_us=0.0,
        overlap="hidden",
        cause_kind="hidden",
        cause="hidden",
        model="table",
        reason="",
    )
