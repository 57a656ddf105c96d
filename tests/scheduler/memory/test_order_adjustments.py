"""What XLA's GPU back end changes in every memory scheduler's order."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.memory.order_adjustments import adjusted

ASYNC = """HloModule m

ENTRY %e (p: f32[4], q: f32[4]) -> (f32[8], f32[4]) {
  %p = f32[4]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  %x = f32[4]{0} negate(%q)
  %y = f32[4]{0} negate(%x)
  %s = (f32[4]{0}, f32[8]{0}) all-gather-start(%p), replica_groups={{0,1}}, \
dimensions={0}SYNC
  %z = f32[4]{0} negate(%y)
  %d = f32[8]{0} all-gather-done(%s)
  %w = f32[4]{0} negate(%z)
  ROOT %out = (f32[8]{0}, f32[4]{0}) tuple(%d, %w)
}
"""
_SYNC = ', backend_config={"collective_backend_config":{"is_sync":true}}'


@pytest.mark.parametrize(
    ("sync", "expected"),
    [("", "p s q x y z w d out"), (_SYNC, "p q x y z s d w out")],
)
def test_adjustments_of_an_order(sync: str, expected: str) -> None:
    module = hlo_passes.parse(ASYNC.replace("SYNC", sync))
    order = adjusted(module.entry.instructions)
    assert " ".join(i.name for i in order) == expected


def test_sugar_of_any_name_moves_as_a_generic_pair() -> None:
    module = hlo_passes.parse("""HloModule m

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (p: f32[4]) -> (f32[2], f32[4]) {
  %p = f32[4]{0} parameter(0)
  %a = f32[4]{0} negate(%p)
  %s = ((f32[4]{0}), f32[2]{0}) reduce-scatter-start(%p), \
replica_groups={{0,1}}, dimensions={0}, to_apply=%add
  %d = f32[2]{0} reduce-scatter-done(%s)
  %b = f32[4]{0} negate(%a)
  ROOT %out = (f32[2]{0}, f32[4]{0}) tuple(%d, %b)
}
""")
    order = adjusted(module.entry.instructions)
    assert " ".join(i.name for i in order) == "p s a b d out"


TRANSFER = """HloModule m

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %t = token[] after-all()
  %s = (f32[4]{0}, u32[], token[]) send(%p, %t), channel_id=1SYNC
  %a = f32[4]{0} negate(%p)
  %d = token[] send-done(%s), channel_id=1
  ROOT %r = f32[4]{0} negate(%a)
}
"""


@pytest.mark.parametrize(
    ("sync", "expected"), [("", "p t s a d r"), (_SYNC, "p t a s d r")]
)
def test_a_transfer_stays_where_it_is_unless_it_is_synchronous(
    sync: str, expected: str
) -> None:
    module = hlo_passes.parse(TRANSFER.replace("SYNC", sync))
    order = adjusted(module.entry.instructions)
    assert " ".join(i.name for i in order) == expected


def test_custom_calls_go_where_they_ask_to() -> None:
    module = hlo_passes.parse("""HloModule m

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %a = f32[4]{0} negate(%p)
  %early = f32[4]{0} custom-call(%p), custom_call_target="f", \
schedule=SCHEDULE_EARLIEST
  %late = f32[4]{0} custom-call(%p), custom_call_target="f", schedule=SCHEDULE_LATEST
  %b = f32[4]{0} add(%a, %early)
  ROOT %r = f32[4]{0} add(%b, %late)
}
""")
    order = adjusted(module.entry.instructions)
    assert " ".join(i.name for i in order) == "p early a b late r"
