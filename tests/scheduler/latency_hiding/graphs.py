"""The dependence graph of a module given as text."""

from __future__ import annotations

import hlo_passes
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings


def graph_of(
    text: str,
    settings: SchedulerSettings | None = None,
    costs: dict[str, float] | None = None,
    latencies: dict[str, float] | None = None,
) -> ScheduleGraph:
    """The graph of the entry, with its edges."""
    module = hlo_passes.parse(text)
    graph = ScheduleGraph(
        module.entry,
        module.entry.instructions,
        TableEstimator(costs or {}, latencies or {}),
        make_tracker(settings or SchedulerSettings()),
    )
    connect_all(graph)
    return graph
