"""What a replacement takes over from what it replaces."""

from __future__ import annotations

import hlo_passes
from hlo_passes.passes.rewriting.replacement import relay_control, take_place

_TEXT = """HloModule m

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %a = f32[4]{0} negate(%p)
  %x = f32[4]{0} abs(%p), control-predecessors={%a}
  %y = f32[4]{0} sine(%p)
  %z = f32[4]{0} cosine(%p)
  %b = f32[4]{0} exponential(%x), control-predecessors={%x}
  ROOT %r = f32[4]{0} add(%x, %b)
}
"""


def test_take_place_hands_over_users_and_control_edges() -> None:
    entry = hlo_passes.parse(_TEXT).entry
    _, a, x, y, _, b, r = entry.instructions
    take_place(x, y)
    assert x.removed
    assert y.control_predecessors == (a,)
    assert b.control_predecessors == (y,)
    assert (b.operands, r.operands) == ((y,), (y, b))


def test_two_may_share_the_control_edges_of_one() -> None:
    entry = hlo_passes.parse(_TEXT).entry
    _, a, x, y, z, b, _ = entry.instructions
    relay_control(x, y, z)
    assert y.control_predecessors == (a,)
    assert z.control_predecessors == ()
    assert b.control_predecessors == (x, z)
    assert x.control_predecessors == (a,)
