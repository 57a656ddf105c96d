"""What the first screen says in words: the verdict, and exposed time by cause."""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.scheduler.page.encoding import sentence, time_text
from hlo_passes.scheduler.simulation.timeline_data import (
    CauseKind,
    CollectiveRow,
    TimelineData,
)
from hlo_passes.scheduler.sums import sequential_sum

_LABELS: Final[dict[CauseKind, str]] = {
    "hidden": "Leftovers of collectives that are almost fully hidden",
    "synchronous": "Synchronous: the device waits for all of it",
    "queued": "Queued behind another collective on its stream",
    "nothing-left": "No work is left that could overlap it",
    "start-waits": "It starts late: its operand is not ready earlier",
    "done-needed": "Its result is needed at once",
    "start-and-done": "It starts late and its result is needed at once",
    "window-short": "Some work overlaps it, but not enough",
}


def causes_of(timeline: TimelineData) -> list[dict[str, Any]]:
    """Exposed time of a step by cause, most expensive first; zero ones are left out."""
    totals: dict[CauseKind, list[float]] = {}
    for row in timeline.collectives:
        if row.total_exposed_us > 0.0:
            totals.setdefault(row.cause_kind, []).append(row.total_exposed_us)
    found = [
        {
            "kind": kind,
            "label": _LABELS[kind],
            "exposed_us": round(sequential_sum(parts), 3),
            "count": len(parts),
        }
        for kind, parts in totals.items()
    ]
    return sorted(found, key=lambda c: (-c["exposed_us"], c["kind"]))


def verdict(timeline: TimelineData) -> str:
    """One sentence on what communication costs the step, its worst case, the bound."""
    step, exposed = timeline.step_time_us, timeline.exposed_us
    if not timeline.collectives:
        return "This module has no collectives; nothing waits for communication."
    if exposed <= 0.0:
        return "Every collective ends before its result is needed: nothing is exposed."
    said = (
        f"The device waits for communication for {time_text(exposed)} of "
        f"{time_text(step)} ({100 * exposed / step:.1f} %)."
    )
    worst = timeline.worst(1)
    if worst:
        said += f" The most expensive is {_named(worst[0])}: {sentence(worst[0].cause)}"
    if timeline.state.cure:
        return said
    gap = timeline.times.gap_us
    return (
        f"{said} A better order could save at most {time_text(gap)} "
        f"(bound by {timeline.times.bound_by})."
    )


def verdict_of_two(before: TimelineData, after: TimelineData) -> str:
    """What the step gained, and which collectives gained or lost most."""
    saved = before.step_time_us - after.step_time_us
    if round(saved, 3) == 0.0:
        said = f"Both take {time_text(after.step_time_us)}."
    else:
        way = "less" if saved > 0 else "more"
        said = (
            f"The step takes {time_text(abs(saved))} {way} "
            f"({100 * abs(saved) / max(before.step_time_us, 1e-9):.1f} %): exposed "
            f"communication goes from {time_text(before.exposed_us)} to "
            f"{time_text(after.exposed_us)}."
        )
    old = {(row.computation, row.name): row for row in before.collectives}
    changes = [
        (old[key].total_exposed_us - row.total_exposed_us, row)
        for row in after.collectives
        if (key := (row.computation, row.name)) in old
    ]
    if not changes:
        return said
    gained, best = max(changes, key=lambda c: c[0])
    lost, worst = min(changes, key=lambda c: c[0])
    if round(gained, 3) > 0.0:
        said += f" The largest gain is %{best.name}: {time_text(gained)} less exposed."
    if round(lost, 3) < 0.0:
        said += f" The largest loss is %{worst.name}: {time_text(-lost)} more."
    return said


def _named(row: CollectiveRow) -> str:
    runs = f" in {row.executions:g} runs" if row.executions > 1 else ""
    return f"%{row.name}, {time_text(row.total_exposed_us)}{runs}"
