"""Forms of HLO text that XLA does not print but reads."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.text.reader import parse_completely


def _names(module: hlo_passes.Module) -> list[str]:
    return [i.name for i in module.entry.instructions]


def test_a_module_without_header_and_prefixes() -> None:
    text = """add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    ENTRY e { x = f32[8] parameter(0)
      ROOT r = f32[8] all-reduce(x), replica_groups={}, to_apply=add }"""
    module = hlo_passes.parse(text)
    assert module.name == "module_e"
    assert _names(module) == ["x", "r"]
    assert module.entry.root.called_computations[0].name == "add"
    module.entry.set_root(module.entry.instructions[0])
    assert hlo_passes.parse(module.to_text()).entry.root.name == "x"


def test_a_header_over_several_lines() -> None:
    text = (
        "HloModule m,\n  is_scheduled=true, // the order is the schedule\n"
        "  num_partitions=8\n\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"
    )
    module = hlo_passes.parse(text)
    assert module.is_scheduled
    assert module.num_partitions == 8
    assert module.to_text() == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "%e { ROOT p = f32[] parameter(0) }",
            "HloModule module_e, is_scheduled=true\n\n%e { ROOT",
        ),
        (
            "ENTRY e { ROOT p = f32[] parameter(0) }",
            "HloModule module_e, is_scheduled=true\n\nENTRY e { ROOT",
        ),
        (
            "HloModule m%e { ROOT p = f32[] parameter(0) }",
            "HloModule m, is_scheduled=true\n\n%e { ROOT",
        ),
        (
            "HloModule m %e { ROOT p = f32[] parameter(0) }",
            "HloModule m, is_scheduled=true %e { ROOT",
        ),
    ],
)
def test_a_new_header_does_not_touch_what_follows(text: str, written: str) -> None:
    module = hlo_passes.parse(text)
    module.set_attribute("is_scheduled", "true")
    assert module.to_text().startswith(written)
    assert module.clone().is_scheduled


def test_a_single_instruction_makes_parameters() -> None:
    module = hlo_passes.parse("f32[8] add(f32[8] x, f32[8] y)")
    assert module.name == "_"
    assert module.is_scheduled
    assert [p.name for p in module.entry.parameters] == ["x", "y"]
    assert module.entry.root.opcode == "add"


def test_nested_operands_become_instructions() -> None:
    text = """ENTRY e { a = f32[8] parameter(0)
      s = (f32[8], u32[], token[]) send(a, token[] after-all()), channel_id=5
      ROOT d = token[] send-done(s), channel_id=5 }"""
    module = hlo_passes.parse(text)
    assert _names(module) == ["a", "after-all.anon", "s", "d"]
    send = module.entry.instructions[2]
    send.channel_id = 6
    printed = module.to_text()
    assert "%after-all.anon = token[] after-all()" in printed
    assert "send(%a, %after-all.anon), channel_id=6" in printed
    assert _names(hlo_passes.parse(printed)) == _names(module)


def test_compact_tuple_access() -> None:
    text = """ENTRY e {
      %p = ((f32[2], s32[]), f32[3]) parameter(0)
      %a = f32[2] negate(%p#0#0)
      ROOT %r = f32[2] add(%a, %p#0#0)
    }"""
    module = hlo_passes.parse(text)
    elements = [i for i in module.entry.instructions if i.tuple_index_or_none == 0]
    assert len(elements) == 2
    assert module.entry.root.operands[1] is elements[1]


def test_inline_bodies() -> None:
    text = """ENTRY e { x = f32[8] parameter(0)
      z = f32[] constant(0)
      ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply={
        a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) } }"""
    module = hlo_passes.parse(text)
    assert [c.name for c in module.computations] == ["_", "e"]
    assert module.entry.root.called_computations[0].root.opcode == "add"
    module.entry.root.set_attribute("metadata", '{op_name="sum"}')
    again = hlo_passes.parse(module.to_text())
    assert [c.name for c in again.computations] == ["_", "e"]
    assert again.entry.root.metadata.op_name == "sum"


def test_shapes_may_be_left_out() -> None:
    module = hlo_passes.parse(
        "ENTRY e { x = f32[8] parameter(0)\n y = add(x, x)\n ROOT t = tuple(y, x) }"
    )
    assert module.entry.root.shape.text == "(f32[8]{0}, f32[8]{0})"


@pytest.mark.parametrize(
    "literal",
    [
        "{...}",
        "((1, 2))",
        "{ { /*i0=0*/ {1} } }",
        "( {1, 2}, true )",
        "-inf",
        "nan(0x7f)",
    ],
)
def test_literals_keep_their_text(literal: str) -> None:
    shape = {"((1, 2))": "(c64[])", "( {1, 2}, true )": "(s32[2], pred[])"}.get(
        literal, "f32[]" if literal[0] in "-n" else "f32[1,1,1]"
    )
    text = f"ENTRY %e {{\n  ROOT %c = {shape} constant({literal})\n}}\n"
    module = hlo_passes.parse(text)
    assert module.entry.root.literal == literal
    module.version = 1
    assert module.to_text() == text


def test_control_predecessors_are_edges() -> None:
    text = """HloModule m

ENTRY %e (a: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] negate(%a)
  ROOT %c = f32[] add(%a, %a), control-predecessors={%b}, metadata={op_name="x"}
}
"""
    module = hlo_passes.parse(text)
    a, b, c = module.entry.instructions
    assert c.control_predecessors == (b,)
    assert b.control_successors == (c,)
    assert "control-predecessors" not in c.attributes
    module.entry.remove_control_edge(b, c)
    module.entry.add_control_edge(a, c)
    assert module.to_text() == text.replace("{%b}", "{%a}")


def test_comments_inside_dimensions_and_signatures_without_colons() -> None:
    text = """ENTRY %c (input f32[1], p: f32[/*m*/8, 4 // n
      ]) -> f32[8,4] {
      %input = f32[1] parameter(0)
      ROOT %p = f32[/*m*/8, /*n*/ 4] parameter(1)
    }"""
    module = hlo_passes.parse(text)
    assert module.entry.root.shape.text == "f32[8,4]{1,0}"
    assert module.to_text() == text


@pytest.mark.parametrize("config", ['{"a":0/*}', '{"a":/*c*/0}', '{"a":"/*"}'])
def test_a_json_value_has_no_comments(config: str) -> None:
    text = (
        "HloModule m\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
        "  %a = f32[4]{0} parameter(0)\n"
        f"  %b = f32[4]{{0}} negate(%a), backend_config={config}\n"
        "  ROOT %r = f32[4]{0} add(%b, /*x*/%b)\n}\n"
    )
    for read in (hlo_passes.parse, parse_completely):
        module = read(text)
        assert module.entry.root.operands[0].attributes["backend_config"] == config


def test_a_constant_without_a_literal_is_the_same_to_both_readers() -> None:
    text = "HloModule m\n\nENTRY %e () -> s32[] {\n  ROOT %c = s32[] constant()\n}\n"
    for read in (hlo_passes.parse, parse_completely):
        module = read(text)
        assert module.entry.root.literal == ""
        assert module.to_text() == text
        with pytest.raises(hlo_passes.VerificationError, match="V404"):
            hlo_passes.verify(module)
