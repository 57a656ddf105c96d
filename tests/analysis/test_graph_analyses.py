"""Order, calls and effects, on small modules."""

from __future__ import annotations

import hlo_passes
from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.effects import has_side_effect, is_removable
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order

_CALLS = """\
HloModule calls, entry_computation_layout={(f32[8]{0})->(f32[8]{0}, f32[8]{0})}

%unused (u: f32[8]) -> f32[8] {
  ROOT %u = f32[8]{0} parameter(0)
}

%inner (i: f32[8]) -> f32[8] {
  %i = f32[8]{0} parameter(0)
  %c = f32[] constant(0)
  %d = f32[] constant(1)
  ROOT %random = f32[8]{0} rng(%c, %d), distribution=rng_uniform
}

%outer (o: f32[8]) -> f32[8] {
  %o = f32[8]{0} parameter(0)
  ROOT %called = f32[8]{0} call(%o), to_apply=%inner
}

%fused (f: f32[8]) -> f32[8] {
  %f = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%f)
}

ENTRY %main (x: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %a = f32[8]{0} call(%x), to_apply=%outer
  %b = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%b, %a)
}
"""


def test_callees_come_before_callers() -> None:
    """In module order of what nobody calls."""
    module = hlo_passes.parse(_CALLS)
    names = [c.name for c in computations_post_order(module)]
    assert names == ["unused", "inner", "outer", "fused", "main"]
    names = [c.name for c in computations_post_order(module, fusions=False)]
    assert names == ["unused", "inner", "outer", "main"]
    graph = build_call_graph(module)
    inner = module.computation("inner")
    assert inner is not None
    assert [i.name for i in graph.callers_of(inner)] == ["called"]
    assert graph.callers_of(module.entry) == ()


def test_effects_are_seen_through_calls() -> None:
    """A call of a call of a random number acts; a fusion of a negation does not."""
    entry = hlo_passes.parse(_CALLS).entry
    effects = {i.name: has_side_effect(i) for i in entry.instructions}
    assert effects == {"x": False, "a": True, "b": False, "t": False}
    removable = {i.name: is_removable(i) for i in entry.instructions}
    assert removable == {"x": False, "a": False, "b": True, "t": True}


def test_post_order_visits_the_last_control_predecessor_first() -> None:
    """Control predecessors before operands, operands from first to last."""
    module = hlo_passes.parse(
        """\
HloModule order, entry_computation_layout={(f32[])->f32[]}

ENTRY %main (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %dead = f32[] negate(%x)
  %p = f32[] cosine(%x)
  %q = f32[] sine(%x)
  %b = f32[] abs(%x)
  %a = f32[] exponential(%x)
  ROOT %r = f32[] add(%a, %b), control-predecessors={%p, %q}
}
"""
    )
    names = [i.name for i in post_order(module.entry)]
    assert names == ["x", "dead", "p", "q", "a", "b", "r"] or names == [
        "x", "dead", "q", "p", "a", "b", "r",
    ]  # fmt: skip
    # %p and %q have no users: they are roots of the walk and come in list order.
    assert names.index("p") < names.index("q")


def test_text_order_moves_only_what_must() -> None:
    """A reader comes directly after what it waited for; the rest keeps its place."""
    module = hlo_passes.parse(
        """\
HloModule order, entry_computation_layout={(f32[])->f32[]}

ENTRY %main (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %a = f32[] abs(%x)
  %b = f32[] negate(%x)
  %c = f32[] cosine(%x)
  %d = f32[] sine(%x)
  ROOT %r = f32[] add(%a, %d)
}
"""
    )
    entry = module.entry
    assert not restore_text_order(entry)
    a, c = entry.find("a"), entry.find("c")
    assert a is not None
    assert c is not None
    entry.set_operands(a, (c,))
    assert restore_text_order(entry)
    assert [i.name for i in entry.instructions] == ["x", "b", "c", "a", "d", "r"]
    assert not restore_text_order(entry)
