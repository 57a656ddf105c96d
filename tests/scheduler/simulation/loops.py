"""Modules with loops: one that can be counted, and one that nobody can count."""

from __future__ import annotations

#: What `lax.scan` becomes: the count is in the condition.
LAYERS = """HloModule m, is_scheduled=true

%layer (s: (s32[], f32[512,512])) -> (s32[], f32[512,512]) {
  %s = (s32[], f32[512,512]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[512,512] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[512,512] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %after = (s32[], f32[512,512]) tuple(%next, %y)
}

%more_layers (t: (s32[], f32[512,512])) -> pred[] {
  %t = (s32[], f32[512,512]) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %layers = s32[] constant(126)
  ROOT %less = pred[] compare(%j, %layers), direction=LT
}

ENTRY %main (p: f32[512,512]) -> (s32[], f32[512,512]) {
  %p = f32[512,512] parameter(0)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[512,512]) tuple(%zero, %p)
  ROOT %loop = (s32[], f32[512,512]) while(%begin), condition=%more_layers, body=%layer
}
"""


def open_ended(text: str) -> str:
    """The module with a condition that asks outside."""
    ask = 'custom-call(), custom_call_target="Ask"'
    assert "pred[] constant(false)" in text
    return text.replace("constant(false)", ask)
