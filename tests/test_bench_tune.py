"""The table of `benchmarks.bench_tune`, on steps made by hand."""

from __future__ import annotations

import dataclasses

from benchmarks.bench_tune import Row, default_programs, summary, table
from hlo_passes.scheduler.tuning.outcome import Outcome
from tests.modules import REPOSITORY

BASELINE = Outcome(1000.0, bound_us=600.0, bound_by="compute")
ROW = Row(
    "train.py:step",
    "h100_sxm 1x1x8",
    baseline=BASELINE,
    best=Outcome(800.0),
    levers="overlap limit 2",
    evaluations=40,
    seconds=12.3,
    drawn=Outcome(900.0),
    held_by="200.0 us of all-gather (queued)",
    again=Outcome(800.0),
)
HELD = dataclasses.replace(
    ROW, best=BASELINE, levers="nothing", drawn=BASELINE, again=None
)


def test_a_row() -> None:
    assert ROW.to_text() == (
        "| train.py:step | h100_sxm 1x1x8 | 1.00 ms | 800.0 us (-20.0%) "
        "| overlap limit 2 | 600.0 us (compute), 40.0% above | 40 | 12 "
        "| 900.0 us (-10.0%) | the same step |  |"
    )


def test_flags_that_give_another_step_alone_are_told() -> None:
    other = dataclasses.replace(ROW, again=Outcome(801.0))
    assert "| 801.0 us |" in other.to_text()
    failed = dataclasses.replace(ROW, again=Outcome.failed("unknown flag"))
    assert "| unknown flag |" in failed.to_text()
    assert "same step in 1 of 3 rows" in summary([ROW, HELD, other, failed])


def test_what_is_not_faster_says_why() -> None:
    assert HELD.to_text().endswith("| 200.0 us of all-gather (queued) |")
    bounded = dataclasses.replace(HELD, baseline=Outcome(1000.0, bound_us=951.0))
    assert bounded.to_text().endswith("| the bound: it leaves less than 5% |")


def test_the_table_ends_with_a_summary() -> None:
    failed = Row("moe.py:moe", "h100_sxm@2", "No module named 'flax'")
    lines = list(table([ROW, HELD, failed]))
    assert {line.count("|") for line in lines[:5]} == {12}
    assert "| No module named 'flax' |" in lines[4]
    assert lines[-1] == summary([ROW, HELD, failed])
    assert (
        "5% or more in 2 of 2 rows; the best is faster than the baseline in 1"
        in (lines[-1])
    )
    assert "than random search in 1 rows, a longer one in 0" in lines[-1]


def test_the_programs_are_there() -> None:
    names = default_programs()
    assert len(names) == len(set(names)) == 29
    for name in names:
        file, _, function = name.rpartition(":")
        assert f"def {function}(devices)" in (REPOSITORY / file).read_text()
