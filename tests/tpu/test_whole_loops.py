"""A loop that the compiler's log has only a cost of takes that time."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, scheduler
from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.step import step_of
from tests.tpu.test_modules import costs_file

ARRAY = "f32[64,256]{1,0:T(8,128)}"
STATE = f"(s32[]{{:T(128)}}, {ARRAY})"
PAIR = f"({ARRAY}, {ARRAY}, u32[]{{:S(2)}}, u32[]{{:S(2)}})"
RING = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
#: The loop has nothing asynchronous, so the log has only a cost of the whole.
LOOPED = f"""\
HloModule looped, is_scheduled=true, num_partitions=4

%less (i: (s32[], f32[64,256])) -> pred[] {{
  %i = {STATE} parameter(0)
  %i.0 = s32[]{{:T(128)}} get-tuple-element(%i), index=0
  %four = s32[]{{:T(128)}} constant(4)
  ROOT %lt = pred[] compare(%i.0, %four), direction=LT
}}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%body (x: (s32[], f32[64,256])) -> (s32[], f32[64,256]) {{
  %x = {STATE} parameter(0)
  %k = s32[]{{:T(128)}} get-tuple-element(%x), index=0
  %one = s32[]{{:T(128)}} constant(1)
  %next = s32[]{{:T(128)}} add(%k, %one)
  %u = {ARRAY} get-tuple-element(%x), index=1
  %sync = {ARRAY} all-reduce(%u), channel_id=2, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  %v = {ARRAY} multiply(%sync, %sync)
  ROOT %t = {STATE} tuple(%next, %v)
}}

ENTRY %main (p: f32[64,256]) -> f32[64,256] {{
  %p = {ARRAY} parameter(0)
  %zero = s32[]{{:T(128)}} constant(0)
  %s = {PAIR} collective-permute-start(%p), channel_id=1, {RING}
  %d = {ARRAY} collective-permute-done(%s)
  %n = {ARRAY} negate(%d)
  %begin = {STATE} tuple(%zero, %p)
  %w = {STATE} while(%begin), condition=%less, body=%body
  %y = {ARRAY} get-tuple-element(%w), index=1
  ROOT %r = {ARRAY} add(%n, %y)
}}
"""
COSTS: dict[str, Any] = {
    "node_cost_cycles": {
        **dict.fromkeys(["p", "zero", "begin", "y", "s", "d"], 1.0),
        "n": 9000.0,
        "w": 40_000.0,
        "r": 1500.0,
    },
    "latency_cycles": {"s": 6000.0},
}
MHZ = 1500.0


def logged_body(costs: dict[str, Any]) -> dict[str, Any]:
    """The same with the body's costs, as if it had something asynchronous."""
    nodes = costs["node_cost_cycles"] | {"v": 5000.0, "sync": 7000.0, "next": 1.0}
    return costs | {"node_cost_cycles": nodes}


def simulated(
    folder: pathlib.Path, costs: dict[str, Any], **more: Any
) -> scheduler.Timeline:
    file = costs_file(folder, tensorcore_mhz=MHZ, **costs)
    return scheduler.simulate(hlo_passes.parse(LOOPED), costs=file, **more)


def test_it_takes_the_time_that_it_has_in_its_caller(tmp_path: pathlib.Path) -> None:
    found = simulated(tmp_path, COSTS)
    waits = 6000.0
    assert found.step_time_us == pytest.approx((waits + 50_500.0) / MHZ, rel=1e-3)
    assert [*found.computations] == ["main"]
    assert found.counted_once == ()
    (note,) = (note for note in found.notes if "%w" in note)
    assert "only a cost of %w" in note
    assert [row.name for row in found.collectives] == ["s"]
    assert [span.name for span in found.spans if span.kind == "loop"] == ["w"]


def test_a_body_with_costs_is_simulated(tmp_path: pathlib.Path) -> None:
    found = simulated(tmp_path, logged_body(COSTS), trip_counts={"w": 3})
    loop = 3 * 12_000.0
    assert found.step_time_us == pytest.approx((16_500.0 + loop) / MHZ, rel=1e-3)
    assert set(found.computations) == {"main", "body"}
    assert not any("%w" in note for note in found.notes)


def test_a_range_scales_it(tmp_path: pathlib.Path) -> None:
    found = simulated(tmp_path, COSTS, with_range=True)
    assert found.sensitivity is not None
    low, high = found.sensitivity.step_us
    assert low < found.step_time_us < high


def test_its_caller_can_be_improved(tmp_path: pathlib.Path) -> None:
    lines = LOOPED.replace("(%sync, %sync)", "(%u, %u)").splitlines()
    module = hlo_passes.parse("\n".join(ln for ln in lines if "%sync" not in ln))
    context = PassContext(Pricing(costs=costs_file(tmp_path, **COSTS)))
    result = Pipeline.parse("schedule-improver", context).run(module)
    names = [i.name for i in module.entry.instructions]
    assert names.index("s") < names.index("w") < names.index("d")
    assert not any("lack" in remark for remark in result.passes[0].remarks)


def test_part_of_a_body_is_not_the_whole(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(LOOPED)
    nodes = COSTS["node_cost_cycles"] | {"v": 5000.0}
    file = costs_file(tmp_path, **(COSTS | {"node_cost_cycles": nodes}))
    before = module.to_text()
    result = Pipeline.parse("schedule-improver", PassContext(Pricing(costs=file))).run(
        module
    )
    assert module.to_text() == before
    assert any("the costs lack %sync" in r for r in result.passes[0].remarks)


#: Around the loop with the permute another one, which has nothing asynchronous itself.
NESTED = (
    LOOPED[: LOOPED.index("ENTRY")].replace(
        "  %v =",
        f"  %is = {PAIR} collective-permute-start(%u), channel_id=3, {RING}\n"
        f"  %id = {ARRAY} collective-permute-done(%is)\n  %v =",
    )
    + LOOPED[LOOPED.index("%less") : LOOPED.index("%add")]
    .replace("%less", "%often")
    .replace("%i", "%o")
    .replace("%four", "%six")
    .replace("%lt", "%lo")
    + f"""\
%outer (z: (s32[], f32[64,256])) -> (s32[], f32[64,256]) {{
  %z = {STATE} parameter(0)
  %zk = s32[]{{:T(128)}} get-tuple-element(%z), index=0
  %za = {ARRAY} get-tuple-element(%z), index=1
  %zn = {ARRAY} negate(%za)
  %zt = {STATE} tuple(%zk, %zn)
  %zw = {STATE} while(%zt), condition=%less, body=%body, KNOWN4
  %zr = {ARRAY} get-tuple-element(%zw), index=1
  ROOT %zo = {STATE} tuple(%zk, %zr)
}}

ENTRY %main (p: f32[64,256]) -> f32[64,256] {{
  %p = {ARRAY} parameter(0)
  %zero = s32[]{{:T(128)}} constant(0)
  %s = {PAIR} collective-permute-start(%p), channel_id=1, {RING}
  %d = {ARRAY} collective-permute-done(%s)
  %begin = {STATE} tuple(%zero, %d)
  %w = {STATE} while(%begin), condition=%often, body=%outer, KNOWN3
  ROOT %r = {ARRAY} get-tuple-element(%w), index=1
}}
"""
)
for times in (3, 4):
    known = f'backend_config={{"known_trip_count":{{"n":"{times}"}}}}'
    NESTED = NESTED.replace(f"KNOWN{times}", known)
#: An iteration of the inner loop takes 1,000 cycles, and waits for 6,000; one of the
#: outer loop takes four of these and 2,000 beside them.
OF_NESTED: dict[str, Any] = {
    "node_cost_cycles": {
        **dict.fromkeys(["s", "d", "is", "id", "next"], 1.0),
        "w": 18_000.0,
        "sync": 400.0,
        "v": 600.0,
    },
    "latency_cycles": {"s": 6000.0, "is": 6000.0},
}


def test_what_is_beside_a_loop_in_a_loop_takes_what_the_log_leaves(
    tmp_path: pathlib.Path,
) -> None:
    file = costs_file(tmp_path, tensorcore_mhz=MHZ, **OF_NESTED)
    found = scheduler.simulate(hlo_passes.parse(NESTED), costs=file)
    waits = 6000.0 + 3 * 4 * 6000.0
    assert found.step_time_us == pytest.approx((waits + 18_000.0) / MHZ, rel=1e-3)
    assert found.exposed_us == pytest.approx((waits + 3 * 4 * 400.0) / MHZ, rel=1e-3)
    assert set(found.computations) == {"main", "outer", "body"}
    assert not any("only a cost of" in note for note in found.notes)
    assert not any("no cost for" in remark for remark in found.remarks)


def test_the_statistic_counts_what_a_loop_in_a_loop_waits() -> None:
    after = {
        "body": {"total cycles": 7000.0, "total wasted cycles": 6000.0},
        "main": {"total cycles": 24_000.0, "total wasted cycles": 6000.0},
    }
    nodes = OF_NESTED["node_cost_cycles"]
    costs = TpuCosts("v5e", MHZ, nodes, statistics={"after": after})
    step = step_of(hlo_passes.parse(NESTED), costs)
    assert step.total_cycles == 24_000.0 + 3 * 4 * 6000.0
    assert step.exposed_cycles == 6000.0 + 3 * 4 * (6000.0 + 400.0)


def test_many_loops_are_not_all_named(tmp_path: pathlib.Path) -> None:
    last = f"  ROOT %r = {ARRAY} add(%n, %y)"
    more = "".join(
        f"  %w{k} = {STATE} while(%begin), condition=%less, body=%body\n"
        for k in range(9)
    )
    nodes = COSTS["node_cost_cycles"] | {f"w{k}": 1.0 for k in range(9)}
    file = costs_file(tmp_path, **(COSTS | {"node_cost_cycles": nodes}))
    text = LOOPED.replace(last, more + last)
    found = scheduler.simulate(hlo_passes.parse(text), costs=file)
    (note,) = (note for note in found.notes if "only a cost of" in note)
    assert "%w, %w0, %w1 and 7 more" in note
