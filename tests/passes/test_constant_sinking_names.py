"""Names of what `while-loop-constant-sinking` copies, as XLA gives them."""

from __future__ import annotations

import re

import pytest

import hlo_passes
from hlo_passes.passes.rewriting.cloning import name_with_suffix

#: Two nested loops that start with the same two constants, each in two elements.
TEXT = """HloModule nested

%inner (state: (f32[], f32[], f32[])) -> (f32[], f32[], f32[]) {
  %state = (f32[], f32[], f32[]) parameter(0)
  %x = f32[] get-tuple-element(%state), index=0
  %k = f32[] get-tuple-element(%state), index=1
  %end = f32[] get-tuple-element(%state), index=2
  %new = f32[] multiply(%x, %k)
  ROOT %after = (f32[], f32[], f32[]) tuple(%new, %k, %end)
}

%inner_goes_on (state.1: (f32[], f32[], f32[])) -> pred[] {
  %state.1 = (f32[], f32[], f32[]) parameter(0)
  %x.1 = f32[] get-tuple-element(%state.1), index=0
  %end.1 = f32[] get-tuple-element(%state.1), index=2
  ROOT %less = pred[] compare(%x.1, %end.1), direction=LT
}

%outer (state.2: (f32[], f32[], f32[])) -> (f32[], f32[], f32[]) {
  %state.2 = (f32[], f32[], f32[]) parameter(0)
  %x.2 = f32[] get-tuple-element(%state.2), index=0
  %k.2 = f32[] get-tuple-element(%state.2), index=1
  %end.2 = f32[] get-tuple-element(%state.2), index=2
  %start.2 = (f32[], f32[], f32[]) tuple(%x.2, %k.2, %end.2)
  %loop.2 = (f32[], f32[], f32[]) while(%start.2), condition=%inner_goes_on, body=%inner
  %new.2 = f32[] get-tuple-element(%loop.2), index=0
  ROOT %after.2 = (f32[], f32[], f32[]) tuple(%new.2, %k.2, %end.2)
}

%outer_goes_on (state.3: (f32[], f32[], f32[])) -> pred[] {
  %state.3 = (f32[], f32[], f32[]) parameter(0)
  %k.3 = f32[] get-tuple-element(%state.3), index=1
  %end.3 = f32[] get-tuple-element(%state.3), index=2
  ROOT %less.3 = pred[] compare(%k.3, %end.3), direction=LT
}

ENTRY %main (in: f32[]) -> (f32[], f32[], f32[]) {
  %in = f32[] parameter(0)
  %c = f32[] constant(3)
  %start = (f32[], f32[], f32[]) tuple(%in, %c, %c)
  ROOT %loop = (f32[], f32[], f32[]) while(%start), condition=%outer_goes_on, body=%outer
}
"""


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("k", "k..sunk"),
        ("k.7", "k.7..sunk"),
        ("k..sunk", "k..sunk2"),
        ("k..sunk2", "k..sunk3"),
        ("k..sunk.1", "k..sunk.1..sunk"),
        ("k..sunken", "k..sunken..sunk"),
        ("k..sunk9..sunk4", "k..sunk9..sunk5"),
        ("k.sunk", "k.sunk..sunk"),
        ("k..sunk99999999999999999999", "k..sunk99999999999999999999..sunk"),
    ],
)
def test_a_copy_of_a_copy_counts(name: str, copy: str) -> None:
    assert name_with_suffix(name, ".sunk") == copy


def test_elements_are_visited_in_turn_each_in_body_and_condition() -> None:
    """The order of the copies decides which one has which number."""
    module = hlo_passes.parse(TEXT)
    hlo_passes.Pipeline.parse("while-loop-constant-sinking").run(module)
    found = {
        c.name: [i.name for i in c.instructions if i.opcode == "constant"]
        for c in module.computations
    }
    assert found == {
        "main": ["c"],
        "outer": ["c..sunk", "c..sunk.2"],
        "outer_goes_on": ["c..sunk.1", "c..sunk.3"],
        "inner": ["c..sunk2"],
        "inner_goes_on": ["c..sunk.2..sunk"],
    }
    assert not re.search(r"%\S*[^.]\.sunk", module.to_text())
