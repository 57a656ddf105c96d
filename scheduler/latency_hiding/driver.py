"""Scheduling a whole module: which computations, in which order, how often.

result = schedule_module(module, make_estimator("sol", ...), SchedulerSettings())
result.computations[0].order, result.computations[0].after.total_wasted_us
"""

from __future__ import annotations

from hlo_passes.ir.module import Module
from scheduler.estimators.base import Estimator
from scheduler.latency_hiding.result import ScheduleResult
from scheduler.latency_hiding.settings import SchedulerSettings


def schedule_module(
    module: Module,
    estimator: Estimator,
    settings: SchedulerSettings | None = None,
    *,
    log_decisions: bool = False,
) -> ScheduleResult:
    """Give every computation with asynchronous operations its new order, in place.

    Args:
        module: scheduled (is_scheduled=true).
        estimator: of costs and latencies, us.
        settings: of the run; the GPU's where not given.
        log_decisions: note every comparison, in XLA's layout.

    Raises PassError E020 (nothing fits), E021 (a group cannot be placed), E022 (memory).
    """
    raise NotImplementedError
