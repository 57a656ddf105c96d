"""Scenes that a case file cannot state: tables of costs, wrong settings, one decision.

The others are in tests/scheduler/passes/cases.
"""

from __future__ import annotations

from collections import Counter

import pytest

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from tests.scheduler.latency_hiding.scenes import (
    Scene,
    memory_scene,
    one_gather,
    shape_text,
)


def test_what_is_read_twice_counts_twice() -> None:
    scene = Scene()
    scene.parameter("p0", shape_text(1024))
    scene.gather("s", "d", "p0")
    scene.loop("x", "p1", shape_text(1000))
    scene.loop("y", "p1", shape_text(1500))
    scene.bodies.append(
        "%twice (u: f32[1000], v: f32[1000]) -> f32[1] {\n"
        "  %u = f32[1000]{0} parameter(0)\n  %v = f32[1000]{0} parameter(1)\n"
        "  %uv = f32[1000]{0} add(%u, %v)\n"
        "  ROOT %uv1 = f32[1]{0} slice(%uv), slice={[0:1]}\n}\n"
    )
    scene.add("xx", shape_text(1), "fusion(%x, %x), kind=kLoop, calls=%twice")
    scene.loop("yy", "y", shape_text(1))
    scene.root("d", "yy", "xx")
    assert scene.order(memory_limit_bytes=1000) == "x xx y yy s d t"


def test_statistics_truncate_the_start() -> None:
    from hlo_passes.scheduler.estimators.table import TableEstimator
    from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
    from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics

    scene = Scene()
    scene.loop("x", "p0")
    scene.gather("s", "d", "p1")
    scene.loop("y", "p2")
    scene.root("d", "x", "y")
    costs = TableEstimator({"x": 0.6, "s": 1.0, "y": 2.0, "d": 1.0}, {"s": 10.0})
    scene.schedule(estimator=costs)
    assert scene.module is not None
    entry = scene.module.entry
    wanted = [entry.find(name) for name in "p0 p1 p2 x s y d t".split()]
    tracker = make_tracker(SchedulerSettings())
    found = lhs_statistics(entry, costs, tracker, order=[i for i in wanted if i])
    assert found.wasted_us["all-gather"] == pytest.approx(6.4)
    assert found.total_us == pytest.approx(11.0)


def test_what_no_estimator_knows_takes_no_time() -> None:
    scene = one_gather(1)
    (entry,) = scene.schedule(estimator=EstimatorStack(())).computations
    assert entry.before.total_us == entry.after.total_us == 0.0


class _Counting(Estimator):
    """Notes whose cost it was asked for."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return "counting"

    def node_cost(self, instruction: Instruction) -> None:
        self.asked[instruction.name] += 1

    def latency(self, start: Instruction, user: Instruction) -> None:
        del start, user


def test_each_cost_is_asked_for_once() -> None:
    scene = memory_scene()
    costs = _Counting()
    result = scene.schedule(estimator=costs, memory_limit_bytes=100, rerun=2)
    assert result.reruns == 2
    assert {*costs.asked.values()} == {1}


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        one_gather(1).order(parallel_collective_overlap_limit=0)
    with pytest.raises(ValueError, match="must not be negative"):
        one_gather(1).order(rerun=-1)
