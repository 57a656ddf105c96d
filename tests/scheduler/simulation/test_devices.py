"""Collectives that leave devices out, and transfers that loops hand on."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import UsageError, scheduler
from hlo_passes.scheduler.estimators.table import TableEstimator


def test_devices_that_are_left_out_go_on() -> None:
    # Devices 0 and 1 exchange; then all four meet, and 2 and 3 wait for the others.
    text = """HloModule m, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %pair = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %c = f32[8] negate(%pair)
  ROOT %all = f32[8] all-reduce(%c), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
}
"""
    costs = TableEstimator({"c": 2.0}, {"pair": 7.0, "all": 5.0})
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs)
    assert timeline.step_time_us == 14.0
    assert any("4 devices were simulated" in note for note in timeline.notes)
    # All end together; shown is the first of them, which takes part in both.
    assert [row.exposed_us for row in timeline.collectives] == [7.0, 5.0]
    assert timeline.communication_us == 12.0


def test_the_last_device_is_shown() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=4

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %low = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %chain = f32[8] collective-permute(%low), channel_id=2, source_target_pairs={{1,2}}
  ROOT %c = f32[8] negate(%chain)
}
"""
    costs = TableEstimator({"c": 2.0}, {"low": 7.0, "chain": 5.0})
    timeline = scheduler.simulate(hlo_passes.parse(text), estimator=costs)
    # Device 2 comes at once, waits 7 us for device 1, then takes 5; so does device 1.
    assert timeline.step_time_us == 14.0
    note = next(note for note in timeline.notes if "devices were simulated" in note)
    assert "device 1 is shown" in note
    assert timeline.exposed_us == 12.0


SKEWED = """HloModule m, is_scheduled=true, num_partitions=2

%never (x: f32[8]) -> pred[] {
  %x.never = f32[8]{0} parameter(0)
  ROOT %no = pred[] constant(false)
}

%body (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  %self = f32[8]{0} collective-permute(%b), channel_id=1, source_target_pairs={{0,0}}
  ROOT %work = f32[8]{0} negate(%self)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %w = f32[8]{0} while(%p), condition=%never, body=%body, backend_config={"known_trip_count":{"n":"1000000"}}
}
"""


def test_clocks_that_drift_apart_are_carried_through_long_loops() -> None:
    costs = TableEstimator({"work": 2.0}, {"self": 3.0})
    timeline = scheduler.simulate(hlo_passes.parse(SKEWED), estimator=costs)
    assert timeline.step_time_us == 5.0e6
    assert timeline.compute_us == 2.0e6


PIPELINED = """HloModule m, is_scheduled=true, num_partitions=2

%never (s: ((f32[8], u32[], token[]), f32[8])) -> pred[] {
  %s = ((f32[8], u32[], token[]), f32[8]) parameter(0)
  ROOT %no = pred[] constant(false)
}

%body (t: ((f32[8], u32[], token[]), f32[8])) -> ((f32[8], u32[], token[]), f32[8]) {
  %t = ((f32[8], u32[], token[]), f32[8]) parameter(0)
  %flying = (f32[8], u32[], token[]) get-tuple-element(%t), index=0
  %x = f32[8] get-tuple-element(%t), index=1
  %work = f32[8] negate(%x)
  %landed = (f32[8], token[]) recv-done(%flying), channel_id=1
  %got = f32[8] get-tuple-element(%landed), index=0
  %after = token[] after-all()
  %next = (f32[8], u32[], token[]) recv(%after), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}
  %more = f32[8] add(%got, %work)
  ROOT %r = ((f32[8], u32[], token[]), f32[8]) tuple(%next, %more)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %begin = token[] after-all()
  %first = (f32[8], u32[], token[]) recv(%begin), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}
  %state = ((f32[8], u32[], token[]), f32[8]) tuple(%first, %p)
  %w = ((f32[8], u32[], token[]), f32[8]) while(%state), condition=%never, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  %last = (f32[8], u32[], token[]) get-tuple-element(%w), index=0
  %end = (f32[8], token[]) recv-done(%last), channel_id=1
  ROOT %out = f32[8] get-tuple-element(%end), index=0
}
"""


def test_a_transfer_is_awaited_in_the_next_iteration() -> None:
    costs = TableEstimator({"work": 6.0, "more": 1.0}, {"first": 10.0, "next": 10.0})
    timeline = scheduler.simulate(hlo_passes.parse(PIPELINED), estimator=costs)
    # An iteration awaits what the one before it sent 1 us before its end: 10 us each,
    # the first ends at 11, the last transfer 9 us after the loop.
    assert timeline.step_time_us == 11.0 + 9 * 10.0 + 9.0
    body = timeline.computations["body"]
    assert (body.step_time_us, body.compute_us, body.exposed_us) == (10.0, 7.0, 3.0)
    assert timeline.times.lower_bound_us <= timeline.step_time_us
    hidden = TableEstimator({"work": 60.0}, {"first": 10.0, "next": 10.0})
    timeline = scheduler.simulate(hlo_passes.parse(PIPELINED), estimator=hidden)
    assert timeline.exposed_us == 10.0  # only the last one


def test_links_are_shared_by_what_flies_together() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8], q: f32[8], o: f32[8]) -> (f32[8], f32[8], f32[8]) {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %o = f32[8] parameter(2)
  %near1 = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add
  %near2 = f32[8] all-reduce-start(%q), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add
  %far = f32[8] all-reduce-start(%o), channel_id=3, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=%add
  %d1 = f32[8] all-reduce-done(%near1)
  %d2 = f32[8] all-reduce-done(%near2)
  %d3 = f32[8] all-reduce-done(%far)
  ROOT %t = (f32[8], f32[8], f32[8]) tuple(%d1, %d2, %d3)
}
"""
    costs = TableEstimator({}, {"near1": 10.0, "near2": 30.0, "far": 35.0})
    options = {"estimator": costs, "streams": 3, "topology": "2x1x2"}
    module = hlo_passes.parse(text)
    alone = scheduler.simulate(module, **options)
    assert [row.end_us for row in alone.collectives] == [10.0, 30.0, 35.0]
    shared = scheduler.simulate(module, share_links=True, **options)
    # NVLink carries two until 20, then one; the network carries one.
    assert [row.end_us for row in shared.collectives] == [20.0, 40.0, 35.0]
    assert shared.step_time_us == 40.0


def test_with_shared_links_one_device_stands_for_all() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=4

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %pair = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={{2,3},{3,2}}
}
"""
    costs = TableEstimator({}, {"pair": 7.0})
    module = hlo_passes.parse(text)
    timeline = scheduler.simulate(module, estimator=costs, share_links=True)
    assert timeline.step_time_us == 7.0
    assert any("one device represents all" in note for note in timeline.notes)


def test_error_a_device_that_there_is_not() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %pair = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={{0,5}}
}
"""
    with pytest.raises(UsageError, match="%pair is for device 5") as caught:
        scheduler.simulate(hlo_passes.parse(text), estimator=TableEstimator({}, {}))
    assert caught.value.code == "U027"
