"""Sends and receives on emulated devices compute what the permutes do."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_passes
from hlo_passes import runtime
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.runtime.plain.legalize import plain_module


@pytest.fixture(autouse=True, scope="module")
def _devices(host_devices) -> None:
    host_devices(8)


def ring(pairs: str, *, channel: str = "channel_id=1, ") -> str:
    """A loop that permutes its state along pairs, and adds what everybody has."""
    kind = "num_partitions=4" if channel else "replica_count=4"
    groups = "replica_groups={{0,1,2,3}}"
    groups += ", channel_id=2, use_global_device_ids=true" if channel else ""
    return f"""HloModule ring, {kind}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

%body (p: (s32[], f32[3])) -> (s32[], f32[3]) {{
  %p = (s32[], f32[3]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %v = f32[3] get-tuple-element(%p), index=1
  %c = f32[3] collective-permute(%v), {channel}source_target_pairs={pairs}
  %r = f32[3] all-reduce(%c), {groups}, to_apply=%add
  %m = f32[3] multiply(%r, %v)
  %d = f32[3] collective-permute(%m), {channel.replace("1", "3")}\
source_target_pairs={{{{0,2}},{{1,3}}}}
  %u = f32[3] add(%c, %d)
  ROOT %t = (s32[], f32[3]) tuple(%next, %u)
}}

%cond (q: (s32[], f32[3])) -> pred[] {{
  %q = (s32[], f32[3]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%j, %n), direction=LT
}}

ENTRY %main (x: f32[3]) -> f32[3] {{
  %x = f32[3] parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[3]) tuple(%zero, %x)
  %w = (s32[], f32[3]) while(%start), condition=%cond, body=%body
  ROOT %out = f32[3] get-tuple-element(%w), index=1
}}
"""


DECOMPOSE = "collective-permute-cycle-decomposer,collective-permute-decomposer"
ENABLED = f"{DECOMPOSE}{{pipeline-parallelism-opt-level=ENABLE}}"
GROUPED = f"{DECOMPOSE},collective-send-recv-combiner"
SCHEDULED = f"{DECOMPOSE},xla-gpu{{enable-pipelined-p2p=true}}"


@pytest.mark.parametrize("passes", [DECOMPOSE, ENABLED, GROUPED, SCHEDULED])
@pytest.mark.parametrize("channel", ["channel_id=1, ", ""])
@pytest.mark.parametrize(
    "pairs",
    [
        "{{0,1},{1,2},{2,3}}",
        "{{0,1},{1,2},{2,3},{3,0}}",
        "{{0,1},{1,0},{2,3},{3,2}}",
    ],
)
def test_the_same_bits_as_permutes(pairs: str, channel: str, passes: str) -> None:
    if passes == SCHEDULED and not channel:
        pytest.skip("the preparation of transfers needs channels")
    text = ring(pairs, channel=channel)
    module = hlo_passes.parse(text)
    pipeline = Pipeline.parse(passes, PassContext(xla_quirks=False))
    assert pipeline.run(module, verify_each=True).changed
    after = hlo_passes.parse(module.to_text())
    assert runtime.compare(hlo_passes.parse(text), after).bitwise_equal


PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}"
STARTED = f"""HloModule m, num_partitions=2

ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4] parameter(0)
  %k = token[] after-all()
  %r = (f32[4], u32[], token[]) recv(%k), channel_id=1, {PAIRS}
  %d = (f32[4], token[]) recv-done(%r), channel_id=1
  %g = f32[4] get-tuple-element(%d), index=0
  %s = (f32[4], u32[], token[]) send(%x, %k), channel_id=1, {PAIRS}
  %e = token[] send-done(%s), channel_id=1
  ROOT %n = f32[4] negate(%g)
}}
"""


def test_a_send_may_follow_where_its_data_does_not() -> None:
    (out,) = runtime.load(hlo_passes.parse(STARTED))(
        np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    )
    assert out.tolist() == [[0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, -3.0, -4.0]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("send(%x", "send(%g", "%s sends what is computed after it"),
        (f", {PAIRS}", "", "it has no _xla_send_recv_source_target_pairs"),
    ],
)
def test_what_has_no_permute_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(UnsupportedHloError) as caught:
        plain_module(hlo_passes.parse(STARTED.replace(old, new)))
    assert said in str(caught.value)
    assert caught.value.location is not None
