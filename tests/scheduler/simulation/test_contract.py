"""What others rely on: keys, costs, and what counts as how long."""

from __future__ import annotations

import gzip
import json
import math

import pytest

import hlo_passes
from hlo_passes import UsageError, scheduler
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.simulation.report import report_text
from tests.scheduler.simulation.loops import LAYERS, open_ended
from tests.scheduler.simulation.steps import (
    Branches,
    CallOf,
    Compute,
    Done,
    Loop,
    Start,
    Steps,
    Sync,
    costs_of,
    module_of,
)

KEYS = {
    "step_time_us", "exposed_us", "compute_us", "communication_us", "lower_bound_us",
    "peak_memory_bytes",
}  # fmt: skip
ROW_KEYS = {"computation", "name", "latency_us", "exposed_us", "stream"}


def run(steps: Steps, **options):
    return scheduler.simulate(module_of(steps), estimator=costs_of(steps), **options)


LOOP = (
    Start("outer", 30.0),
    Compute("work", 10.0),
    Done("outer"),
    Loop("loop", 4, (Start("inner", 5.0), Compute("part", 3.0), Done("inner"))),
)


def test_the_keys_of_the_contract() -> None:
    view = json.loads(json.dumps(run(LOOP).to_json()))
    assert set(view) >= KEYS | {"computations", "collectives"}
    assert set(view["computations"]) == {"main", "body.loop"}
    for times in view["computations"].values():
        assert set(times) >= KEYS | {"trip_count"}
    for row in view["collectives"]:
        assert set(row) >= ROW_KEYS
    assert [row["name"] for row in view["collectives"]] == ["inner", "outer"]
    assert view["computations"]["body.loop"]["trip_count"] == 4
    # The keys at the top are the entry's.
    assert {k: view[k] for k in KEYS} == {
        k: view["computations"]["main"][k] for k in KEYS
    }


def test_a_loop_is_its_trips_times_its_body() -> None:
    timeline = run(LOOP)
    body = timeline.computations["body.loop"]
    assert (body.step_time_us, body.exposed_us, body.compute_us) == (5.0, 2.0, 3.0)
    assert timeline.step_time_us == 30.0 + 4 * 5.0
    assert timeline.exposed_us == 20.0 + 4 * 2.0
    assert timeline.compute_us == 10.0 + 4 * 3.0
    assert timeline.communication_us == 30.0 + 4 * 5.0
    inner = timeline.collectives[0]
    assert (inner.exposed_us, inner.executions, inner.total_exposed_us) == (
        2.0,
        4.0,
        8.0,
    )
    # One stream has to run everything: 30 and four times 5.
    assert timeline.lower_bound_us == 50.0
    assert timeline.times.bound_by == "communication 0"


def test_the_bound_of_nested_callees_names_the_innermost_once() -> None:
    inner = CallOf("inner", (Sync("reduce", 50.0), Compute("c2", 1.0)))
    timeline = run([Compute("c0", 1.0), CallOf("outer", (Compute("c1", 1.0), inner))])
    assert timeline.times.bound_by == (
        "compute and synchronous collectives in %called.inner"
    )


def test_costs_that_lack_names_are_told() -> None:
    module = module_of((*LOOP, Sync("last", 5.0)))
    table = TableEstimator({"last": 5.0}, {"outer": 30.0})
    notes = scheduler.simulate(module, estimator=table).notes
    lacking = "the costs lack {} of the starts and synchronous collectives"
    assert [n for n in notes if "costs lack" in n] == [
        f"{lacking.format(1)}: 0 was taken for each"
    ]
    notes = scheduler.simulate(module, estimator=TableEstimator({"work": 1.0})).notes
    assert any(n.startswith(lacking.format(3)) for n in notes)
    assert not any("costs lack" in n for n in run(LOOP).notes)


class _Constant:
    """An estimator of one's own."""

    name = "mine"

    def __init__(self, node_us: float, latency_us: float) -> None:
        self.node_us, self.latency_us = node_us, latency_us

    def node_cost(self, instruction: Instruction) -> Estimate:
        return Estimate(self.node_us, self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        return Estimate(self.latency_us, self.name)


@pytest.mark.parametrize("us", [math.nan, math.inf, -5.0, -0.5])
def test_error_an_estimator_whose_answers_are_no_time(us: float) -> None:
    module, alone = module_of(LOOP), module_of((Sync("last", 5.0),))
    nodes, latencies = _Constant(us, 1.0), _Constant(1.0, us)
    for step, estimator in ((module, nodes), (module, latencies), (alone, latencies)):
        with pytest.raises(
            UsageError, match=r"mine gives %\S+ (nan|inf|-5.0|-0.5) us"
        ) as no:
            scheduler.simulate(step, estimator=estimator)
        assert no.value.code == "U223"


def test_the_sums_of_a_step_are_not_parted_by_rounding() -> None:
    # 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1: the bound adds up what the step walks.
    for count in range(2, 12):
        steps = tuple(
            step
            for k in range(count)
            for step in (
                Compute(f"c{k}", 0.1 * (k + 1)),
                Sync(f"sync{k}", 0.7 / (k + 1)),
            )
        )
        times = run(steps).times
        assert times.lower_bound_us == times.step_time_us == times.serial_us
        assert times.gap_us == 0.0


def test_a_transfer_tells_the_bytes_that_it_moves() -> None:
    module = hlo_passes.parse(
        """HloModule m, is_scheduled=true

ENTRY %e (a: f32[1024]) -> f32[256] {
  %a = f32[1024] parameter(0)
  %t = token[] after-all()
  %s = (f32[1024], u32[], token[]) send(%a, %t), channel_id=1
  %sd = token[] send-done(%s), channel_id=1
  %r = (f32[256], u32[], token[]) recv(%sd), channel_id=2
  %rd = (f32[256], token[]) recv-done(%r), channel_id=2
  ROOT %g = f32[256] get-tuple-element(%rd), index=0
}
"""
    )
    rows = scheduler.simulate(module).collectives
    assert [(row.name, row.bytes) for row in rows] == [("s", 4096), ("r", 1024)]


def test_a_loop_of_unknown_length_runs_once_and_says_so() -> None:
    text = open_ended(module_of(LOOP).to_text().replace("known_trip_count", "other"))
    module = hlo_passes.parse(text)
    timeline = scheduler.simulate(module, estimator=costs_of(LOOP))
    assert timeline.step_time_us == 35.0
    assert "trip counts are not known, 1 was used: %loop" in timeline.notes
    assert timeline.to_json()["counted_once"] == ["loop"]
    first = report_text(timeline).splitlines()[0]
    assert "how often %loop runs is not known, it counts once" in first
    assert "--trip-count=%loop=N" in first
    # Who knows it may say it.
    given = {"loop": 4}
    timeline = scheduler.simulate(module, estimator=costs_of(LOOP), trip_counts=given)
    assert timeline.step_time_us == 30.0 + 4 * 5.0
    assert timeline.counted_once == ()
    assert "--trip-count" not in report_text(timeline)


@pytest.mark.parametrize("count", ["-1", "1.5", "9" * 400, "9" * 5000])
def test_what_is_no_trip_count_counts_once(count: str) -> None:
    text = module_of(LOOP).to_text().replace('{"n":"4"}', f'{{"n":"{count}"}}')
    assert count in text
    text = open_ended(text)
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs_of(LOOP))
    assert timeline.step_time_us == 35.0
    assert "trip counts are not known, 1 was used: %loop" in timeline.notes


def test_a_loop_that_nobody_noted_is_counted_by_its_program() -> None:
    module = hlo_passes.parse(LAYERS)
    timeline = scheduler.simulate(module)
    assert timeline.computations["layer"].trip_count == 126
    assert timeline.computations["layer"].executions == 126.0
    assert timeline.counted_once == ()
    once = scheduler.simulate(module, trip_counts={"loop": 1})
    layer = once.computations["layer"].step_time_us
    assert timeline.step_time_us == pytest.approx(once.step_time_us + 125 * layer)


def test_a_loop_that_never_runs_takes_no_time() -> None:
    text = module_of(LOOP).to_text().replace('{"n":"4"}', '{"n":"0"}')
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs_of(LOOP))
    assert timeline.computations["body.loop"].executions == 0
    assert timeline.step_time_us == 30.0


@pytest.mark.parametrize("us", ["1e308", "9" * 400, "NaN", "Infinity", "-1", "true"])
def test_error_costs_that_are_no_time(tmp_path, us: str) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(f'{{"node_cost_us": {{"work": {us}}}}}')
    with pytest.raises(UsageError, match="not microseconds") as refused:
        scheduler.simulate(module_of(LOOP), costs=str(costs))
    assert refused.value.code == "U206"


def test_a_loop_waits_for_what_its_caller_has_in_flight() -> None:
    steps = (
        Start("outer", 30.0),
        Loop("loop", 4, (Start("inner", 5.0), Compute("part", 3.0), Done("inner"))),
        Done("outer"),
    )
    timeline = run(steps, streams=1)
    # First iteration: inner begins at 30 and ends at 35. The others take 5.
    assert timeline.step_time_us == 35.0 + 3 * 5.0
    assert timeline.computations["body.loop"].step_time_us == 5.0
    inner = timeline.collectives[0]
    assert inner.total_exposed_us == 32.0 + 3 * 2.0
    assert (
        inner.cause == "queued 30.0 us behind %outer on communication 0, 1 times of 4"
    )
    assert run(steps, streams=0).step_time_us == 30.0


def test_of_two_runs_as_frequent_that_from_idle_streams_is_told() -> None:
    """The first iteration waits for %outer and takes 35 us, the second begins idle."""
    steps = (
        Start("outer", 30.0),
        Loop("loop", 2, (Start("inner", 5.0), Compute("part", 3.0), Done("inner"))),
        Done("outer"),
    )
    timeline = run(steps, streams=1)
    assert timeline.step_time_us == 35.0 + 5.0
    assert timeline.computations["body.loop"].step_time_us == 5.0


def test_of_two_runs_the_more_frequent_is_told_also_beside_the_lane() -> None:
    """%c runs twice asynchronously, by itself, and once while %outer is in flight."""
    module = hlo_passes.parse(
        """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%c (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %inner = f32[8] all-reduce-start(%x), channel_id=1, GROUPS
  ROOT %d = f32[8] all-reduce-done(%inner)
}

ENTRY %main {
  %p = f32[8] parameter(0)
  %outer = f32[8] all-reduce-start(%p), channel_id=2, GROUPS
  %call = f32[8] call(%p), to_apply=%c
  %e = f32[8] all-reduce-done(%outer)
  %s0 = ((f32[8]), f32[8], s32[]) call-start(%p), to_apply=%c
  %d0 = f32[8] call-done(%s0)
  %t1 = ((f32[8]), f32[8], s32[]) call-start(%d0), to_apply=%c
  %d1 = f32[8] call-done(%t1)
  ROOT %r = (f32[8], f32[8], f32[8]) tuple(%call, %e, %d1)
}
""".replace(
            "GROUPS",
            "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add",
        )
    )
    costs = TableEstimator({}, {"inner": 5.0, "outer": 30.0})
    timeline = scheduler.simulate(module, estimator=costs, streams=1)
    assert timeline.step_time_us == 35.0 + 2 * 5.0
    assert timeline.computations["c"].step_time_us == 5.0


def test_the_dearest_branch_runs() -> None:
    steps = (
        Branches("cond", ((Compute("cheap", 1.0),), (Sync("dear", 7.0),))),
        Compute("after", 2.0),
    )
    timeline = run(steps)
    assert (timeline.step_time_us, timeline.exposed_us) == (9.0, 7.0)
    assert timeline.computations["branch0.cond"].executions == 0.0
    likely = run(steps, branch_probabilities={"cond": (0.75, 0.25)})
    assert likely.step_time_us == 0.75 * 1.0 + 0.25 * 7.0 + 2.0
    assert likely.collectives[0].executions == 0.25


def test_a_call_is_what_it_calls() -> None:
    timeline = run(
        (CallOf("f", (Compute("a", 2.0), Sync("b", 3.0))), Compute("c", 1.0))
    )
    assert (timeline.step_time_us, timeline.compute_us) == (6.0, 3.0)


@pytest.mark.parametrize(
    ("shares", "what"),
    [
        ({"cond": (0.5, 0.2)}, "the probabilities of %cond are [0.5, 0.2]"),
        ({"cond": (1.0, 1.0)}, "the probabilities of %cond are [1.0, 1.0]"),
        ({"cond": (-0.5, 1.5)}, "the probabilities of %cond are [-0.5, 1.5]"),
        ({"cond": (1.0,)}, "%cond has 2 branches, not 1"),
    ],
)
def test_error_probabilities(shares, what: str) -> None:
    steps = (Branches("cond", ((Compute("a", 1.0),), (Compute("b", 2.0),))),)
    with pytest.raises(UsageError, match=r"probab|branches") as caught:
        run(steps, branch_probabilities=shares)
    assert what in str(caught.value)


COSTS = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %start = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %known = f32[8] negate(%p)
  %absent = f32[8] negate(%known)
  %done = f32[8] all-reduce-done(%start)
  %marked = f32[8] all-reduce-start(%done), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add, backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":true},"force_earliest_schedule":false}
  %marked.done = f32[8] all-reduce-done(%marked)
  %by_latency = f32[8] all-reduce(%marked.done), channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  ROOT %by_cost = f32[8] all-reduce(%by_latency), channel_id=4, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
}
"""


def test_costs_by_name(tmp_path) -> None:
    file = tmp_path / "costs.json.gz"
    costs = {
        "node_cost_us": {
            "known": 4.0, "start": 100.0, "done": 100.0, "by_latency": 50.0,
            "by_cost": 3.0, "marked.done": 100.0,
        },
        "latency_us": {"start": 10.0, "by_latency": 2.0},
        "latency_fallback": {"marked": 5.0},
    }  # fmt: skip
    file.write_bytes(gzip.compress(json.dumps(costs).encode()))
    timeline = scheduler.simulate(hlo_passes.parse(COSTS), costs=str(file))
    rows = {row.name: row for row in timeline.collectives}
    # A start and a done take no time of their own; what is absent costs nothing.
    assert rows["start"].exposed_us == 6.0
    assert rows["marked"].exposed_us == rows["marked"].latency_us == 5.0
    assert rows["marked"].stream is None
    assert rows["marked"].done == ""
    assert rows["by_latency"].exposed_us == 2.0
    assert rows["by_cost"].exposed_us == 3.0
    assert timeline.step_time_us == 4.0 + 6.0 + 5.0 + 2.0 + 3.0
    assert timeline.compute_us == 4.0
    assert timeline.communication_us == 10.0 + 5.0 + 2.0 + 3.0
    assert timeline.estimator == "table"


def test_step_is_compute_and_exposed_with_copies_and_async_compute() -> None:
    text = """HloModule m, is_scheduled=true

%wrapped (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %slow = f32[8] negate(%q)
}, execution_thread="parallel"

ENTRY %main (p: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8] parameter(0)
  %copy.s = (f32[8]{0:S(5)}, f32[8], u32[]) copy-start(%p)
  %async.s = ((f32[8]), f32[8], u32[]) async-start(%p), async_execution_thread="parallel", calls=%wrapped
  %work = f32[8] negate(%p)
  %copy.d = f32[8]{0:S(5)} copy-done(%copy.s)
  %async.d = f32[8] async-done(%async.s)
  ROOT %t = (f32[8]{0:S(5)}, f32[8]) tuple(%copy.d, %async.d)
}
"""
    costs = TableEstimator({"work": 4.0}, {"copy.s": 10.0, "async.s": 12.0})
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs)
    assert timeline.step_time_us == 12.0
    assert timeline.exposed_us == timeline.times.other_exposed_us == 8.0
    assert timeline.communication_us == 0.0
    assert timeline.collectives == ()
    assert timeline.lanes("main") == ["compute", "async compute 0", "async compute 1"]
    waits = [(s.name, s.start_us, s.end_us) for s in timeline.spans if s.kind == "wait"]
    assert waits == [("copy.d", 4.0, 10.0), ("async.d", 10.0, 12.0)]


def test_an_asynchronous_call_takes_as_long_as_what_it_calls() -> None:
    text = """HloModule m, is_scheduled=true

%inner (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  %a = f32[8] negate(%q)
  ROOT %b = f32[8] negate(%a)
}

%wrapped (r: f32[8]) -> f32[8] {
  %r = f32[8] parameter(0)
  ROOT %call = f32[8] call(%r), to_apply=%inner
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %s = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%wrapped
  %work = f32[8] negate(%p)
  %d = f32[8] async-done(%s)
  ROOT %sum = f32[8] add(%d, %work)
}
"""
    costs = TableEstimator({"a": 3.0, "b": 4.0, "work": 5.0, "sum": 1.0}, {})
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs)
    assert timeline.step_time_us == 8.0
    assert timeline.times.other_exposed_us == 2.0
    assert timeline.computations["inner"].step_time_us == 7.0


def test_a_module_without_schedule_is_taken_as_it_stands() -> None:
    text = module_of(LOOP).to_text().replace("is_scheduled=true, ", "")
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs_of(LOOP))
    assert timeline.step_time_us == run(LOOP).step_time_us
    assert "the module is not scheduled; its text order was used" in timeline.notes


def test_error_streams_below_zero() -> None:
    with pytest.raises(UsageError, match="not a number of streams"):
        run(LOOP, streams=-1)


APART = """HloModule m, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8], q: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %one = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add
  %two = f32[8] all-reduce-start(%q), channel_id=2, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=%add
  %one.done = f32[8] all-reduce-done(%one)
  %two.done = f32[8] all-reduce-done(%two)
  ROOT %t = (f32[8], f32[8]) tuple(%one.done, %two.done)
}
"""


def test_streams_are_those_that_the_module_names() -> None:
    costs = TableEstimator({}, {"one": 10.0, "two": 4.0})
    module = hlo_passes.parse(APART)
    assert scheduler.simulate(module, estimator=costs).step_time_us == 14.0
    passes = "execution-stream-assignment{number-of-communication-streams=2}"
    hlo_passes.Pipeline.parse(passes).run(module)
    assigned = scheduler.simulate(module, estimator=costs)
    assert [row.stream for row in assigned.collectives] == [0, 1]
    assert (assigned.streams, assigned.step_time_us) == (2, 10.0)
    # A number that is asked for overrides it.
    single = scheduler.simulate(module, estimator=costs, streams=1)
    assert (single.streams, single.step_time_us) == (1, 14.0)
    assert single.collectives[1].cause_kind == "queued"


def test_one_operation_is_told_in_the_singular() -> None:
    notes = scheduler.simulate(
        module_of([Start("s", 1.0), Done("s")]), estimator="gpu-approximate"
    ).notes
    assert any(n.startswith("1 operation has no better price") for n in notes)
