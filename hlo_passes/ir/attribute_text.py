"""Splits the text after the operands: `, name=value, name=value`.

A value is kept as text. It ends where everything balances: braces, brackets and
parentheses are closed, strings and comments skipped; then comes a `,`, the closing
brace of what is around it, or the next instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from hlo_passes.ir.lexical import error, skip_trivia
from hlo_passes.source import SourceText

#: The inside of a JSON list or dict with strings; at most two more are nested in it.
_FLAT = r"""[^][{}()"'/]*+(?:"[^"\\]*+"[^][{}()"'/]*+)*"""
_ONE_DEEP = rf"{_FLAT}(?:(?:\{{{_FLAT}\}}|\[{_FLAT}\]){_FLAT})*"
_TWO_DEEP = rf"{_FLAT}(?:(?:\{{{_ONE_DEEP}\}}|\[{_ONE_DEEP}\]){_FLAT})*"
#: `'x'`, `'x'=8`: axes of a mesh, and a mesh.
_AXES = r"'[A-Za-z0-9_]+'(?:,'[A-Za-z0-9_]+')*"
_MESH = r"'[A-Za-z0-9_]+'=[0-9]+(?:,'[A-Za-z0-9_]+'=[0-9]+)*"
#: `, name=value` for the values that most instructions have.
_SIMPLE = re.compile(
    rf""",\ ([A-Za-z_][A-Za-z0-9_.-]*)=(
        [^ \t\r\n,{{}}"'\[\]()/]+(?:\[[0-9,]*\](?:\{{[0-9,]*\}})?)?
      | \{{(?="){_TWO_DEEP}\}}
      | \{{{_FLAT}\}}
      | \{{(?:\{{[^][{{}}()"'/]*\}}[,\ ]*)+\}}
      | \{{\[[0-9:]*\](?:,\ \[[0-9:]*\])*\}}
      | "[^"\\]*"
      | mesh\[{_MESH}\]\ \{{{_AXES}\}}
    )(?=,\ |$)""",
    re.VERBOSE,
)
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_STOP_IN_GROUP = re.compile(r"[][(){}\"'/]")
_PLAIN = re.compile(r"[^][(){}\"'/, \t\r\n]+")
_INSTRUCTION = re.compile(
    r"(?:ROOT\b|ENTRY\b|%|[A-Za-z_][A-Za-z0-9_.-]*[ \t\r\n]*[={(:])"
)
#: Most attribute texts occur many times, and close together.
_REMEMBERED_TAILS = 4096
_CLOSER = {"{": "}", "[": "]", "(": ")"}


def split_attributes(tail: str) -> Mapping[str, str]:
    """Attribute texts by name, from all that follows an instruction's operands.

    Control predecessors are edges, not attributes, and left out. Equal texts share one
    answer, which must not be changed.

    Raises ParseError P030-P033 at a column of `tail`.
    """
    found = _split_simple(tail)
    if found is None:
        found = {}
        source = SourceText(tail, "<attributes>")
        at = read_attributes(source, 0, found)
        if at < len(tail):
            raise error(source, at, "P030", "expected ',' and an attribute")
        found.pop("control-predecessors", None)
    return found


@lru_cache(maxsize=_REMEMBERED_TAILS)
def _split_simple(tail: str) -> dict[str, str] | None:
    """The answer of `split_attributes` if all values are simple, otherwise None."""
    found: dict[str, str] = {}
    at, end = 0, len(tail)
    match_simple = _SIMPLE.match
    while at < end:
        match = match_simple(tail, at)
        if match is None or match[1] in found:
            return None
        found[match[1]] = match[2]
        at = match.end()
    found.pop("control-predecessors", None)
    return found


def read_attributes(source: SourceText, at: int, found: dict[str, str]) -> int:
    """Read `, name=value` as often as it occurs; returns the offset after it.

    Raises ParseError P030 (no name), P031 (repeated), P032 (no value), P033 (not
    closed).
    """
    text = source.text
    while True:
        comma = skip_trivia(text, at)
        if not text.startswith(",", comma):
            return at
        name_at = skip_trivia(text, comma + 1)
        match = _NAME.match(text, name_at)
        if not match:
            raise error(
                source, name_at, "P030", "expected an attribute, as in channel_id=1",
                "'=' must follow the name directly",
            )  # fmt: skip
        name = match[1]
        if name in found:
            raise error(source, name_at, "P031", f"attribute {name} is repeated")
        start = skip_trivia(text, match.end())
        at = read_value(source, start, name)
        found[name] = text[start:at]


def read_value(source: SourceText, start: int, name: str) -> int:
    """The offset at which the attribute value that starts at `start` ends."""
    text = source.text
    at, size = start, len(text)
    end = start
    while at < size:
        character = text[at]
        if character in "\"'":
            end = at = skip_string(source, at)
        elif character in _CLOSER:
            end = at = skip_group(source, at)
        elif character in ",)]}":
            if (
                character == ","
                and text.startswith("mesh[", start)
                and text.startswith("device_ids=", skip_trivia(text, at + 1))
            ):
                at += 1
                end = at
                continue
            break
        elif character.isspace() or character == "/":
            following = skip_trivia(text, at)
            if following == at:
                raise error(source, at, "P032", f"unexpected '{character}'")
            at = following
            if at < size and end > start and not _continues(text, at, name):
                break
        else:
            match = _PLAIN.match(text, at)
            if not match:
                raise error(source, at, "P032", f"unexpected {character!r}")
            end = at = match.end()
    if end == start:
        raise error(source, start, "P032", f"attribute {name} has no value")
    return end


def _continues(text: str, at: int, name: str) -> bool:
    """Whether a value continues after a blank (mesh groups, literal=shape value)."""
    if text[at] in "{[(<":
        return True
    if name == "literal":
        return not _INSTRUCTION.match(text, at) and text[at] not in "})]"
    return text.startswith("device_ids=", at)


def skip_string(source: SourceText, at: int) -> int:
    """The offset after the string that opens at `at`; P033 if it never closes."""
    match = _STRING.match(source.text, at)
    if not match:
        raise error(source, at, "P033", "this string is not closed")
    return match.end()


def skip_group(source: SourceText, at: int) -> int:
    """The offset after the bracketed group that opens at `at`; P033 if unclosed."""
    text = source.text
    search = _STOP_IN_GROUP.search
    is_json = text.startswith('{"', at)  # no comments; only its own braces count
    stack: list[tuple[str, int]] = [(_CLOSER[text[at]], at)]
    position = at + 1
    while stack:
        match = search(text, position)
        if not match:
            closer, opened = stack[-1]
            raise error(source, opened, "P033", f"no '{closer}' closes this")
        position = match.start()
        character = match[0]
        if character in _CLOSER:
            stack.append((_CLOSER[character], position))
            position += 1
        elif character in "\"'":
            position = skip_string(source, position)
        elif character == "/":
            following = position if is_json else skip_trivia(text, position)
            if following > position:
                position = following
            elif text.startswith("/*", position) and not is_json:
                raise error(source, position, "P033", "this comment is not closed")
            else:
                position += 1
        elif character == stack[-1][0]:
            stack.pop()
            position += 1
        elif is_json:
            position += 1
        else:
            closer, opened = stack[-1]
            place = source.location(opened)
            raise error(
                source, position, "P033", f"expected '{closer}', found '{character}'",
                f"the group opens at line {place.line}, column {place.column}",
            )  # fmt: skip
    return position
