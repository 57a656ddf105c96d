"""Small schedules with known costs, for tests of what is said about them.

Before, the all-gather of 50 us starts after the dot of 40 us and is needed at once; in
the second order it runs beside the dot. A loop of three trips waits 5 us in each.
"""

from __future__ import annotations

import json
import pathlib

import hlo_passes
from hlo_passes import Module

HEAD = """\
HloModule step, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%body (t: (s32[], f32[64])) -> (s32[], f32[64]) {
  %t = (s32[], f32[64]{0}) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %v = f32[64]{0} get-tuple-element(%t), index=1
  %ar-start = f32[64]{0} all-reduce-start(%v), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%sum
  %ar-done = f32[64]{0} all-reduce-done(%ar-start)
  %next = s32[] negate(%k)
  ROOT %u = (s32[], f32[64]{0}) tuple(%next, %ar-done)
}

%cond (c: (s32[], f32[64])) -> pred[] {
  %c = (s32[], f32[64]{0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  ROOT %more = pred[] compare(%n, %n), direction=LT
}

ENTRY %main (x: f32[64], w: f32[64,64], z: s32[]) -> (f32[512], f32[64], f32[64]) {
  %x = f32[64]{0} parameter(0)
  %w = f32[64,64]{1,0} parameter(1)
  %z = s32[] parameter(2)
  %init = (s32[], f32[64]{0}) tuple(%z, %x)
  %loop = (s32[], f32[64]{0}) while(%init), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %y = f32[64]{0} get-tuple-element(%loop), index=1
"""
START = """\
  %ag-start = (f32[64]{0}, f32[512]{0}) all-gather-start(%y), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(step)/layer/gather"}
"""
DOT = """\
  %dot = f32[64]{0} dot(%y, %w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
"""
TAIL = """\
  %ag-done = f32[512]{0} all-gather-done(%ag-start)
  %neg = f32[64]{0} negate(%dot)
  ROOT %out = (f32[512]{0}, f32[64]{0}, f32[64]{0}) tuple(%ag-done, %neg, %y)
}
"""
LATE = HEAD + DOT + START + TAIL
EARLY = HEAD + START + DOT + TAIL
COSTS = {
    "node_cost_us": {"dot": 40.0, "neg": 2.0, "scaled": 3.0, "next": 1.0},
    "latency_us": {"ag-start": 50.0, "ar-start": 5.0},
}


def module(text: str) -> Module:
    """One of the texts of this file, read."""
    return hlo_passes.parse(text, filename="step.hlo")


def write_costs(folder: pathlib.Path) -> str:
    """A costs.json in a folder; its path."""
    file = folder / "costs.json"
    file.write_text(json.dumps(COSTS))
    return str(file)
