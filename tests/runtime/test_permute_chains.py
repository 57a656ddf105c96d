"""Chains of permutes on eight emulated devices."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import Pipeline, runtime

_GROUPS = "replica_groups={{0,2,4,6},{7,5,3,1}}, use_global_device_ids=true"
_MODULE = f"""HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8,3]) -> (f32[8,12], f32[8,3], f32[2,3], f32[8,3]) {{
  %x = f32[8,3] parameter(0)
  %g = f32[8,12] all-gather(%x), channel_id=1, {_GROUPS}, dimensions={{1}}
  %e = f32[8,3] all-to-all(%x), channel_id=2, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{0}}
  %s = f32[2,3] reduce-scatter(%x), channel_id=3, {_GROUPS}, dimensions={{0}}, to_apply=%add
  %r = f32[8,3] all-reduce(%x), channel_id=4, {_GROUPS}, to_apply=%add
  ROOT %t = (f32[8,12], f32[8,3], f32[2,3], f32[8,3]) tuple(%g, %e, %s, %r)
}}
"""


@pytest.mark.parametrize("form", ["ring", "bidirectional", "2d"])
def test_devices_agree(form: str) -> None:
    runtime.emulate(8)
    before, after = (hlo_passes.parse(_MODULE) for _ in range(2))
    options = f"always=true,form={form}"
    Pipeline.parse(f"collective-ring-decomposer{{{options}}}").run(after)
    assert not any(
        i.opcode in ("all-gather", "all-to-all", "reduce-scatter", "all-reduce")
        for i in after.entry.instructions
    )
    # Four terms in another order; made-up inputs are at most 1.
    rounding = 3 * 2.0**-24
    within = runtime.Tolerance(absolute=2 * rounding / (1 - rounding) * 4)
    result = runtime.compare(before, after, tolerance=within)
    assert result.matches
    # The all-gather and the all-to-all keep every bit.
    assert {each.result for each in result.differences} <= {2, 3}
