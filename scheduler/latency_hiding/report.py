"""The report of a scheduling: XLA's statistics before and after, and exposure.

exposed: %all-gather-start.3 310.2 of 341.5 us in %main.2500: placed by kLessStall ...
"""

from __future__ import annotations

from hlo_passes.passes.framework.base import Report
from hlo_passes.scheduler.latency_hiding.result import (
    ComputationSchedule,
    ScheduleResult,
)
from hlo_passes.scheduler.latency_hiding.statistics import Exposure


def fill_report(report: Report, result: ScheduleResult, unit: str = "us") -> None:
    """Put a result into a pass's report; `unit`: of its costs."""
    report.count("computations-scheduled", len(result.computations))
    if result.reruns:
        report.count("reruns", result.reruns)
    for computation, why in result.left.items():
        report.remark(f"kept: %{computation.name}: {why}")
    if not result.computations:
        if not result.left:
            report.remark("not scheduled: no computation has anything asynchronous")
        return
    report.details["statistics"] = {
        "before": {c.computation.name: c.before.to_json() for c in result.computations},
        "after": {c.computation.name: c.after.to_json() for c in result.computations},
    }
    was, now = (
        max((s.peak_bytes or 0 for s in statistics), default=0)
        for statistics in (
            [c.before for c in result.computations],
            [c.after for c in result.computations],
        )
    )
    report.details["memory"] = {
        "peak_bytes": result.peak_bytes,
        "peak_bytes_before": was or None,
        "limit_bytes": result.memory_limit_bytes,
    }
    if was:
        report.remark(
            f"memory: {was:,} bytes at the peak before, {now:,} after, without "
            "parameters"
        )
    for schedule in result.computations:
        before, after = schedule.before, schedule.after
        report.remark(
            f"%{schedule.computation.name}: exposed {before.total_wasted_us:.6g} "
            f"{unit} before, {after.total_wasted_us:.6g} {unit} after; in total "
            f"{before.total_us:.6g} and {after.total_us:.6g} {unit}"
        )
        for user, start in schedule.dropped_hazards:
            report.remark(
                f"not kept apart: %{start} may overwrite what %{user} reads, and they "
                "depend on each other in a cycle: this module lacks copies"
            )
        for exposure in after.exposures:
            report.remark(_exposure_text(schedule, exposure, unit))
    if result.explanation:
        report.explain(result.explanation)
    if result.kept_input_order:
        report.remark(result.kept_input_order)


def _exposure_text(schedule: ComputationSchedule, exposure: Exposure, unit: str) -> str:
    reason = schedule.start_reasons.get(exposure.start, "")
    why = f"its start was placed by {reason}" if reason else "nothing else was ready"
    return (
        f"exposed: %{exposure.start.name} {exposure.wasted_us:.6g} of "
        f"{exposure.latency_us:.6g} {unit} in %{schedule.computation.name}: {why}"
    )
