"""Options of the scheduler that are out of range, and the least that is not."""

from __future__ import annotations

from dataclasses import fields

import pytest

import hlo_passes
from hlo_passes.errors import PipelineSpecError
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings


@pytest.mark.parametrize(
    ("name", "wrong", "least"),
    [
        ("hosts", "0", "1"),
        ("hosts", "-1", "2"),
        ("gpus-per-host", "0", "1"),
        ("gpus-per-host", "-1", "8"),
        ("device-memory-bytes", "-1", "0"),
        ("memory-limit-slop-factor", "-1", "0"),
    ],
)
def test_error_out_of_range(name: str, wrong: str, least: str) -> None:
    with pytest.raises(PipelineSpecError, match="must be"):
        hlo_passes.Pipeline.parse(f"latency-hiding-scheduler{{{name}={wrong}}}")
    hlo_passes.Pipeline.parse(f"latency-hiding-scheduler{{{name}={least}}}")


@pytest.mark.parametrize("options", [SchedulerSettings(), LatencyHidingScheduler()])
def test_what_xla_leaves_off_is_off(options: SchedulerSettings) -> None:
    on = {f.name for f in fields(options) if getattr(options, f.name) is True}
    assert on == {"aggressive_scheduling_policies", "schedule_send_recvs"}
