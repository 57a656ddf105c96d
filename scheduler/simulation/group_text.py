"""A group of collectives in a terminal: what it costs, where it comes from, why.

1. 41.0 ms  32 x params['layers'][*]['up']  all-gather of 112 MiB, exposed
   %all-gather-start.162 and 31 more, model.py:41
   queued 150.0 us behind %all-reduce-start on communication 0
   advice: a second collective in flight: -35.2 ms, verified
"""

from __future__ import annotations

from hlo_passes.scheduler.place_text import place_lines, shortened
from hlo_passes.scheduler.simulation.collective_groups import CollectiveGroup
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, TimelineData
from hlo_passes.scheduler.simulation.units import bytes_text, readable, time_text


def group_lines(
    timeline: TimelineData, number: int, group: CollectiveGroup
) -> list[str]:
    """The lines of a group, after its number in the list."""
    worst = group.worst
    what = f"{worst.opcode} of {bytes_text(worst.bytes)}, {group.overlap}"
    total = time_text(group.total_exposed_us)
    if len(group.rows) == 1:
        said = [f"{total}{_each(worst)}  {_named(timeline, worst)}  {what}"]
        said += place_lines(worst.place, with_label=True)
    else:
        label = shortened(group.label)
        said = [f"{total}  {group.count:g} x {label}  {what}"]
        names = (
            f"{_named(timeline, worst)}{_each(worst)} and {len(group.rows) - 1} more"
        )
        said.append(", ".join([names, *place_lines(worst.place, with_label=False)]))
    said.append(readable(worst.cause))
    # Of all that may be changed, the first saves most.
    if advice := timeline.advice_on(worst):
        said.append(f"advice: {advice[0].to_text()}")
    return [f"{number:3d}. {said[0]}", *(f"     {line}" for line in said[1:])]


def _named(timeline: TimelineData, row: CollectiveRow) -> str:
    where = "" if row.computation == timeline.entry else f" in %{row.computation}"
    return f"%{row.name}{where}"


def _each(row: CollectiveRow) -> str:
    if row.executions == 1.0:
        return ""
    return f" ({time_text(row.exposed_us)}, {row.executions:g} times)"
