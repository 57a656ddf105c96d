"""Outlines of attribute text: equal ones are printed alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.attribute_tables import ATTRIBUTE_KINDS, is_printed
from hlo_passes.ir.attribute_text import split_attributes
from hlo_passes.ir.attribute_values import parse_value, value_text
from hlo_passes.ir.opcodes import ROWS
from hlo_passes.ir.outlines import LEFT_OUT, outline_of_values, outlines
from hlo_passes.ir.printed_values import is_as_printed

METADATA = '{op_name="jit(f)/add" source_file="a.py" source_line=3 stack_frame_id=2}'

#: Opcode, text, its outline with `?` for what is left out.
OUTLINES = [
    ("add", "", ""),
    ("get-tuple-element", ", index=12", ", index=?"),
    ("slice", ", slice={[0:1], [2:3:2]}", ", slice={[0:1], [2:3:2]}"),
    ("slice", ", slice={[0:1], [2:3]}", ", slice=?"),
    ("fusion", f", kind=kLoop, calls=%f.1, metadata={METADATA}, backend_config={{}}",
     ", kind=kLoop, calls=%?, metadata=?, backend_config={}"),
    ("while", ", condition=%c, body=%b", ", condition=%?, body=%?"),
    ("all-reduce", ", channel_id=7, replica_groups={}, to_apply=%a",
     ", channel_id=?, replica_groups={}, to_apply=%?"),
    # Not certainly as XLA prints it.
    ("add", ", metadata={}", ", metadata={}"),
    ("add", ', metadata={op_name="a" }', ', metadata={op_name="a" }'),
    ("add", ', metadata={op_name="\'"}', ', metadata={op_name="\'"}'),
    ("get-tuple-element", ", index=01", ", index=01"),
    ("call", ", to_apply=a", ", to_apply=a"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "text", "outline"), OUTLINES)
def test_outlines(opcode: str, text: str, outline: str) -> None:
    outline = outline.replace("?", "\1")
    assert outlines([text]) == [outline]
    assert outline_of_values(split_attributes(text), opcode) == outline


def test_outlines_of_many_are_those_of_each() -> None:
    texts = [text for _, text, _ in OUTLINES]
    assert outlines(texts) == [outlines([text])[0] for text in texts]
    assert outlines([]) == []


@pytest.mark.parametrize("character", ["\0", "\1"])
def test_no_text_passes_for_an_outline(character: str) -> None:
    texts = [", index=0", f", index={character}", ", index=1"]
    first, second, third = outlines(texts)
    assert first == third == ", index=\1"
    assert second not in (first, outline_of_values({"index": character}, "add"))


@pytest.mark.parametrize(
    "text",
    [
        ', frontend_attributes={a=", index=3, x"}',
        ', custom_call_target="x=%add, y"',
        ', backend_config={"a":", channel_id=3, x"}',
    ],
)
def test_what_only_resembles_a_value_is_noticed(text: str) -> None:
    attributes = split_attributes(text)
    assert outlines([text]) != [outline_of_values(attributes, "custom-call")]


def test_what_is_left_out_is_printed_whatever_it_is() -> None:
    for name in (
        *LEFT_OUT,
        *(n for n, k in ATTRIBUTE_KINDS.items() if k == "computation"),
    ):
        for opcode in ROWS:
            assert is_printed(name, "-1", opcode)
            assert is_printed(name, "%a", opcode)
            assert is_printed(name, "{}", opcode)
            assert is_printed(name, "1", opcode)
    assert {n: ATTRIBUTE_KINDS[n] for n in LEFT_OUT} == LEFT_OUT


@given(st.lists(st.sampled_from(["{", "}", '"', ":", "a", "\\", ",", " ", "1", "{}"])))
def test_a_dict_that_is_as_printed_is_written_so(parts: list[str]) -> None:
    text = "{" + "".join(parts) + "}"
    if is_as_printed("backend_config", text):
        read = parse_value("backend_config", text)
        assert value_text("backend_config", read) == text


#: Lines that share outlines, and lines that nearly do.
LINES = [
    "%g.{k} = f32[] get-tuple-element(%t), index={k}",
    "%g.{k} = f32[] get-tuple-element(%t), index=0{k}",
    '%g.{k} = f32[] get-tuple-element(%t), index={k}, metadata={{op_name="n{k}"}}',
    '%g.{k} = f32[] get-tuple-element(%t), index={k}, metadata={{op_name="" source_line={k}}}',
    '%g.{k} = f32[] custom-call(), custom_call_target="=%a{k}, x"',
    "%g.{k} = f32[] custom-call(), custom_call_target=\"x\", sharding={{replicated}}",
    "%g.{k} = (f32[], f32[]) custom-call(), custom_call_target=\"x\", sharding={{replicated}}",
    "%g.{k} = f32[] get-tuple-element(%t), index={k}, control-predecessors={{%z}}",
    "%g.{k} = f32[2] broadcast(%z)",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.integers(0, 12))
def test_each_line_is_printed_as_if_it_were_alone(
    lines: list[str], changed: int
) -> None:
    def printed(some: dict[int, str]) -> list[str]:
        text = "\n".join(line.format(k=k) for k, line in some.items())
        module = hlo_passes.parse(
            "HloModule m\nENTRY %e (z: f32[]) -> f32[] {\n  %z = f32[] parameter(0)\n"
            f'  %t = (f32[], f32[]) custom-call(), custom_call_target="t"\n{text}\n'
            "  ROOT %r = f32[] negate(%z)\n}\n"
        )
        for instruction in module.entry.instructions:
            if instruction.name == f"g.{changed}":
                instruction.set_attribute("metadata", '{op_name="new"}')
        lines = module.to_canonical_text().splitlines()
        return [line for line in lines if line.startswith("  %g.")]

    assert printed(dict(enumerate(lines))) == [
        line for k, one in enumerate(lines) for line in printed({k: one})
    ]
