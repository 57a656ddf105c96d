"""Why a collective is exposed: one small schedule for each cause."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, overlap_class

HEADER = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
"""
REDUCE = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add"


def rows(
    lines: str, latencies: dict[str, float], **costs: float
) -> list[CollectiveRow]:
    """Rows of an entry whose lines are `name = opcode(operands)`; the last is root."""
    written = []
    for k, line in enumerate(lines.strip().splitlines()):
        name, _, rest = line.strip().partition(" = ")
        attributes = f", channel_id={k + 1}, {REDUCE}" if "-start(" in rest else ""
        written.append(f"  %{name} = f32[8] {rest}{attributes}")
    written[-1] = written[-1].replace("  %", "  ROOT %", 1)
    module = hlo_passes.parse(HEADER + "\n".join(written) + "\n}\n")
    hlo_passes.verify(module)
    estimator = TableEstimator(costs, latencies)
    return list(scheduler.simulate(module, estimator=estimator).collectives)


def test_hidden() -> None:
    (row,) = rows(
        """s = all-reduce-start(%p)
           c = negate(%q)
           d = all-reduce-done(%s)
           r = add(%c, %d)""",
        {"s": 10.0}, c=9.5,
    )  # fmt: skip
    assert (row.exposed_us, row.overlap, row.cause_kind) == (0.5, "hidden", "hidden")
    assert row.cause == "9.5 us of 10.0 us overlap other work"


def test_queued() -> None:
    first, second = rows(
        """s1 = all-reduce-start(%p)
           s2 = all-reduce-start(%q)
           c = negate(%q)
           d2 = all-reduce-done(%s2)
           d1 = all-reduce-done(%s1)
           x = add(%d1, %d2)
           r = add(%c, %x)""".replace("s1", "one").replace("s2", "two"),
        {"one": 10.0, "two": 2.0}, c=1.0,
    )  # fmt: skip
    assert (second.name, second.exposed_us, second.cause_kind) == (
        "two",
        11.0,
        "queued",
    )
    assert second.cause == "queued 10.0 us behind %one on communication 0"
    assert (second.start_us, second.begin_us, second.end_us) == (0.0, 10.0, 12.0)
    assert (first.exposed_us, first.overlap) == (0.0, "hidden")


def test_nothing_left_to_overlap() -> None:
    (row,) = rows(
        """s = all-reduce-start(%p)
           c = negate(%q)
           d = all-reduce-done(%s)
           r = add(%c, %d)""",
        {"s": 10.0}, c=4.0, r=3.0,
    )  # fmt: skip
    assert row.cause_kind == "nothing-left"
    assert row.cause == (
        "nothing left to overlap: the 4.0 us of compute that does not depend on it "
        "already overlaps its 10.0 us"
    )


def test_nothing_to_overlap_at_all() -> None:
    (row,) = rows(
        """c = negate(%p)
           s = all-reduce-start(%c)
           d = all-reduce-done(%s)
           r = negate(%d)""",
        {"s": 10.0}, c=4.0, r=3.0,
    )  # fmt: skip
    assert (row.cause_kind, row.overlap) == ("nothing-left", "exposed")
    assert row.cause == ("nothing to overlap: all compute here feeds it or needs it")


def test_its_start_waits_and_its_result_is_needed_at_once() -> None:
    (row,) = rows(
        """free = negate(%q)
           c = negate(%p)
           s = all-reduce-start(%c)
           d = all-reduce-done(%s)
           e = negate(%d)
           r = add(%e, %free)""",
        {"s": 10.0}, free=50.0, c=4.0, e=3.0,
    )  # fmt: skip
    assert row.cause_kind == "start-and-done"
    assert row.cause == (
        "its start waits for %c and %e needs it at once; overlapped only 0.0 us of "
        "10.0 us"
    )


def test_its_start_waits() -> None:
    (row,) = rows(
        """free = negate(%q)
           c = negate(%p)
           s = all-reduce-start(%c)
           d = all-reduce-done(%s)
           f = negate(%c)
           e = negate(%d)
           x = add(%e, %f)
           r = add(%x, %free)""",
        {"s": 10.0}, free=50.0, c=4.0, f=2.0, e=3.0,
    )  # fmt: skip
    assert row.cause_kind == "start-waits"
    assert row.cause == "its start waits for %c; overlapped only 0.0 us of 10.0 us"


def test_its_result_is_needed_at_once() -> None:
    (row,) = rows(
        """c = negate(%p)
           f = negate(%c)
           s = all-reduce-start(%c)
           d = all-reduce-done(%s)
           e = negate(%d)
           free = negate(%q)
           x = add(%e, %f)
           r = add(%x, %free)""",
        {"s": 10.0}, free=50.0, c=4.0, f=2.0, e=3.0,
    )  # fmt: skip
    assert row.cause_kind == "done-needed"
    assert row.cause == "%e needs it at once; overlapped only 0.0 us of 10.0 us"


def test_the_window_is_short_though_there_is_room() -> None:
    (row,) = rows(
        """c = negate(%p)
           f = negate(%c)
           s = all-reduce-start(%c)
           d = all-reduce-done(%s)
           free = negate(%q)
           e = negate(%d)
           x = add(%e, %f)
           r = add(%x, %free)""",
        {"s": 10.0}, free=50.0, c=4.0, f=2.0, e=3.0,
    )  # fmt: skip
    assert row.cause_kind == "window-short"
    assert row.cause == (
        "overlapped only 0.0 us of 10.0 us, though 2.0 us of compute are between %c "
        "and its start, and 50.0 us are between its done and %e"
    )


def test_the_next_one_stands_in_its_way() -> None:
    first, _ = rows(
        """one = all-reduce-start(%p)
           d1 = all-reduce-done(%one)
           two = all-reduce-start(%q)
           free = negate(%q)
           d2 = all-reduce-done(%two)
           e = negate(%d1)
           x = add(%e, %d2)
           r = add(%x, %free)""",
        {"one": 10.0, "two": 10.0}, free=50.0, e=3.0,
    )  # fmt: skip
    assert first.cause_kind == "window-short"
    assert first.cause == (
        "overlapped only 0.0 us of 10.0 us, though 50.0 us are between its done and "
        "%e (%two starts right after its done)"
    )


@pytest.mark.parametrize(
    ("latency", "exposed", "word"),
    [
        (10.0, 1.0, "hidden"), (10.0, 1.1, "partial"), (10.0, 8.9, "partial"),
        (10.0, 9.0, "exposed"), (10.0, 30.0, "exposed"), (0.0, 0.0, "hidden"),
        (0.0, 2.0, "exposed"), (0.5, 0.25, "partial"), (1.0, 0.5, "partial"),
    ],
)  # fmt: skip
def test_classes_are_xprofs(latency: float, exposed: float, word: str) -> None:
    assert overlap_class(latency, exposed) == word
