"""Forms of attribute text, and values that are written as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.attribute_forms import named_values, split_form
from hlo_passes.ir.attribute_tables import ATTRIBUTE_KINDS
from hlo_passes.ir.attribute_values import (
    canonical_attributes,
    parse_value,
    value_text,
)
from hlo_passes.ir.printed_values import is_as_printed
from hlo_passes.text.printer import attributes_text

METADATA = '{op_name="jit(f)/add" source_file="a.py" source_line=3 stack_frame_id=2}'

FORMS = [
    ("", ("", None, None), "", ""),
    (", index=0", (", index=0", None, None), "", ""),
    (f", metadata={METADATA}", ("", None, ""), "", METADATA),
    (f", k=1, calls=%f.1, x=2, metadata={METADATA}, backend_config={{}}",
     (", k=1, calls", ", x=2", ", backend_config={}"), "f.1", METADATA),
    (", condition=%c, body=%b", (", condition", ", body=%b", None), "c", ""),
    # Not certainly as XLA prints it: a part of the form.
    (", metadata={}", (", metadata={}", None, None), "", ""),
    (', metadata={op_name=""}', (', metadata={op_name=""}', None, None), "", ""),
    (', metadata={op_name="a" }', (', metadata={op_name="a" }', None, None), "", ""),
    (', metadata={op_name="\'"}', (', metadata={op_name="\'"}', None, None), "", ""),
    (', metadata={op_name="a"} ', (', metadata={op_name="a"} ', None, None), "", ""),
    (", called_computations={%a}", (", called_computations={%a}", None, None), "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("tail", "form", "callee", "metadata"), FORMS)
def test_forms(tail: str, form: tuple, callee: str, metadata: str) -> None:
    assert split_form(tail) == (form, callee, metadata)


def test_named_values() -> None:
    found = split_form(f", kind=kLoop, calls=%f, metadata={METADATA}")
    assert named_values(*found) == {"calls": "%f", "metadata": METADATA}


#: Values of attributes by name; `printed` says nothing about the others.
VALUES = {
    "bool": ["true", "false", "True", "1", " true"],
    "computation": ["%a", "%a.b-c", "a", "%", "%1a", "% a"],
    "int": ["0", "-1", "12", "01", "-0", "1.5", "999999999999999999999"],
    "int_list": ["{}", "{0}", "{0,1}", "{0, 1}", "{0,}", "{01}", "{-3,4}"],
    "int_lists": ["{}", "{{0},{1,2}}", "{{}}", "{{0} ,{1}}", "{{0},{1}"],
    "metadata": [
        METADATA, "{}", '{op_name="a"}', '{op_type="t" op_name="a"}', "{op_name=a}",
        '{op_name="a" source_line=0}', '{op_name="a" op_type="t"}',
        '{op_name="a"  stack_frame_id=1}', '{op_name="é"}', '{op_name="a", source_line=1}',
        '{op_name="a" deduplicated_name="b" scheduling_name="c" stack_frame_id=12}',
    ],
    "replica_groups": ["{}", "{{0,1},{2,3}}", "{{0, 1}}", "[2,4]<=[8]"],
    "slice": ["{}", "{[0:2]}", "{[0:2], [1:3]}", "{[0:2:1]}", "{[0:2],[1:3]}"],
    "source_target_pairs": ["{}", "{{0,1},{1,0}}", "{{0,1}, {1,0}}", "{{0}}"],
    "string": ['""', '"a b"', '"\\""', "'a'", '"\'"', '"\\303"'],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_as_printed_is_read_and_written_so(kind: str) -> None:
    name = next((n for n, k in ATTRIBUTE_KINDS.items() if k == kind), "slice_sizes")
    printed = [text for text in VALUES[kind] if is_as_printed(kind, text)]
    assert printed
    assert len(printed) < len(VALUES[kind])
    for text in printed:
        assert value_text(name, parse_value(name, text)) == text


@given(
    st.lists(st.sampled_from(["{", "}", ",", "0", "-", "12", ":", "[", "]", " ", '"']))
)
def test_random_text_that_is_as_printed_is_written_so(parts: list[str]) -> None:
    text = "{" + "".join(parts) + "}"
    for name in ("dimensions", "replica_groups", "source_target_pairs", "slice"):
        if is_as_printed(ATTRIBUTE_KINDS[name], text):
            assert value_text(name, parse_value(name, text)) == text


#: Attributes of a custom-call: some hide what looks like metadata or a callee.
PIECES = [
    "to_apply=%add", "called_computations={%add, %mul}", "calls=%mul", "foo=%bar",
    f"metadata={METADATA}", 'metadata={op_name="b"}', "metadata={source_line=3}",
    'metadata={op_name="c" op_type="d"}', "metadata={}", "sharding={replicated}",
    'frontend_attributes={a=\', metadata={op_name="x"}\',b="=%add"}',
    'frontend_attributes={a=", metadata={op_name=\\"x\\"}"}',
    'backend_config={"a":", metadata={","b":{"c":"=%mul"}}', 'backend_config="x=%add"',
    "custom_call_has_side_effect=true", "window={size=3 pad=1_1}", "literal=s32[] 1",
    'sharding={devices=[2]<=[2] metadata={op_name="s"}}', "result_accuracy={mode=highest}",
]  # fmt: skip
HEAD = """HloModule m
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}
"""


@given(
    st.lists(
        st.lists(
            st.sampled_from(PIECES), max_size=5, unique_by=lambda p: p.split("=")[0]
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_texts_by_form_are_those_of_each_value(pieces: list, tuples: bool) -> None:
    shape = "(f32[2]{0}, f32[])" if tuples else "f32[2]{0}"
    lines = [
        f'  %c.{k} = {shape} custom-call(), custom_call_target="t"'
        + "".join(f", {piece}" for piece in some)
        for k, some in enumerate(pieces)
    ]
    module = hlo_passes.parse(
        HEAD
        + HEAD.replace("HloModule m\n", "").replace("%add", "%mul")
        + "ENTRY %e () -> f32[] {\n"
        + "\n".join([*lines, "  ROOT %z = f32[] constant(0)\n}\n"])
    )
    printed = module.to_canonical_text().split("ENTRY", 1)[1].splitlines()[1:]
    for instruction, line in zip(module.entry.instructions, printed, strict=False):
        attributes = canonical_attributes(
            instruction.attributes, instruction.opcode, instruction.shape
        )
        assert line.endswith("()" + attributes_text(instruction, attributes)) or (
            instruction.opcode == "constant"
        )
