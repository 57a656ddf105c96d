"""A made-up module in which every pass over collectives finds work, of any size.

family_text(1000)     blocks of about 60 instructions and one loop each

Each block has what a pass looks for once: an all-reduce of an all-reduce, a slice of an
all-gather, a sum of two all-reduces, an all-gather of a broadcast, a permute in a ring,
a loop that stores what it reduces, and so on.
"""

from __future__ import annotations

from typing import Final

_GROUPS: Final = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
_RING: Final = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
_REDUCTIONS: Final = "\n".join(
    f"%add.{kind} (x: {kind}[], y: {kind}[]) -> {kind}[] {{\n"
    f"  %x = {kind}[] parameter(0)\n  %y = {kind}[] parameter(1)\n"
    f"  ROOT %sum = {kind}[] add(%x, %y)\n}}\n"
    for kind in ("f32", "s16")
)
_SHARED: Final = """\
  %x = f32[32]{0} parameter(0)
  %shard = f32[8]{0} parameter(1)
  %short = s16[8]{0} parameter(2)
  %table = f32[6,4]{1,0} parameter(3)
  %row = f32[1,4]{1,0} parameter(4)
  %me = u32[] partition-id()
  %eight = u32[] constant(8)
  %mine = u32[] multiply(%me, %eight)
  %zero = s32[] constant(0)
  %none = f32[] constant(0)
"""
#: One block; K is its number, and C1, C2, ... are its channels.
_LINES: Final = """\
  %v.K = f32[32]{0} add(%chain, %x)
  %w.K = f32[32]{0} multiply(%v.K, %x)
  %u.K = f32[8]{0} slice(%w.K), slice={[0:8]}
  %ar0.K = f32[32]{0} all-reduce(%v.K), C, GROUPS, to_apply=%add.f32
  %own.K = f32[8]{0} dynamic-slice(%ar0.K, %mine), dynamic_slice_sizes={8}
  %half.K = f32[32]{0} all-reduce(%w.K), C, replica_groups={{0,1},{2,3}}, \
use_global_device_ids=true, to_apply=%add.f32
  %full.K = f32[32]{0} all-reduce(%half.K), C, replica_groups={{0,2},{1,3}}, \
use_global_device_ids=true, to_apply=%add.f32
  %ar1.K = f32[32]{0} all-reduce(%v.K), C, GROUPS, to_apply=%add.f32
  %ar2.K = f32[32]{0} all-reduce(%w.K), C, GROUPS, to_apply=%add.f32
  %two.K = f32[32]{0} add(%ar1.K, %ar2.K)
  %rs1.K = f32[8]{0} reduce-scatter(%v.K), C, GROUPS, dimensions={0}, to_apply=%add.f32
  %rs2.K = f32[8]{0} reduce-scatter(%w.K), C, GROUPS, dimensions={0}, to_apply=%add.f32
  %rs.K = f32[8]{0} add(%rs1.K, %rs2.K)
  %ag1.K = f32[32]{0} all-gather(%u.K), C, GROUPS, dimensions={0}
  %ag2.K = f32[32]{0} all-gather(%rs.K), C, GROUPS, dimensions={0}
  %ag.K = f32[32]{0} maximum(%ag1.K, %ag2.K)
  %ag3.K = f32[32]{0} all-gather(%own.K), C, GROUPS, dimensions={0}
  %back.K = f32[8]{0} dynamic-slice(%ag3.K, %mine), dynamic_slice_sizes={8}
  %one.K = f32[8]{0} slice(%ag.K), slice={[8:16]}
  %wide.K = f32[2,2,8]{2,1,0} broadcast(%one.K), dimensions={2}
  %ag4.K = f32[8,2,8]{2,1,0} all-gather(%wide.K), C, GROUPS, dimensions={0}
  %unit.K = f32[1,8]{1,0} reshape(%back.K)
  %ag5.K = f32[1,32]{1,0} all-gather(%unit.K), C, GROUPS, dimensions={1}
  %narrow.K = bf16[8]{0} convert(%u.K)
  %again.K = f32[8]{0} convert(%narrow.K)
  %ag6.K = f32[32]{0} all-gather(%again.K), C, GROUPS, dimensions={0}
  %ar3.K = s16[8]{0} all-reduce(%short), C, GROUPS, to_apply=%add.s16
  %ar4.K = (f32[8]{0}, f32[32]{0}) all-reduce(%u.K, %w.K), C, GROUPS, to_apply=%add.f32
  %ar5.K = f32[8]{0} get-tuple-element(%ar4.K), index=0
  %ring.K = f32[8]{0} collective-permute(%ar5.K), C, RING
  %ring2.K = f32[8]{0} collective-permute(%back.K), C, RING
  %start.K = (s32[], f32[6,4]{1,0}, f32[6,4]{1,0}, f32[1,4]{1,0}, f32[4,4]{1,0}) \
tuple(%zero, %table, %table, %row, %square)
  %loop.K = (s32[], f32[6,4]{1,0}, f32[6,4]{1,0}, f32[1,4]{1,0}, f32[4,4]{1,0}) \
while(%start.K), condition=%cond.K, body=%body.K, \
backend_config={"known_trip_count":{"n":"6"}}
  %stored.K = f32[6,4]{1,0} get-tuple-element(%loop.K), index=2
  %summed.K = f32[1,4]{1,0} get-tuple-element(%loop.K), index=3
  %gathered.K = f32[4,4]{1,0} get-tuple-element(%loop.K), index=4
  %all.K = (f32[32]{0}, f32[32]{0}, f32[32]{0}, f32[8,2,8]{2,1,0}, f32[1,32]{1,0}, \
f32[32]{0}, s16[8]{0}, f32[8]{0}, f32[8]{0}, f32[6,4]{1,0}, f32[1,4]{1,0}, \
f32[4,4]{1,0}) tuple(%full.K, %two.K, %ag.K, %ag4.K, %ag5.K, %ag6.K, %ar3.K, \
%ring.K, %ring2.K, %stored.K, %summed.K, %gathered.K)
"""
_LOOP: Final = """\
%body.K {
  %s.K = (s32[], f32[6,4]{1,0}, f32[6,4]{1,0}, f32[1,4]{1,0}, f32[4,4]{1,0}) \
parameter(0)
  %i.K = s32[] get-tuple-element(%s.K), index=0
  %in.K = f32[6,4]{1,0} get-tuple-element(%s.K), index=1
  %out.K = f32[6,4]{1,0} get-tuple-element(%s.K), index=2
  %sum.K = f32[1,4]{1,0} get-tuple-element(%s.K), index=3
  %acc.K = f32[4,4]{1,0} get-tuple-element(%s.K), index=4
  %step.K = s32[] constant(1)
  %first.K = s32[] constant(0)
  %next.K = s32[] add(%i.K, %step.K)
  %slice.K = f32[1,4]{1,0} dynamic-slice(%in.K, %i.K, %first.K), \
dynamic_slice_sizes={1,4}
  %mul.K = f32[1,4]{1,0} multiply(%slice.K, %slice.K)
  %lar.K = f32[1,4]{1,0} all-reduce(%mul.K), C, GROUPS, to_apply=%add.f32
  %neg.K = f32[1,4]{1,0} negate(%lar.K)
  %store.K = f32[6,4]{1,0} dynamic-update-slice(%out.K, %neg.K, %i.K, %first.K)
  %part.K = f32[1,4]{1,0} all-reduce(%slice.K), C, GROUPS, to_apply=%add.f32
  %total.K = f32[1,4]{1,0} add(%sum.K, %part.K)
  %lag.K = f32[4,4]{1,0} all-gather(%slice.K), C, GROUPS, dimensions={0}
  %turned.K = f32[4,4]{1,0} collective-permute(%acc.K), C, RING
  %acc2.K = f32[4,4]{1,0} subtract(%lag.K, %turned.K)
  ROOT %end.K = (s32[], f32[6,4]{1,0}, f32[6,4]{1,0}, f32[1,4]{1,0}, f32[4,4]{1,0}) \
tuple(%next.K, %in.K, %store.K, %total.K, %acc2.K)
}

%cond.K {
  %t.K = (s32[], f32[6,4]{1,0}, f32[6,4]{1,0}, f32[1,4]{1,0}, f32[4,4]{1,0}) \
parameter(0)
  %j.K = s32[] get-tuple-element(%t.K), index=0
  %six.K = s32[] constant(6)
  ROOT %less.K = pred[] compare(%j.K, %six.K), direction=LT
}
"""
#: Instructions of a block.
_SIZE: Final = sum(block.count(" = ") for block in (_LINES, _LOOP))


def family_text(instructions: int) -> str:
    """A partitioned module of about so many instructions, four devices."""
    lines = _LINES.replace("GROUPS", _GROUPS).replace("RING", _RING)
    loop = _LOOP.replace("GROUPS", _GROUPS).replace("RING", _RING)
    bodies, entry, results, channel = [], [], [], 1
    for k in range(max(1, instructions // _SIZE)):
        for template, made in ((loop, bodies), (lines, entry)):
            parts = template.replace("%chain", f"%v.{k - 1}" if k else "%x").split(
                " C,"
            )
            text = parts[0]
            for part in parts[1:]:
                text += f" channel_id={channel},{part}"
                channel += 1
            made.append(text.replace(".K", f".{k}"))
        results.append(f"%full.{k}")
    blocks = len(results)
    # What passes rewrite must be read: one element of each block goes on.
    entry += [
        f"  %r.{k} = f32[8,2,8]{{2,1,0}} get-tuple-element(%all.{k}), index=3\n"
        for k in range(blocks)
    ]
    shapes = ", ".join(["f32[8,2,8]{2,1,0}"] * blocks)
    read = ", ".join(f"%r.{k}" for k in range(blocks))
    return "\n".join(
        (
            "HloModule family, num_partitions=4\n",
            _REDUCTIONS,
            *bodies,
            "ENTRY %main {\n" + _SHARED
            + "  %square = f32[4,4]{1,0} broadcast(%none), dimensions={}\n"
            + "".join(entry)
            + f"  ROOT %root = ({shapes}) tuple({read})\n}}\n",
        )
    )  # fmt: skip
