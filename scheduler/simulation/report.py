"""The first screen in a terminal: what is exposed, where, and why.

step 1.52 ms = compute 1.21 ms + exposed 0.31 ms (20.4%)
...
1. 180.2 us  %all-gather-start.3  hidden 12%
   queued 150.0 us behind %all-reduce-start on communication 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlo_passes.plurals import counted
from hlo_passes.scheduler.estimators.tpu_final import range_premise
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.simulation.collective_groups import groups_of
from hlo_passes.scheduler.simulation.group_text import group_lines
from hlo_passes.scheduler.simulation.lane_text import lanes_text
from hlo_passes.scheduler.simulation.memory_text import memory_lines
from hlo_passes.scheduler.simulation.notes import (
    ESTIMATES,
    concerns_headline,
    concerns_loops,
    once_remark,
)
from hlo_passes.scheduler.simulation.ranges import settings_note
from hlo_passes.scheduler.simulation.timeline_data import (
    ComputationTimes,
    TimelineData,
)
from hlo_passes.scheduler.simulation.units import (
    share_text,
    time_text,
)

DEFAULT_ROWS: Final = 10
#: Computations whose lanes are drawn besides those of the entry.
_MOST_LANES: Final = 2
#: Changes that are listed with what sets them.
_MOST_CHANGES: Final = 3
_CLASSES: Final = ("exposed", "partial", "hidden")


def report_text(
    timeline: TimelineData, rows: int = DEFAULT_ROWS, width: int = 88
) -> str:
    """The whole text.

    Args:
        timeline: what was simulated.
        rows: the most collectives to list.
        width: characters of a line of lanes.
    """
    notes = [n for n in timeline.notes if n != ESTIMATES and not concerns_headline(n)]
    if timeline.sensitivity is not None:
        notes.append(settings_note(timeline.sensitivity))
    if timeline.not_tried:
        changes = counted(timeline.not_tried, "change")
        notes.append(
            f"{changes} not tried, since too much would be scheduled again; "
            "`hlo-passes tune` tries more"
        )
    parts = [
        *_headline(timeline),
        "",
        *_collectives(timeline, rows),
        "",
        *_changes(timeline),
        *_lanes(timeline, width),
        *(timeline.overlay.to_lines() if timeline.overlay else []),
        *([""] if timeline.overlay else []),
        *(f"note: {note}" for note in notes),
        timeline.how_to_change,
    ]
    return "\n".join(parts).rstrip() + "\n"


def _headline(timeline: TimelineData) -> list[str]:
    times = timeline.times
    streams = (
        counted(timeline.streams, "communication stream")
        if timeline.streams
        else "no queueing"
    )
    step = times.step_time_us
    gap = times.gap_us
    bound = f"bound    {time_text(times.lower_bound_us)} ({times.bound_by}): "
    if timeline.state.cure:
        bound += "of the module as it is; what a GPU runs has another one"
    else:
        bound += timeline.bound_premise
        bound += "no order of these instructions is faster; "
        bound += f"the gap is {time_text(gap)} ({share_text(gap, step)})"
    any_structure = _any_structure(timeline)
    why = [] if timeline.state.cure else [f"         because {times.bound_why}"]
    lines = [
        timeline.state.headline,
        f"{timeline.module} on {timeline.priced_on}, "
        f"costs: {timeline.estimator}, {streams}; all times are estimates",
        "",
        f"step     {time_text(step)} = compute {time_text(times.compute_us)} + exposed "
        f"{time_text(times.exposed_us)} ({share_text(times.exposed_us, step)})",
        bound,
        *why,
        any_structure,
        f"network  {time_text(times.communication_us)} of communication, "
        f"{_hidden_share(times)} of it hidden",
        *memory_lines(timeline),
    ]
    if times.other_exposed_us > 0.0:
        lines.append(
            f"other    {time_text(times.other_exposed_us)} of what is exposed waits "
            "for copies and asynchronous computations"
        )
    ranges = timeline.sensitivity
    if ranges is not None:
        # A verdict that is not sure says so first.
        at = lines.index(any_structure) + 1 if ranges.is_sure else 3
        told = ranges.to_text() + range_premise(timeline.estimator)
        lines.insert(at, f"range    {told}")
    lines[0] += beware((*timeline.remarks, *once_remark(timeline.counted_once)))
    lines += [
        f"beware   {note}"
        for note in timeline.notes
        if concerns_headline(note) and not concerns_loops(note)
    ]
    return lines


def _any_structure(timeline: TimelineData) -> str:
    found = timeline.any_structure
    said = (
        f"         {time_text(found.us)} ({found.bound_by}): {timeline.bound_premise}"
        "no restructuring that moves the same bytes and computes the same flops is "
        "faster"
    )
    if timeline.state.cure:
        said += ", of the module as it is"
    return said


def _hidden_share(times: ComputationTimes) -> str:
    exposed = times.exposed_us - times.other_exposed_us
    hidden = max(0.0, times.communication_us - exposed)
    return share_text(hidden, times.communication_us)


def _collectives(timeline: TimelineData, rows: int) -> list[str]:
    counts = dict.fromkeys(_CLASSES, 0)
    for row in timeline.collectives:
        counts[row.overlap] += 1
    if not timeline.collectives:
        return ["no collectives"]
    classes = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    total = counted(len(timeline.collectives), "collective")
    if rows == 0:
        return [f"{total}: {classes}"]
    groups = [g for g in groups_of(timeline.collectives) if g.total_exposed_us > 0.0]
    if not groups:
        return [f"{total} ({classes}): nothing waits for communication"]
    lines = [f"{total}: {classes}. What costs the step most, and why:"]
    for place, group in enumerate(groups[:rows], 1):
        lines += group_lines(timeline, place, group)
    return lines


def _changes(timeline: TimelineData) -> list[str]:
    """What to set, and what the whole step takes with each alone."""
    verified = [each for each in timeline.advice if each.saved_us > 0.0]
    if not verified:
        return []
    lines = ["What to change, each alone, simulated again:"]
    for each in verified[:_MOST_CHANGES]:
        first, second = each.to_lines(timeline.step_time_us)
        lines += [f"  {first}", f"    {second}"]
    return [*lines, ""]


def _lanes(timeline: TimelineData, width: int) -> list[str]:
    """The lanes of the entry, and of the bodies that are exposed most."""
    totals: dict[str, float] = {}
    for row in timeline.collectives:
        totals[row.computation] = (
            totals.get(row.computation, 0.0) + row.total_exposed_us
        )
    ranked: Sequence[str] = sorted(totals, key=lambda name: -totals[name])
    bodies = [n for n in ranked if n != timeline.entry and totals[n] > 0.0]
    lines: list[str] = []
    for name in (timeline.entry, *bodies[:_MOST_LANES]):
        times = timeline.computations[name]
        if times.step_time_us > 0.0:
            often = f", {times.executions:g} times" if times.executions != 1.0 else ""
            lines.append(f"%{name}: {time_text(times.step_time_us)}{often}")
            lines += lanes_text(timeline, name, width)
            lines.append("")
    return lines
