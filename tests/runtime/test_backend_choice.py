"""What carries a collective changes no bit: eight emulated devices."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, runtime
from hlo_passes.pricing import Pricing
from tests.modules import REPOSITORY

_LINES = "peer-permute:1:300 symmetric-gather:0.5:300"
_MODULE = """HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

ENTRY %main (x: f32[8,96]) -> (f32[8,96], f32[8,768], f32[8,96]) {
  %x = f32[8,96] parameter(0)
  %r = f32[8,96] all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add
  %g = f32[8,768] all-gather(%x), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, dimensions={1}
  %p = f32[8,96] collective-permute(%x), channel_id=3, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  ROOT %t = (f32[8,96], f32[8,768], f32[8,96]) tuple(%r, %g, %p)
}
"""


def _programs() -> dict[str, str]:
    folder = REPOSITORY / "corpus" / "modules" / "0.10.2"
    names = ("grouped_reductions", "halo_exchange")
    found = {n: (folder / f"{n}.partitioned.hlo").read_text("utf-8") for n in names}
    return {"own": _MODULE, **found}


@pytest.mark.parametrize("name", ["own", "grouped_reductions", "halo_exchange"])
def test_every_bit_stays(name: str) -> None:
    runtime.emulate(8)
    before, after = (hlo_passes.parse(_programs()[name]) for _ in range(2))
    spec = f"collective-backend-choice{{measured-lines='{_LINES}',xla=0.12}}"
    result = Pipeline.parse(spec, PassContext(Pricing())).run(after)
    assert result.changed
    assert runtime.compare(before, after).bitwise_equal
