"""What the first screen says in words: the verdict, and exposed time by cause."""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.scheduler.page.encoding import sentence, time_text
from hlo_passes.scheduler.simulation.advice import in_the_program
from hlo_passes.scheduler.simulation.collective_groups import (
    CollectiveGroup,
    groups_of,
)
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

#: A TPU has no streams.
_QUEUED_ON_TPU: Final = "Queued behind another collective"
#: Groups of collectives that are listed for each cause.
_MOST_GROUPS: Final = 3


def causes_of(timeline: TimelineData) -> list[dict[str, Any]]:
    """Exposed time of a step by cause, most expensive first; zero ones are left out."""
    rows: dict[CauseKind, list[CollectiveRow]] = {}
    for row in timeline.collectives:
        if row.total_exposed_us > 0.0:
            rows.setdefault(row.cause_kind, []).append(row)
    on_tpu = timeline.is_of_tpu
    found = [_cause(kind, members, on_tpu=on_tpu) for kind, members in rows.items()]
    return sorted(found, key=lambda c: (-c["exposed_us"], c["kind"]))


def _cause(
    kind: CauseKind, rows: list[CollectiveRow], *, on_tpu: bool
) -> dict[str, Any]:
    groups = groups_of(rows)
    return {
        "kind": kind,
        "label": _QUEUED_ON_TPU if on_tpu and kind == "queued" else _LABELS[kind],
        "lever": sentence(in_the_program(kind, on_tpu=on_tpu)),
        "exposed_us": round(sequential_sum(r.total_exposed_us for r in rows), 3),
        "count": len(rows),
        "groups": [_group(group) for group in groups[:_MOST_GROUPS]],
        "more": len(groups[_MOST_GROUPS:]),
    }


def _group(group: CollectiveGroup) -> dict[str, Any]:
    worst = group.worst
    return {
        "label": group.label or worst.name,
        "count": group.count,
        "exposed_us": round(group.total_exposed_us, 3),
        "opcode": worst.opcode,
        "bytes": worst.bytes,
        "source": worst.place.source,
        "computation": worst.computation,
        "name": worst.name,
    }


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
    group = next(iter(groups_of(timeline.collectives)))
    if group.total_exposed_us > 0.0:
        many = "are" if len(group.rows) > 1 else "is"
        cause = sentence(group.worst.cause)
        said += f" The most expensive {many} {_named(group)}: {cause}"
    if timeline.state.cure:
        return said
    gap = timeline.times.gap_us
    order = f"{timeline.bound_premise}a better order"
    return (
        f"{said} {order[0].upper()}{order[1:]} could save at most {time_text(gap)} "
        f"(bound by {timeline.times.bound_by}: {timeline.times.bound_why})."
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


def _named(group: CollectiveGroup) -> str:
    row, cost = group.worst, time_text(group.total_exposed_us)
    if len(group.rows) > 1:
        return f"{group.count:g} \N{MULTIPLICATION SIGN} {group.label}, {cost}"
    members = row.place.members or (row.place,)
    known = any(member.parameter for member in members)
    name = f"%{row.name} ({row.place.label})" if known else f"%{row.name}"
    return f"{name}, {cost}" + (
        f" in {row.executions:g} runs" if row.executions > 1 else ""
    )
