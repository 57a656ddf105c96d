"""The step by the compiler's statistic, on modules and figures made by hand."""

from __future__ import annotations

import pytest

from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.step import NoStatisticError, step_of
from hlo_passes.text.reader import parse

#: A loop of ten, each with an all-gather that waits; the entry sums at the end.
LOOPED = """HloModule looped, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%scattered (whole: f32[8]) -> f32[4] {
  %whole = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %all-reduce.1 = f32[8]{0} all-reduce(%whole), replica_groups={{0,1}}, to_apply=%add
  ROOT %part = f32[4]{0} dynamic-slice(%all-reduce.1, %zero), dynamic_slice_sizes={4}
}

%body (state: (s32[], f32[4], f32[8])) -> (s32[], f32[4], f32[8]) {
  %state = (s32[], f32[4]{0}, f32[8]{0}) parameter(0)
  %n = s32[] get-tuple-element(%state), index=0
  %x = f32[4]{0} get-tuple-element(%state), index=1
  %start = (f32[4]{0}, f32[8]{0}) all-gather-start(%x), replica_groups={{0,1}}, dimensions={0}
  %work = f32[4]{0} negate(%x)
  %done = f32[8]{0} all-gather-done(%start)
  ROOT %next = (s32[], f32[4]{0}, f32[8]{0}) tuple(%n, %work, %done)
}

%condition (state: (s32[], f32[4], f32[8])) -> pred[] {
  %state.1 = (s32[], f32[4]{0}, f32[8]{0}) parameter(0)
  %n.1 = s32[] get-tuple-element(%state.1), index=0
  %ten = s32[] constant(10)
  ROOT %less = pred[] compare(%n.1, %ten), direction=LT
}

ENTRY %main (first: (s32[], f32[4], f32[8])) -> f32[4] {
  %first = (s32[], f32[4]{0}, f32[8]{0}) parameter(0)
  %loop = (s32[], f32[4]{0}, f32[8]{0}) while(%first), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  %last = f32[8]{0} get-tuple-element(%loop), index=2
  %sum.1 = f32[8]{0} all-reduce(%last), replica_groups={{0,1}}, to_apply=%add
  ROOT %fusion = f32[4]{0} fusion(%sum.1), kind=kLoop, calls=%scattered
}
"""
NODES = {"work": 100.0, "loop": 1000.0, "sum.1": 30.0, "fusion": 7.0}


def costs(**statistics: tuple[float, float]) -> TpuCosts:
    after = {
        name: {
            "total cycles": total,
            "total wasted cycles": wasted,
            "memory pressure peak (bytes)": 4096.0,
        }
        for name, (total, wasted) in statistics.items()
    }
    return TpuCosts("v5e", 1500.0, NODES, statistics={"after": after})


def test_a_loop_counts_what_its_body_waits() -> None:
    # The entry's total has ten times the nodes of the body, and nothing of the waits.
    step = step_of(parse(LOOPED), costs(body=(120.0, 20.0), main=(1037.0, 0.0)))
    assert step.total_cycles == 1037.0 + 10 * 20.0
    # Waits, the synchronous all-reduce, and the fusion that holds another one.
    assert step.exposed_cycles == 10 * 20.0 + 30.0 + 7.0
    assert step.peak_bytes == 4096


def test_a_loop_counts_what_its_body_waits_for_the_host() -> None:
    # Of the body's 400 cycles 100 are its nodes, 20 waits for collectives.
    step = step_of(parse(LOOPED), costs(body=(400.0, 20.0), main=(1037.0, 0.0)))
    assert step.total_cycles == 1037.0 + 10 * 300.0
    assert step.exposed_cycles == 10 * 20.0 + 30.0 + 7.0


def test_a_body_without_a_statistic_is_its_node() -> None:
    step = step_of(parse(LOOPED), costs(main=(1037.0, 5.0)))
    assert (step.total_cycles, step.exposed_cycles) == (1037.0, 42.0)


def test_without_the_entry_there_is_no_step() -> None:
    with pytest.raises(NoStatisticError, match="no statistic of the program"):
        step_of(parse(LOOPED), costs(body=(120.0, 20.0)))
