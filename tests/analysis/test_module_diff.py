"""What a difference of modules says, and that none is said of equal ones."""

from __future__ import annotations

import json

import hlo_passes
from hlo_passes.analysis.module_diff import diff_modules

_BEFORE = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[4]{0})->(f32[8]{0}, f32[4]{0})}

ENTRY %main (x: f32[8], y: f32[4]) -> (f32[8], f32[4]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
  %a = f32[8]{0} collective-permute(%x), source_target_pairs={{0,1}}
  %b = f32[4]{0} collective-permute(%y), source_target_pairs={{0,1}}
  %n = f32[8]{0} negate(%a)
  %m = f32[4]{0} abs(%b)
  ROOT %t = (f32[8]{0}, f32[4]{0}) tuple(%n, %m)
}
"""
_COMBINED = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[4]{0})->(f32[8]{0}, f32[4]{0})}

ENTRY %main (x: f32[8], y: f32[4]) -> (f32[8], f32[4]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
  %c = (f32[8]{0}, f32[4]{0}) collective-permute(%x, %y), source_target_pairs={{0,1}}
  %g = f32[8]{0} get-tuple-element(%c), index=0
  %h = f32[4]{0} get-tuple-element(%c), index=1
  %m = f32[4]{0} abs(%h)
  %n = f32[8]{0} negate(%g)
  ROOT %t = (f32[8]{0}, f32[4]{0}) tuple(%n, %m)
}
"""


def _diff(before: str, after: str):
    return diff_modules(hlo_passes.parse(before), hlo_passes.parse(after))


def test_equal_modules_do_not_differ() -> None:
    """No differences, in both forms."""
    found = _diff(_BEFORE, _BEFORE)
    assert found.is_empty
    assert found.to_text() == "no differences\n"
    assert found.to_json() == {"equal": True, "header": [], "computations": []}


def test_combining_is_told_as_merging() -> None:
    """Members went into one, elements appeared, a reader moved."""
    found = _diff(_BEFORE, _COMBINED)
    assert found.to_text() == (
        "%main\n"
        "  merged    %a, %b -> %c\n"
        "  changed   %m: operands\n"
        "  changed   %n: operands\n"
        "  appeared  %g (get-tuple-element)\n"
        "  appeared  %h (get-tuple-element)\n"
        "  moved     %m from place 3 to place 2\n"
    )
    (computation,) = found.to_json()["computations"]
    assert computation["merged"] == [{"from": ["a", "b"], "into": "c"}]
    assert computation["moved"] == [{"name": "m", "from": 3, "to": 2}]
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_splitting_is_the_inverse() -> None:
    """One went into members."""
    (computation,) = _diff(_COMBINED, _BEFORE).to_json()["computations"]
    assert computation["split"] == [{"from": "c", "into": ["a", "b"]}]
    assert computation["merged"] == []
    assert [row["name"] for row in computation["went"]] == ["g", "h"]


def test_a_new_name_alone_is_a_renaming() -> None:
    """Whoever reads it has not changed."""
    (computation,) = _diff(_BEFORE, _BEFORE.replace("%n", "%o")).to_json()[
        "computations"
    ]
    assert computation["renamed"] == [{"from": "n", "to": "o"}]
    assert computation["changed"] == []
    assert computation["appeared"] == computation["went"] == []


def test_changes_name_what_changed() -> None:
    """Attributes, shapes, header; a computation that appears."""
    changed = _BEFORE.replace(
        "%y), source_target_pairs={{0,1}}",
        "%y), channel_id=1, source_target_pairs={{1,0}}",
    )
    (computation,) = _diff(_BEFORE, changed).to_json()["computations"]
    assert computation["changed"] == [
        {"name": "b", "what": ["source_target_pairs", "channel_id"]}
    ]
    scheduled = _BEFORE.replace("HloModule m,", "HloModule m, is_scheduled=true,")
    assert _diff(_BEFORE, scheduled).to_text() == (
        "header: is_scheduled: none -> true\n"
    )
    more = _BEFORE.replace(
        "ENTRY", "%f (z: f32[]) -> f32[] {\n  ROOT %z = f32[] parameter(0)\n}\n\nENTRY"
    )
    assert _diff(_BEFORE, more).to_text() == "%f appeared\n"
    assert _diff(more, _BEFORE).to_text() == "%f went\n"
