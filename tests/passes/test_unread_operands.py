"""A fusion may have more operands than its body takes: XLA's verifier lets it pass.

%f = f32[8] fusion(%a, %m), calls=%body       %body takes one value
"""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline
from hlo_passes.errors import HloError
from hlo_passes.scheduler import estimate, simulate
from tests.own_passes import TARGET, own_passes

_MODULE = """\
HloModule m, num_partitions=2

%body (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

ENTRY %e (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %m = f32[8]{0} add(%a, %b)
  %f = f32[8]{0} fusion(%a, %m), kind=kLoop, calls=%body
  ROOT %r = f32[8]{0} all-reduce(%f), channel_id=1, replica_groups={{0,1}}, \
use_global_device_ids=true, to_apply=%sum
}
"""
_SCHEDULED = _MODULE.replace("num_", "is_scheduled=true, num_")


@pytest.mark.parametrize("name", own_passes())
@pytest.mark.parametrize("text", [_MODULE, _SCHEDULED], ids=["plain", "scheduled"])
def test_every_pass_takes_it_or_refuses_with_a_reason(name: str, text: str) -> None:
    module = hlo_passes.parse(text)
    hlo_passes.verify(module)
    try:
        Pipeline.parse(name, PassContext(target=TARGET)).run(module)
    except HloError as refused:
        assert refused.code != "E001", refused
    hlo_passes.verify(module)


@pytest.mark.parametrize("kind", ["kLoop", "kInput", "kCustom"])
def test_what_nobody_reads_costs_nothing(kind: str) -> None:
    text = _SCHEDULED.replace("kLoop", kind)
    alone = text.replace("fusion(%a, %m)", "fusion(%a)")
    module, less = hlo_passes.parse(text), hlo_passes.parse(alone)
    assert estimate(module) is not None
    assert simulate(module).computations["e"].step_time_us == pytest.approx(
        simulate(less).computations["e"].step_time_us
    )
