"""An order written into a serialised module: nothing else changes."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.proto import module_from_proto, module_text_from_proto, module_to_proto
from hlo_passes.schedule_proto import (
    OrderLostError,
    has_schedule,
    is_reordering,
    with_order,
)

SCHEDULED = """\
HloModule m, is_scheduled=true

body {
  state = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(state), index=0
  b = f32[4] get-tuple-element(state), index=1
  ROOT next = (f32[4], f32[4]) tuple(b, a)
}

condition {
  state.1 = (f32[4], f32[4]) parameter(0)
  ROOT more = pred[] constant(false)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  z = f32[4] abs(x)
  pair = (f32[4], f32[4]) tuple(y, z)
  ROOT loop = (f32[4], f32[4]) while(pair), condition=condition, body=body
}
"""


def _swapped(module: hlo_passes.Module, computation: str, *names: str) -> None:
    """Bring the named instructions, which follow one another, into this order."""
    found = module.computation(computation)
    assert found is not None
    chosen = [found.find(name) for name in names]
    order = []
    for instruction in found.instructions:
        if instruction.name == min(names):
            order += chosen
        elif instruction.name not in names:
            order.append(instruction)
    found.set_order(order)


def test_new_order_and_nothing_else() -> None:
    proto = module_to_proto(hlo_passes.parse(SCHEDULED, filename="m.hlo"))
    module = module_from_proto(proto)
    _swapped(module, "main", "z", "y")
    _swapped(module, "body", "b", "a")
    new = with_order(proto, module)
    before, after = module_text_from_proto(proto), module_text_from_proto(new)
    assert after == module.to_text()
    assert after != before
    assert is_reordering(before, after)
    assert len(new) == len(proto)


def test_old_order_gives_the_same_bytes() -> None:
    proto = module_to_proto(hlo_passes.parse(SCHEDULED, filename="m.hlo"))
    assert with_order(proto, module_from_proto(proto)) == proto


def test_error_without_schedule() -> None:
    text = SCHEDULED.replace(", is_scheduled=true", "")
    proto = module_to_proto(hlo_passes.parse(text, filename="m.hlo"))
    assert not has_schedule(proto)
    with pytest.raises(OrderLostError, match="m was given without a schedule"):
        with_order(proto, module_from_proto(proto))


def test_error_other_instructions() -> None:
    proto = module_to_proto(hlo_passes.parse(SCHEDULED, filename="m.hlo"))
    other = SCHEDULED.replace("y = ", "new = ").replace("(y, z)", "(new, z)")
    module = hlo_passes.parse(other, filename="m.hlo")
    with pytest.raises(OrderLostError, match="new new, missing y"):
        with_order(proto, module)


def test_error_cut_short() -> None:
    proto = module_to_proto(hlo_passes.parse(SCHEDULED, filename="m.hlo"))
    with pytest.raises(OrderLostError, match="ends inside"):
        with_order(proto[:-1], module_from_proto(proto))
