"""Error messages, whole: place, code, line, caret, help."""

from __future__ import annotations

import pickle
import re
import time

import pytest

import hlo_passes
from hlo_passes.source import SourceText
from hlo_passes.text.reader import parse_completely

HEAD = (
    "HloModule m\n\nENTRY %e (a: f32[8]) -> f32[8] {\n  %a = f32[8]{0} parameter(0)\n"
)

CASES = {
    "undefined operand": (
        HEAD + "  ROOT %r = f32[8]{0} add(%a, %b)\n}\n",
        "m.hlo:5:31: error[P004]: %b is not defined\n"
        "  ROOT %r = f32[8]{0} add(%a, %b)\n"
        "                              ^\n"
        "  help: an operand is defined before it is used, in the same computation",
    ),
    "near name": (
        HEAD + "  %bcd = f32[8]{0} negate(%a)\n  ROOT %r = f32[8]{0} negate(%bce)\n}\n",
        "m.hlo:6:30: error[P004]: %bce is not defined\n"
        "  ROOT %r = f32[8]{0} negate(%bce)\n"
        "                             ^\n"
        "  help: did you mean %bcd?",
    ),
    "an element that the dump leaves out": (
        HEAD
        + "  %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %a)\n"
        + "  %b = f32[8]{0} negate(%t#0)\n"
        + "  ROOT %r = f32[8]{0} negate(%a), control-predecessors={%get-tuple-element}\n"
        + "}\n",
        "m.hlo:7:56: error[P004]: control predecessor %get-tuple-element is not "
        "defined\n"
        "  ROOT %r = f32[8]{0} negate(%a), control-predecessors={%get-tuple-element}\n"
        "                                                       ^\n"
        "  help: this dump leaves out get-tuple-elements that XLA refers to by name: "
        "make it with XLA_FLAGS=--xla_dump_compact_gte=false, or read the dumped proto "
        "(.pb)",
    ),
    "no shape": (
        HEAD + "  ROOT %r = add %a\n}\n",
        "m.hlo:5:13: error[P010]: expected a shape after '=', found 'add'\n"
        "  ROOT %r = add %a\n"
        "            ^",
    ),
    "duplicate name": (
        HEAD + "  ROOT %a = f32[8]{0} negate(%a)\n}\n",
        "m.hlo:5:3: error[P027]: instruction %a is defined already\n"
        "  ROOT %a = f32[8]{0} negate(%a)\n"
        "  ^\n"
        "  help: the first is in line 4",
    ),
    "two roots": (
        HEAD
        + "  ROOT %b = f32[8]{0} negate(%a)\n  ROOT %c = f32[8]{0} negate(%a)\n}\n",
        "m.hlo:6:3: error[P028]: a second ROOT\n"
        "  ROOT %c = f32[8]{0} negate(%a)\n"
        "  ^\n"
        "  help: the first is %b",
    ),
    "type as name": (
        HEAD + "  ROOT %c64 = f32[8]{0} negate(%a)\n}\n",
        "m.hlo:5:8: error[P027]: c64 is an element type and cannot be a name\n"
        "  ROOT %c64 = f32[8]{0} negate(%a)\n"
        "       ^\n"
        "  help: write c64_",
    ),
    "type as a computation's name": (
        "HloModule m\n\nENTRY c64 {\n  p = f32[8] parameter(0)\n}\n",
        "m.hlo:3:7: error[P021]: expected a computation\n"
        "  ENTRY c64 {\n"
        "        ^\n"
        "  help: c64 is an element type: write %c64",
    ),
    "type as a module's name": (
        "HloModule f32" + HEAD.removeprefix("HloModule m"),
        "m.hlo:1:11: error[P002]: expected the module's name\n"
        "  HloModule f32\n"
        "            ^",
    ),
    "reserved word as an operand": (
        HEAD
        + "  %true = f32[8]{0} negate(%a)\n  ROOT %r = f32[8]{0} negate(true)\n}\n",
        "m.hlo:6:30: error[P004]: expected an operand, as in %a\n"
        "  ROOT %r = f32[8]{0} negate(true)\n"
        "                             ^",
    ),
    "not closed": (
        HEAD,
        "m.hlo:5:1: error[P023]: the computation is not closed\n"
        "  help: it begins at line 3, column 32",
    ),
    "empty": ("", "m.hlo:1:1: error[P001]: this text has no module"),
    "no hlo": (
        "import numpy\n",
        "m.hlo:1:1: error[P001]: this is not HLO\n"
        "  import numpy\n"
        "  ^\n"
        "  help: a module begins with  HloModule name  or with a computation",
    ),
    "repeated attribute": (
        HEAD + "  ROOT %r = f32[8]{0} all-gather(%a), channel_id=1 , channel_id=2\n}\n",
        "m.hlo:5:54: error[P031]: attribute channel_id is repeated\n"
        "  ROOT %r = f32[8]{0} all-gather(%a), channel_id=1 , channel_id=2\n"
        "                                                     ^",
    ),
    "unclosed string": (
        HEAD + '  ROOT %r = f32[8]{0} negate(%a), metadata={op_name="x}\n}\n',
        "m.hlo:5:53: error[P033]: this string is not closed\n"
        '  ROOT %r = f32[8]{0} negate(%a), metadata={op_name="x}\n'
        "                                                    ^",
    ),
    # A comment that some later text closes would hide what is between.
    "unclosed comment": (
        HEAD + '  ROOT %r = f32[8]{0} negate(%a), metadata={/*op_name="x"}\n}\n',
        "m.hlo:5:45: error[P033]: this comment is not closed\n"
        '  ROOT %r = f32[8]{0} negate(%a), metadata={/*op_name="x"}\n'
        "                                            ^",
    ),
    "unclosed comment in a table": (
        "HloModule m\n\nStackFrames\n1 {f/*ile_location_id=1 parent_frame_id=1}\n\n"
        "ENTRY %e {\n  ROOT %p = f32[8]{0} parameter(0)\n}\n",
        "m.hlo:4:5: error[P033]: this comment is not closed\n"
        "  1 {f/*ile_location_id=1 parent_frame_id=1}\n"
        "      ^",
    ),
}


def read_all(text: str, *, filename: str) -> None:
    """Read a module and split every attribute list, which `parse` leaves for later."""
    module = hlo_passes.parse(text, filename=filename)
    for computation in module.computations:
        for instruction in computation.instructions:
            assert instruction.attributes is not None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_error_text(case: str) -> None:
    text, expected = CASES[case]
    for read in (read_all, parse_completely):
        with pytest.raises(hlo_passes.HloError) as caught:
            read(text, filename="m.hlo")
        assert caught.value.render() == expected


def test_error_pickles() -> None:
    with pytest.raises(hlo_passes.HloError) as caught:
        hlo_passes.parse(HEAD, filename="m.hlo")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert again.render() == caught.value.render()


@pytest.mark.parametrize("bracket", ["(", "{", "["])
@pytest.mark.parametrize(
    "place",
    [
        "%r = {}",
        "%r = f32[8] add({}",
        "%r = f32[8] negate(%a), x={}",
        "%c = f32[1] constant({}",
    ],
)
def test_error_deep_nesting(bracket: str, place: str) -> None:
    text = HEAD + "  " + place.format(bracket * 100_000) + "\n}\n"
    with pytest.raises(hlo_passes.HloError):
        read_all(text, filename="m.hlo")


def test_error_in_a_very_long_line_stays_readable() -> None:
    text = HEAD + "  ROOT %r = f32[8]{0} add(" + "%a, " * 500_000 + "%b)\n}\n"
    with pytest.raises(hlo_passes.HloError) as caught:
        hlo_passes.parse(text, filename="m.hlo")
    assert "%b is not defined" in caught.value.render()
    assert len(caught.value.render()) < 400


@pytest.mark.parametrize("value", [b"HloModule m", None])
def test_parse_says_what_it_takes(value: object) -> None:
    with pytest.raises(TypeError, match=r"Module\.from_proto"):
        hlo_passes.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "a", "a\n", "\n\n", "a\r\nb\r\n", "a\rb\n\rc\r", "\r\n\r\n", "x\n\r\ny"],
)
def test_an_excerpt_is_its_line_without_its_end(text: str) -> None:
    lines = re.split("\r\n|\r|\n", text)
    source = SourceText(text)
    found = [source.location_in_line(k + 1, 1).excerpt for k in range(len(lines))]
    assert found == lines


def test_places_in_one_long_line_take_no_time() -> None:
    """Twenty seconds, if every place reads the line to its end."""
    source = SourceText("ab " * 1_000_000 + "\nend")
    begun = time.process_time()
    for column in range(1, 2001):
        assert source.location_in_line(1, column).line == 1
    assert time.process_time() - begun < 2
