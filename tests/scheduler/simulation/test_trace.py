"""The trace, read as Perfetto's importer of Chrome's JSON reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from tests.scheduler.simulation.steps import (
    CallOf,
    Compute,
    Done,
    Loop,
    Start,
    Steps,
    Sync,
    costs_of,
    module_of,
    step_lists,
)

PHASES = {"B", "E", "C", "s", "f", "M"}


def timeline_of(steps: Steps, streams: int | None = None) -> Timeline:
    return simulate_with(
        module_of(steps), "h100_sxm", Topology(1, 1, 2), costs_of(steps), Rules(streams)
    )


Slice = tuple[float, float, str]


def check_trace(trace: dict[str, Any]) -> dict[tuple[int, int], list[Slice]]:
    """Slices by (process, thread); AssertionError for what an importer would drop.

    Events of a thread are taken by time, those at one time in file order. Every end
    closes the slice that was begun last; slices of a thread lie in each other or apart;
    a flow begins and ends on a slice; a counter has numbers and goes forward.
    """
    events = trace["traceEvents"]
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events:
        assert event["ph"] in PHASES
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] in "BE":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    slices = {place: _slices(of_thread) for place, of_thread in threads.items()}
    _check_flows(events, slices)
    _check_counters(events)
    named = {
        (e["pid"], e["tid"])
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert set(slices) <= named
    return slices


def _slices(events: list[dict[str, Any]]) -> list[Slice]:
    found: list[Slice] = []
    stack: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda e: e["ts"]):
        if event["ph"] == "B":
            assert event["name"]
            assert not stack, f"{event['name']} lies in {stack[-1]['name']}"
            stack.append(event)
        else:
            begin = stack.pop()
            assert all(event[key] == begin[key] for key in ("name", "cat", "args"))
            found.append((begin["ts"], event["ts"], begin["name"]))
    assert not stack
    return found


def _check_flows(
    events: list[dict[str, Any]], slices: dict[tuple[int, int], list[Slice]]
) -> None:
    begun: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["ph"] not in ("s", "f"):
            continue
        lies_on = slices[event["pid"], event["tid"]]
        assert any(start <= event["ts"] <= end for start, end, _ in lies_on)
        if event["ph"] == "s":
            assert event["id"] not in begun
            begun[event["id"]] = event
        else:
            assert begun.pop(event["id"])["ts"] <= event["ts"]
    assert not begun


def _check_counters(events: list[dict[str, Any]]) -> None:
    last: dict[int, float] = {}
    for event in events:
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
            assert event["ts"] >= last.get(event["pid"], 0.0)
            last[event["pid"]] = event["ts"]


STEPS = (
    Start("one", 10.0), Compute("c", 4.0), Start("two", 5.0), Compute("e", 2.0),
    Done("one"), Done("two"), Sync("three", 1.0),
    Loop("loop", 3, (Start("in", 2.0), Compute("part", 3.0), Done("in"))),
)  # fmt: skip


def test_a_track_for_each_collective_in_flight() -> None:
    trace = timeline_of(STEPS).to_perfetto()
    slices = check_trace(trace)
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in trace["traceEvents"]
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    by_name = {(place[0], names[place]): found for place, found in slices.items()}
    assert by_name[1, "in flight 0"] == [(0.0, 10.0, "one")]
    assert by_name[1, "in flight 1"] == [(4.0, 15.0, "two")]
    assert by_name[1, "communication 0"] == [(0.0, 10.0, "one"), (10.0, 15.0, "two")]
    assert by_name[1, "compute"] == [
        (0.0, 4.0, "c"), (4.0, 6.0, "e"), (6.0, 10.0, "one.done"),
        (10.0, 15.0, "two.done"), (15.0, 16.0, "three"), (16.0, 25.0, "loop"),
    ]  # fmt: skip
    assert by_name[2, "dones that need not wait"] == [(3.0, 3.0, "in.done")]
    processes = [
        e["args"]["name"]
        for e in trace["traceEvents"]
        if e["ph"] == "M" and e["name"] == "process_name"
    ]
    assert processes == ["%main", "%body.loop, 3 times"]
    flows = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
    assert len(flows) == 2 * 3
    told = next(e for e in trace["traceEvents"] if e.get("name") == "two")["args"]
    assert told["cause"] == "queued 6.0 us behind %one on communication 0"


def _line(event: dict[str, Any]) -> str:
    at = f"{event['pid']}.{event['tid']} {event['ph']}"
    if event["ph"] == "M":
        return f"{at} {event['name']} {next(iter(event['args'].values()))}"
    what = event["args"]["bytes"] if event["ph"] == "C" else event["cat"]
    return f"{at} {event['ts']:g} {event['name']} {what}"


def test_all_events_of_a_small_step() -> None:
    steps = (
        Compute("c", 3.0), Start("one", 10.0), Compute("e", 4.0), Done("one"),
        Start("two", 1.0), Loop("loop", 2, (Compute("part", 1.0), Sync("three", 2.0))),
        Done("two"),
    )  # fmt: skip
    events = timeline_of(steps).to_perfetto()["traceEvents"]
    assert [_line(event) for event in events] == [
        "1.0 M process_name %main",
        "1.0 M process_sort_index 1",
        "1.1 M thread_name compute",
        "1.2 M thread_name dones that need not wait",
        "1.4 M thread_name communication 0",
        "1.1 B 0 c compute", "1.1 E 3 c compute",
        "1.1 B 3 e compute", "1.1 E 7 e compute",
        "1.4 B 3 one collective", "1.4 E 13 one collective",
        "1.1 B 7 one.done wait", "1.1 E 13 one.done wait",
        "1.1 B 13 loop loop", "1.1 E 19 loop loop",
        "1.4 B 13 two collective", "1.4 E 14 two collective",
        "1.1000 M thread_name in flight 0",
        "1.1000 B 3 one in flight", "1.1000 E 13 one in flight",
        "1.1000 B 13 two in flight", "1.1000 E 19 two in flight",
        # An arrow from a start to where its done waits, and to where one need not.
        "1.1000 s 3 all-reduce flow", "1.1 f 7 all-reduce flow",
        "1.2 B 19 two.done done", "1.2 E 19 two.done done",
        "1.1000 s 13 all-reduce flow", "1.2 f 19 all-reduce flow",
        "1.0 C 0 memory 32", "1.0 C 3 memory 40", "1.0 C 3 memory 32",
        "1.0 C 13 memory 64", "1.0 C 19 memory 32",
        "2.0 M process_name %body.loop, 2 times",
        "2.0 M process_sort_index 2",
        "2.1 M thread_name compute",
        "2.2 M thread_name dones that need not wait",
        "2.1 B 0 part compute", "2.1 E 1 part compute",
        "2.1 B 1 three collective", "2.1 E 3 three collective",
        "2.0 C 0 memory 64", "2.0 C 3 memory 32",
    ]  # fmt: skip


def test_what_takes_no_time_has_no_place_on_the_compute_lane() -> None:
    steps = (
        Compute("c", 2.0), Compute("no", 0.0), CallOf("call", (Compute("in", 0.0),)),
        Start("one", 1.0), Compute("e", 4.0), Done("one"), Sync("two", 0.0),
    )  # fmt: skip
    spans = timeline_of(steps).spans_of("main")
    assert [s.name for s in spans if s.lane == "compute"] == ["c", "e"]


def test_a_body_is_bounded_by_the_stream_it_fills() -> None:
    """What it starts it also waits for, so no other iteration can take part of it."""
    inside = (Start("one", 10.0), Start("two", 10.0), Done("one"), Done("two"))
    body = timeline_of((Loop("loop", 2, inside),), 1).computations["body.loop"]
    assert (body.lower_bound_us, body.bound_by) == (20.0, "communication 0")


def test_the_context_of_a_start_is_no_part_of_the_message() -> None:
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

%wrapped (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %x = f32[8] all-to-all(%a), channel_id=1, replica_groups={{0,1}}, dimensions={0}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %s = ((f32[8]), f32[8], u32[], u32[]) async-start(%p), calls=%wrapped
  ROOT %d = f32[8] async-done(%s)
}
""")
    (row,) = simulate_with(
        module, "h100_sxm", Topology(1, 1, 2), costs_of(STEPS), Rules(1)
    ).collectives
    assert (row.name, row.bytes, row.groups) == ("s", 32, "{{0,1}}")


def test_the_rows_of_a_small_step() -> None:
    steps = (
        Start("one", 10.0), Compute("c", 4.0), Done("one"),
        Loop("loop", 2, (Sync("two", 2.0),)),
    )  # fmt: skip
    timeline = timeline_of(steps)
    assert [
        (row.name, row.groups, row.bytes, row.executions)
        for row in timeline.collectives
    ] == [("two", "{{0,1}}", 32, 2.0), ("one", "{{0,1}}", 32, 1.0)]
    trips = {n: times.trip_count for n, times in timeline.computations.items()}
    assert trips == {"main": 1, "body.loop": 2}


@given(step_lists(), st.sampled_from([0, 1, 2]))
@settings(max_examples=25, deadline=None)
def test_random_traces_nest(steps: Steps, streams: int) -> None:
    check_trace(json.loads(json.dumps(timeline_of(steps, streams).to_perfetto())))


@pytest.mark.parametrize(
    "fault",
    [
        {"ph": "E", "pid": 1, "tid": 1, "ts": 99.0},
        {"ph": "B", "name": "x", "pid": 1, "tid": 1, "ts": 3.0},
        {"ph": "s", "name": "x", "id": 99, "pid": 1, "tid": 1, "ts": 3.0},
        {"ph": "C", "name": "memory", "pid": 1, "tid": 0, "ts": 0.0,
         "args": {"bytes": "1"}},
    ],
)  # fmt: skip
def test_the_check_finds_faults(fault: dict[str, Any]) -> None:
    trace = timeline_of(STEPS).to_perfetto()
    trace["traceEvents"].append(fault)
    with pytest.raises((AssertionError, IndexError)):
        check_trace(trace)
