"""Instructions like a correct one are not checked again; what differs always is."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.verify import findings

HEAD = """HloModule m, num_partitions=2

%one (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%x)
}

%other (x: f32[9]) -> f32[9] {
  %x = f32[9]{0} parameter(0)
  ROOT %n = f32[9]{0} negate(%x)
}

%apart (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%x)
}, execution_thread="t"

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%add2 (a: s32[], b: s32[]) -> s32[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = s32[] add(%a, %b)
}

ENTRY %e (p: f32[8], q: f32[9], s: f32[]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[9]{0} parameter(1)
  %s = f32[] parameter(2)
"""

NEGATE = 'f32[8]{0} negate(%p), metadata={op_name="a"}'
FUSION = "f32[8]{0} fusion(%p), kind=kLoop, calls=%one"
REDUCE = "f32[] reduce(%p, %s), dimensions={0}, to_apply=%add"
SHARDED = "f32[8]{0} copy(%p), sharding={devices=[2]<=[2]}"

#: A correct instruction, and one that differs in one respect and is wrong.
PAIRS = {
    "shape": (NEGATE, 'f32[9]{0} negate(%p), metadata={op_name="a"}'),
    "layout": ("f32[8]{0} copy(%p)", "f32[8]{1} copy(%p)"),
    "operand": (NEGATE, 'f32[8]{0} negate(%q), metadata={op_name="a"}'),
    "opcode": (NEGATE, 'f32[8]{0} not(%p), metadata={op_name="a"}'),
    "operand count": ("f32[8]{0} add(%p, %p)", "f32[8]{0} add(%p, %p, %p)"),
    "literal": ("s8[] constant(3)", "s8[] constant(300)"),
    "nested literal": ("s8[1,1]{1,0} constant({ {3} })",
                       "s8[1,1]{1,0} constant({ {300} })"),
    "attribute": ("f32[8]{0} broadcast(%s), dimensions={}",
                  "f32[8]{0} broadcast(%s), dimensions={0}"),
    "unknown attribute": (NEGATE, 'f32[8]{0} negate(%p), x=1, metadata={op_name="a"}'),
    "attribute after": (NEGATE, 'f32[8]{0} negate(%p), metadata={op_name="a"}, x=1'),
    "missing attribute": (REDUCE, "f32[] reduce(%p, %s), to_apply=%add"),
    "metadata": (NEGATE, 'f32[8]{0} negate(%p), metadata={op_name="a" source_line=x}'),
    "metadata twice": (NEGATE, 'f32[8]{0} negate(%p), metadata={op_name="a" op_name="b"}'),
    "sharding": (SHARDED, "f32[8]{0} copy(%p), sharding={devices=[4]<=[4]}"),
    "rank of sharding": (SHARDED, "f32[] copy(%s), sharding={devices=[2]<=[2]}"),
    "callee": (REDUCE, "f32[] reduce(%p, %s), dimensions={0}, to_apply=%add2"),
    "missing callee": (REDUCE, "f32[] reduce(%p, %s), dimensions={0}, to_apply=%none"),
    "fused": (FUSION, "f32[8]{0} fusion(%p), kind=kLoop, calls=%other"),
    "thread": (FUSION, "f32[8]{0} fusion(%p), kind=kLoop, calls=%apart"),
    "channel": (
        "f32[] all-reduce(%s), channel_id=1, replica_groups={{0,1}},"
        " use_global_device_ids=true, to_apply=%add",
        "f32[] all-reduce(%s), channel_id=0, replica_groups={{0,1}},"
        " use_global_device_ids=true, to_apply=%add",
    ),
}  # fmt: skip


def _found(*instructions: str) -> list[tuple[str, str, str]]:
    # The last one has the same name, however many come before it.
    numbered = [*enumerate(instructions[:-1]), (9, instructions[-1])]
    lines = [f"  %i{k} = {text}" for k, text in numbered]
    text = "\n".join([*lines, "  ROOT %r = f32[8]{0} copy(%p)", "}", ""])
    module = hlo_passes.parse(HEAD + text)
    return [(f.code, f.message, f.instruction) for f in findings(module)]


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_found(name: str) -> None:
    right, wrong = PAIRS[name]
    # A body belongs to one fusion.
    before = [right] if right == FUSION else [right, right]
    assert _found(*before) == []
    assert _found(wrong)
    assert _found(*before, wrong) == _found(wrong)


def test_two_fusions_of_one_body_are_alike_and_wrong() -> None:
    assert [f[0] for f in _found(FUSION, FUSION)] == ["V602"]


def test_each_of_two_that_differ_from_a_third_alike_is_told() -> None:
    reduce = "f32[] all-reduce(%s), replica_groups={}, to_apply=%add"
    constrained = f"{reduce}, constrain_layout=true"
    found = _found(reduce, constrained, constrained)
    assert [(code, name) for code, _, name in found] == [("V309", "i1"), ("V309", "i9")]


def test_device_counts_count() -> None:
    text = HEAD + f"  ROOT %i = {SHARDED}\n}}\n"
    module = hlo_passes.parse(text)
    assert findings(module) == ()
    module.set_attribute("num_partitions", "4")
    assert [f.code for f in findings(module)] == ["V801"]


def test_what_a_pass_changes_is_checked_again() -> None:
    text = HEAD + f"  %a = {NEGATE}\n  %b = {NEGATE}\n  ROOT %i = {SHARDED}\n}}\n"
    module = hlo_passes.parse(text)
    assert findings(module) == ()
    changed = module.entry.find("b")
    assert changed is not None
    changed.set_attribute("metadata", "{op_name=3}")
    assert [(f.code, f.instruction) for f in findings(module)] == [("V103", "b")]
