"""A simulated step, and the forms in which it is shown.

    timeline = scheduler.simulate(module, target="h100_sxm", hosts=2)
    timeline.step_time_us, timeline.exposed_us, timeline.lower_bound_us
    timeline.worst(10)[0].cause    "queued 120.0 us behind %all-gather-start.3 on ..."
    print(timeline.to_text())

The code that writes a form is imported when it is used; it only reads the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlo_passes.scheduler.simulation.collective_groups import groups_of
from hlo_passes.scheduler.simulation.timeline_data import TimelineData

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class Timeline(TimelineData):
    """A simulated step; `TimelineData` has its attributes."""

    def to_json(self) -> dict[str, Any]:
        """The object that `simulate --json` prints."""
        groups = [group.to_json() for group in groups_of(self.collectives)]
        return {**TimelineData.to_json(self), "groups": groups}

    def to_text(self) -> str:
        """Headline, most expensive collectives and lanes, for a terminal."""
        from hlo_passes.scheduler.simulation.report import report_text

        return report_text(self)

    def to_perfetto(self) -> dict[str, Any]:
        """The trace, as Perfetto and Chrome read it from JSON."""
        from hlo_passes.scheduler.simulation.trace import trace_of

        return trace_of(self)

    def to_html(self, module: Module | None = None) -> str:
        """A self-contained page; with the simulated module it shows more names."""
        from hlo_passes.scheduler.page.document import render_page
        from hlo_passes.scheduler.page.encoding import Side

        return render_page(Side(self, module=module))
