"""How often a step runs each computation."""

from __future__ import annotations

import hlo_passes
from hlo_passes.analysis.executions import MOST_EXECUTIONS, executions
from hlo_passes.analysis.trip_counts import TripCounts
from tests.analysis.test_trip_counts import NESTED, text_of


def often(text: str, **given: int) -> dict[str, int]:
    counts = TripCounts(hlo_passes.parse(text), given)
    return {c.name: times for c, times in executions(counts).items()}


def test_loops_multiply_and_ask_their_condition_once_more() -> None:
    assert often(NESTED.replace("FIRST", "%zero")) == {
        "main": 1,
        "called": 1,
        "outer_body": 8,
        "outer_condition": 9,
        "inner_body": 8 * 32,
        "inner_condition": 8 * 33,
    }


def test_a_loop_that_nobody_can_count_runs_once() -> None:
    counts = TripCounts(hlo_passes.parse(text_of(kind="f32")))
    assert {c.name: n for c, n in executions(counts).items()}["body"] == 1
    assert counts.unknown == ("loop",)


def test_counts_that_no_step_reaches_are_cut_off() -> None:
    most = 10**18 - 1
    found = often(NESTED.replace("FIRST", "%zero"), outer=most, inner=most)
    assert found["inner_body"] == MOST_EXECUTIONS
