"""Literals: reading, NumPy, and what XLA prints, for every element type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_passes.errors import ParseError, UnsupportedHloError
from hlo_passes.ir.element_types import integer_range, numpy_dtype
from hlo_passes.ir.literals import Literal, parse_literal, parse_shaped_literal
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import BITS, COMPLEX, FLOATING, INTEGRAL, array_shape
from tests.ir.xla_text import xla_literal

NARROW = sorted(t for t in FLOATING if BITS[t] <= 8)
NUMBERS = st.one_of(
    st.floats(-1e3, 1e3, width=32),
    st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e-3, 448.0]),
)


def as_xla(text: str) -> str:
    """As XLA prints what it cannot read back."""
    text = text.replace("5.8e-39", "5.9e-39")
    return text.replace("-0.0,", "-0,").replace("-0.0}", "-0}").replace("-0.0)", "-0)")


def read(text: str, shape: str) -> Literal:
    return parse_literal(text, parse_shape(shape))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("{1,2,3}", "s32[3]"),
        ("{,1,,2,}", "s32[2]"),
        ("{1 2}", "s32[2]"),
        ("{{1,2},{3,4}}", "f32[2,2]"),
        ("{{{1},{3}},{{5},{7}}}", "s32[2,2,1]"),
        ("{{{{1,2},{3,4}},{{5,6},{7,8}}}}", "s32[1,2,2,2]"),
        ("{{{{}},{{}}}}", "s32[1,2,1,0]"),
        ("{{}}", "s32[1,0,2,3]"),
        ("{}", "s32[0]"),
        ("{}", "s32[0,2]"),
        ("{{},{}}", "s32[2,0]"),
        ("/*a*/{1,/*b*/2}", "s32[2]"),
        ("true", "pred[]"),
        ("{true,0,7}", "pred[3]"),
        ("( 1, {2,3}, () )", "(s32[], f32[2], ())"),
        ("{(1,2),(3,-0.5)}", "c64[2]"),
        ("(1, inf)", "c128[]"),
        ("-1", "u64[]"),
        ("18446744073709551615", "s32[]"),
        ("9223372036854775808", "s64[]"),
        ("18446744073709551615", "f32[]"),
        ("-0", "f32[]"),
        ("{-0, 0, -0.0}", "f32[3]"),
        ("3.40282352e38", "f32[]"),
        ("1e-38", "f8e8m0fnu[]"),
        ("6e-39", "f8e8m0fnu[]"),
        ("65519", "f16[]"),
        ("0.3", "f8e8m0fnu[]"),
        ("1e-50", "f8e8m0fnu[]"),
        ("inf", "f4e2m1fn[]"),
        ("450", "f8e4m3fn[]"),
        ("-nan", "f8e4m3fn[]"),
        ("nan", "f8e4m3fnuz[]"),
        ("nan(0x400001)", "f32[]"),
        ("-nan(0x3)", "f8e5m2[]"),
        ("nan(0x1)", "f16[]"),
        ("nan(0x3f)", "bf16[]"),
        ("nan", "f64[]"),
        ("5.", "f32[]"),
        ("-.5", "f32[]"),
        ("-8", "s4[]"),
        ("1", "s2[]"),
        ("{1,2,3,4,5,6,7,8,9,10,11}", "s32[11]"),
    ],
)
def test_xla_prints_the_same(text: str, shape: str) -> None:
    literal = read(text, shape)
    assert as_xla(literal.to_text()) == xla_literal(text, shape)
    assert read(literal.to_text(), shape).to_text() == literal.to_text()


@pytest.mark.parametrize("element_type", sorted(INTEGRAL))
def test_integer_ranges(element_type: str) -> None:
    low, high = integer_range(element_type)
    text = f"{{{low}, 0, {high}}}"
    literal = read(text, f"{element_type}[3]")
    assert literal.to_text() == text == xla_literal(text, f"{element_type}[3]")
    assert [int(v) for v in literal.to_numpy()] == [low, 0, high]
    if BITS[element_type] < 64:
        for outside in (low - 1, high + 1):
            with pytest.raises(ParseError) as caught:
                read(str(outside), f"{element_type}[]")
            assert caught.value.code == "P241"


@pytest.mark.parametrize("element_type", [t for t in NARROW if t != "f8e8m0fnu"])
def test_every_value_of_a_narrow_type(element_type: str) -> None:
    bits = BITS[element_type]
    raw = np.arange(1 << bits, dtype=np.uint8)
    literal = Literal.from_numpy(raw.view(numpy_dtype(element_type)))
    text = literal.to_text()
    shape = f"{element_type}[{1 << bits}]"
    assert read(text, shape) == literal
    assert xla_literal(text, shape) == as_xla(text)


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from(sorted(FLOATING)))
@settings(max_examples=150)
def test_floats_agree_with_xla(numbers: list[float], element_type: str) -> None:
    if element_type == "f8e8m0fnu":
        numbers = [abs(v) or 1.0 for v in numbers]
    top = {"f4e2m1fn": 6.0, "f6e2m3fn": 7.5, "f8e3m4": 15.5, "f8e4m3b11fnuz": 30.0}
    limit = top.get(element_type, 28.0 if element_type == "f6e3m2fn" else 240.0)
    numbers = [max(-limit, min(limit, v)) for v in numbers]
    text = f"{{{', '.join(map(repr, numbers))}}}"
    shape = f"{element_type}[{len(numbers)}]"
    assert as_xla(read(text, shape).to_text()) == xla_literal(text, shape)


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=4))
def test_doubles_survive(numbers: list[float]) -> None:
    literal = Literal.from_numpy(np.array(numbers))
    text, shape = literal.to_text(), literal.shape.text
    assert as_xla(text) == xla_literal(text, shape)
    assert read(text, shape) == literal


@given(
    st.sampled_from(["f32", "s32", "pred", "bf16", "s4", "c64", "u8"]),
    st.lists(st.integers(0, 3), max_size=5),
)
def test_nesting_agrees_with_xla(element_type: str, dims: list[int]) -> None:
    count = int(np.prod(dims))
    values = (np.arange(count) % 2).reshape(dims)
    literal = Literal.from_numpy(
        values.astype(numpy_dtype(element_type)), array_shape(element_type, tuple(dims))
    )
    text = literal.to_text()
    assert xla_literal(text, literal.shape.text) == as_xla(text)
    assert read(text, literal.shape.text) == literal


def test_elided() -> None:
    literal = read("{...}", "f32[100]")
    assert literal.is_elided
    assert literal.to_text() == "{...}"
    assert literal != read("{...}", "f32[100]")
    with pytest.raises(UnsupportedHloError, match="left out"):
        literal.to_numpy()
    assert read("{1,2}", "s32[2]").to_text(elide=True) == "{1, 2}"
    eleven = f"{{{','.join('1' * 11)}}}"
    assert read(eleven, "s32[11]").to_text(elide=True) == "{...}"


def test_value_and_hash() -> None:
    assert read("{1,2}", "f32[2]") == read("{1.0, 2e0}", "f32[2]")
    assert hash(read("{1,2}", "f32[2]")) == hash(read("{1.0, 2e0}", "f32[2]"))
    assert read("0.0", "f32[]") != read("-0.0", "f32[]")
    assert read("nan", "f32[]") == read("nan", "f32[]")
    assert read("(1, (2))", "(s32[], (s32[]))") == read("(1, (2))", "(s32[], (s32[]))")
    with pytest.raises(ValueError, match="read-only"):
        read("{1,2}", "f32[2]").to_numpy()[0] = 5


def test_complex_keeps_its_imaginary_part_behind_a_nan() -> None:
    # XLA's reader overwrites it with the NaN.
    assert read("(nan, 1)", "c64[]").to_text() == "(nan, 1)"


@pytest.mark.parametrize("element_type", sorted(COMPLEX))
def test_complex_type(element_type: str) -> None:
    value = read("(1, -2)", f"{element_type}[]").to_numpy()
    assert value == 1 - 2j
    assert value.dtype == numpy_dtype(element_type)


def test_shaped() -> None:
    for text in (
        "s32[2]{0} {1, 2}",
        "f32[] 1.5",
        "( s32[] 1, f32[2]{0} {1, 2} )",
        "(  )",
    ):
        assert parse_shaped_literal(text).to_text() == text


@pytest.mark.parametrize(
    ("text", "shape", "code", "column"),
    [
        ("{1,2,3}", "s32[2]", "P240", 6),
        ("{1}", "s32[2]", "P240", 3),
        ("{{1,2,3},{4}}", "s32[2,2]", "P240", 7),
        ("{1,{2}}", "s32[2]", "P240", 4),
        ("1", "s32[1]", "P240", 1),
        ("{1", "s32[1]", "P240", 1),
        ("{1}}", "s32[1]", "P240", 4),
        ("1 2", "s32[]", "P240", 3),
        ("{1, foo}", "f32[2]", "P240", 5),
        ("{1, (2)}", "f32[2]", "P240", 5),
        ("300", "u8[]", "P241", 1),
        ("{1, 1e39}", "f32[2]", "P241", 5),
        ("1e400", "f64[]", "P241", 1),
        ("3.4028236e38", "f32[]", "P241", 1),
        ("18446744073709551616", "s64[]", "P241", 1),
        ("1" * 5000, "s64[]", "P241", 1),
        ("1" * 5000, "f32[]", "P241", 1),
        ("1.5", "s32[]", "P240", 1),
        ("true", "s32[]", "P240", 1),
        (".5", "f32[]", "P240", 1),
        ("+5", "f32[]", "P240", 1),
        ("1_0", "s32[]", "P240", 1),
        ("٣", "s32[]", "P240", 1),
        ("infinity", "f32[]", "P240", 1),
        ("0", "f8e8m0fnu[]", "P241", 1),
        ("nan(0x10)", "f8e4m3fn[]", "P241", 1),
        ("nan(0x0)", "f32[]", "P241", 1),
        ("{...}", "f32[]", "P240", 1),
        ("{{...}}", "f32[1,1]", "P240", 3),
        ("1", "c64[]", "P240", 1),
        ("(1, 2, 3)", "c64[]", "P240", 1),
        ("(1e39, 0)", "c64[]", "P241", 1),
        ("(1,2", "(s32[], s32[])", "P240", 5),
        ("(1)", "(s32[], s32[])", "P240", 3),
        ("{}", "s32[100000000000,0]", "P240", 2),
        ("token", "token[]", "P240", 1),
    ],
)
def test_error_place(text: str, shape: str, code: str, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        read(text, shape)
    assert (caught.value.code, caught.value.location.column) == (code, column)


def test_deep_tuples_do_not_recurse() -> None:
    depth = 200
    text = "(" * depth + "1" + ")" * depth
    literal = read(text, "(" * depth + "s32[]" + ")" * depth)
    assert literal.to_text().count("(") == depth


@pytest.mark.parametrize("element_type", ["f32", "s32", "bf16"])
def test_a_million_numbers_come_back(element_type: str) -> None:
    count = 1_000_000
    text = f"{{{', '.join(str(k % 97) for k in range(count))}}}"
    literal = read(text, f"{element_type}[{count}]")
    assert literal.to_text() == text
