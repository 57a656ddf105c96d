"""What to change, as the page shows it: a row for each change."""

from __future__ import annotations

from typing import Any

from hlo_passes.scheduler.page.encoding import sentence
from hlo_passes.scheduler.simulation.timeline_data import TimelineData


def advice_of(timeline: TimelineData) -> list[dict[str, Any]]:
    """All advice of a timeline, most saving first."""
    found = []
    for each in timeline.advice:
        told, how = "", each.xla_flag
        if each.saved_us > 0.0:
            told, how = "; ".join(each.besides()), each.how()
        elif each.is_change:
            told = "not verified here; hlo-passes tune compiles it"
        found.append(
            {
                "change": sentence(each.change),
                "saved_us": round(each.saved_us, 3),
                "most_us": round(each.most_us, 3),
                "step_time_us": each.step_time_us,
                "is_change": each.is_change,
                "told": sentence(told),
                "how": how,
            }
        )
    return found
