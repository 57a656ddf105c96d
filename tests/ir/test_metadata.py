"""Metadata, frontend attributes, backend config, stack frames, strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.errors import ParseError
from hlo_passes.ir.c_strings import EscapeError, escape, unescape
from hlo_passes.ir.metadata import (
    BackendConfig,
    FrontendAttributes,
    Metadata,
    parse_backend_config,
    parse_frontend_attributes,
    parse_metadata,
)
from hlo_passes.ir.stack_frames import StackFrames, parse_stack_frames
from tests.ir.xla_text import xla_attribute, xla_prints

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TABLES = """FileNames
1 "model.py"
2 "b\\303\\251.py"

FunctionNames
1 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=4 end_column=20}
2 {file_name_id=2 function_name_id=1 line=11 end_line=11 column=5 end_column=6}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}"""


def on_add(name: str, text: str) -> str | None:
    return xla_attribute(f"f32[4,4] add(a, a), {name}={text}", name)


@pytest.mark.parametrize(
    "text",
    [
        '{op_name="x" source_line=3}',
        '{op_type="a", op_name="b"}',
        "{,op_name='it'}",
        "{}",
        '{metadata_payload=""}',
        '{op_name="a\\u00e9\\U0001F600\\x41\\?\\a\\101\\"\\n"}',
        '{scheduling_name="s" stack_frame_id=0}',
        "{source_end_column=4 source_column=3 source_end_line=2 source_line=1 "
        'source_file="f" profile_type={1,2} deduplicated_name="d" scheduling_name="s" '
        'metadata_payload="p"}',
    ],
)
def test_metadata_agrees_with_xla(text: str) -> None:
    read = parse_metadata(text)
    assert (read.to_text() or None) == on_add("metadata", text)
    assert parse_metadata(f"{{{read.fields_text()}}}") == read


@pytest.mark.parametrize("text", ["{source_line=3}", '{deduplicated_name="d"}'])
def test_metadata_that_xla_drops_in_printing_is_kept(text: str) -> None:
    read = parse_metadata(text)
    assert on_add("metadata", text) is None
    assert not read.is_printed
    assert read.to_text() == text


def test_metadata_fields() -> None:
    read = parse_metadata('{op_name="x" source_line=3}')
    assert read == Metadata(op_name="x", source_line=3)
    changed = read.replace(op_name="é")
    assert changed.to_text() == '{op_name="\\303\\251" source_line=3}'
    assert parse_metadata(changed.to_text()) == changed


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ('{op_name="x" op_name="y"}', 14),
        ("{foo=1}", 2),
        ('{op_name ="x"}', 2),
        ('{op_name="x",}', 14),
        ('{op_name="x}', 10),
        ('{op_name="a\\q"}', 12),
        ('{op_name="\\400"}', 11),
        ('{op_name="\\ud800"}', 11),
        ("{source_line=3000000000}", 14),
        ("{profile_type={4}}", 15),
        ("{source_line=1.5}", 15),
        ('{op_name="x"', 13),
        ("{source_line=" + "9" * 5000 + "}", 14),
    ],
)
def test_metadata_error_place(text: str, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_metadata(text)
    assert caught.value.code == "P250"
    assert caught.value.location is not None
    assert caught.value.location.column == column


@given(TEXT)
def test_strings_survive_and_agree_with_xla(value: str) -> None:
    assert unescape(escape(value)) == value
    assert escape(value).isascii()
    written = Metadata(op_type="t", op_name=value).to_text()
    assert on_add("metadata", written) == written


def test_bytes_that_are_no_text_survive() -> None:
    assert escape(unescape("\\377\\303")) == "\\377\\303"
    with pytest.raises(EscapeError):
        unescape("\\")


@pytest.mark.parametrize(
    "text",
    [
        '{b="x",a="y"}',
        '{a={"k":1}}',
        '{a="{}"}',
        '{a="x",a="y"}',
        '{a={"k":"}"}}',
        '{a="{} {}"}',
        '{a="{\\"x\\":1}"}',
        "{}",
    ],
)
def test_frontend_attributes_agree_with_xla(text: str) -> None:
    read = parse_frontend_attributes(text)
    assert (read.to_text() if read else None) == on_add("frontend_attributes", text)
    assert FrontendAttributes.of(dict(read)) == read


def test_frontend_attributes_are_a_mapping() -> None:
    read = parse_frontend_attributes('{b="1",a="2"}')
    assert list(read) == ["a", "b"]
    assert read["b"] == "1"
    assert read.get("c") is None
    assert read.with_value("c", "{}").without("a").to_text() == '{b="1",c={}}'
    assert not parse_frontend_attributes("{}")
    for bad in ("{a=1}", '{a="x",}', '{a={"k":1}', '{a "x"}'):
        with pytest.raises(ParseError) as caught:
            parse_frontend_attributes(bad)
        assert caught.value.code == "P251"


@pytest.mark.parametrize(
    "text", ['{"a":{"b":[1,2]}}', '"{\\"z\\": 1}"', '"plain \\"q\\""', "{}", "{a}"]
)
def test_backend_config_agrees_with_xla(text: str) -> None:
    read = parse_backend_config(text)
    assert read.to_text() == on_add("backend_config", text)
    assert parse_backend_config(read.to_text()) == read


def test_backend_config_view() -> None:
    assert parse_backend_config('{"a":{"b":[1,2]}}').json() == {"a": {"b": [1, 2]}}
    assert BackendConfig.of_json({"a": 1}).to_text() == '{"a":1}'
    for bad in ('"plain"', "{a}", '{"a":' + "[" * 100_000 + "}", '{"a":' + "1" * 9999):
        with pytest.raises(ParseError):
            parse_backend_config(bad if bad.endswith(("}", '"')) else bad + "}").json()


def test_stack_frames_agree_with_xla() -> None:
    printed = xla_prints(
        f"HloModule m\n{TABLES}\nENTRY e {{ ROOT q = f32[] parameter(0), "
        'metadata={op_name="x" stack_frame_id=2} }\n'
    )
    read = parse_stack_frames(TABLES)
    assert read.to_text() == TABLES
    assert TABLES in printed
    assert [(f.file_name, f.line) for f in read.chain(2)] == [
        ("bé.py", 11),
        ("model.py", 10),
    ]
    assert read.chain(0) == read.chain(3) == ()
    assert parse_stack_frames(" ") == StackFrames()


def test_stack_frame_cycle_ends() -> None:
    text = TABLES.replace("parent_frame_id=1}", "parent_frame_id=3}")
    assert len(parse_stack_frames(text).chain(2)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "FileNames",
        TABLES.replace("line=10 ", ""),
        TABLES.replace("line=10 ", "line=10 line=10 "),
        TABLES.replace("StackFrames", "Frames"),
        TABLES + " x",
        TABLES.replace('"layer"', "layer"),
    ],
)
def test_stack_frame_errors(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_stack_frames(text)
    assert caught.value.code == "P254"
