"""Which values are the same on which devices."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.analysis.replication import Replication

_TEXT = """HloModule m, {counts}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}}

%body (s: (s32[], f32[], f32[])) -> (s32[], f32[], f32[]) {{
  %s = (s32[], f32[], f32[]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %u = f32[] get-tuple-element(%s), index=1
  %v = f32[] get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%n, %one)
  %e = f32[] exponential(%u)
  ROOT %t = (s32[], f32[], f32[]) tuple(%next, %e, %u)
}}

%below (s.1: (s32[], f32[], f32[])) -> pred[] {{
  %s.1 = (s32[], f32[], f32[]) parameter(0)
  %n.1 = s32[] get-tuple-element(%s.1), index=0
  %five = s32[] constant(5)
  ROOT %l = pred[] compare(%n.1, %five), direction=LT
}}

ENTRY %main {{
  %same = f32[] parameter(0){same}
  %other = f32[] parameter(1)
  %zero = s32[] constant(0)
  %k = u32[] partition-id()
  %j = u32[] replica-id()
  %both = f32[] add(%same, %other)
  %all = f32[] all-reduce(%other), {everybody}, to_apply=%add
  %half = f32[] all-reduce(%other), {halves}, to_apply=%add
  %t1 = s32[4] constant({{1,1,2,2}})
  %look = s32[1] dynamic-slice(%t1, {id}), dynamic_slice_sizes={{1}}
  %start = (s32[], f32[], f32[]) tuple(%zero, %same, %same)
  %loop = (s32[], f32[], f32[]) while(%start), condition=%below, body=%body
  %looped = f32[] get-tuple-element(%loop), index=2
  %mixed = (s32[], f32[], f32[]) tuple(%zero, %other, %same)
  %loop2 = (s32[], f32[], f32[]) while(%mixed), condition=%below, body=%body
  %looped2 = f32[] get-tuple-element(%loop2), index=2
  ROOT %out = (f32[], f32[], f32[]) tuple(%both, %all, %half)
}}
"""
_ACROSS_REPLICAS = {
    "counts": "replica_count=4",
    "same": ", parameter_replication={true}",
    "everybody": "replica_groups={}",
    "halves": "replica_groups={{0,1},{2,3}}",
    "id": "%j",
}
_ACROSS_PARTITIONS = {
    "counts": "num_partitions=4",
    "same": ", sharding={replicated}",
    "everybody": "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true",
    "halves": "channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true",
    "id": "%k",
}


@pytest.mark.parametrize("across_partitions", [False, True])
@pytest.mark.parametrize("partial", [False, True])
def test_what_is_the_same(*, across_partitions: bool, partial: bool) -> None:
    values = _ACROSS_PARTITIONS if across_partitions else _ACROSS_REPLICAS
    module = hlo_passes.parse(_TEXT.format(**values))
    known = Replication(module, across_partitions=across_partitions, partial=partial)
    find = {i.name: i for i in module.entry.instructions}
    everywhere = {name for name, i in find.items() if known.is_same(i)}
    # The body hands element 1 on to element 2, so that what differs in one differs in
    # both after two iterations.
    own_id = "j" if across_partitions else "k"
    assert everywhere == {"same", "zero", own_id, "all", "t1", "looped"}
    for name in ("half", "look"):
        assert known.is_same(find[name], ((0, 1), (2, 3))) == partial
        assert not known.is_same(find[name], ((0, 2), (1, 3)))


def test_deep_calls_end() -> None:
    """Neither deep recursion nor quadratic work."""
    lines = ["HloModule chain, replica_count=2\n"]
    for k in range(1500):
        value = f"call(%p{k}), to_apply=%f{k - 1}" if k else "negate(%p0)"
        lines.append(
            f"%f{k} (p{k}: f32[]) -> f32[] {{\n  %p{k} = f32[] parameter(0)\n"
            f"  ROOT %r{k} = f32[] {value}\n}}\n"
        )
    lines.append(
        "ENTRY %main {\n  %x = f32[] parameter(0), parameter_replication={true}\n"
        "  ROOT %y = f32[] call(%x), to_apply=%f1499\n}\n"
    )
    module = hlo_passes.parse("\n".join(lines))
    assert not Replication(module).is_same(module.entry.root)
