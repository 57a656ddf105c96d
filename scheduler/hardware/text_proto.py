"""Protocol buffers in text form, read into plain Python values.

    name: "NVIDIA B200"      {"name": ["NVIDIA B200"],
    caps { major: 10 }        "caps": [{"major": [10]}]}

Every field becomes a list, since any may be repeated. No schema is needed: an
identifier stays a string. It covers what GPU target descriptions, performance tables
and PGLE profiles use: scalars, strings, `{...}` and `<...>` messages, `[a, b]` lists,
comments.

Source of the grammar: protobuf's text format language specification.
"""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn, TypeAlias

from hlo_passes.errors import ParseError
from hlo_passes.source import SourceText

Scalar: TypeAlias = int | float | str | bool

_TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s+|\#[^\n]*)+)
      |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?f?))
      |(?P<name>-?[A-Za-z_][A-Za-z0-9_.]*)
      |(?P<mark>[{}<>\[\],:;])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b",
                          "f": "\f", "v": "\v"}  # fmt: skip
_CLOSING: Final = {"{": "}", "<": ">"}
_DEEPEST: Final = 100
#: The largest integer of any field is that of a uint64.
_MOST: Final = (1 << 64) - 1
#: Characters that are shown of a value that is refused.
_SHOWN_LETTERS: Final = 40


class Message(dict[str, "list[Scalar | Message]"]):
    """The values of each field by its name; it knows where they were read."""

    __slots__ = ("_places", "_source")

    def __init__(self, source: SourceText) -> None:
        """An empty message of a text."""
        super().__init__()
        self._source = source
        self._places: dict[str, int] = {}

    def values_read_at(self, name: str, offset: int) -> list[Scalar | Message]:
        """The list of a field's values, one more of which begins at an offset."""
        self._places[name] = offset
        return self.setdefault(name, [])

    def refuse(self, name: str, what: str) -> NoReturn:
        """Raise ParseError P400 at the last value of a field."""
        raise ParseError(
            what,
            code="P400",
            location=self._source.location(self._places.get(name, 0)),
        )

    def without_fields(self) -> Message:
        """An empty message of the same text."""
        return Message(self._source)


def parse_text_proto(text: str, filename: str = "<proto>") -> Message:
    """The message that `text` spells. Raises ParseError P400 at the fault."""
    reader = _Reader(text, filename)
    message = reader.message(closing="", depth=0)
    return message


class _Reader:
    def __init__(self, text: str, filename: str) -> None:
        self.source = SourceText(text, filename)
        self.text = text
        self.at = 0
        self.kind = ""
        self.token = ""
        self.start = 0
        self.advance()

    def advance(self) -> None:
        while True:
            self.start = self.at
            if self.at >= len(self.text):
                self.kind, self.token = "end", ""
                return
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                raise self.error(f"unexpected {self.text[self.at]!r}")
            self.at = match.end()
            if match.lastgroup != "space":
                self.kind, self.token = match.lastgroup or "", match[0]
                return

    def error(self, what: str) -> ParseError:
        return ParseError(
            what,
            code="P400",
            location=self.source.location(self.start),
            hint="text of a protocol buffer: `name: value` and `name { ... }`",
        )

    def message(self, closing: str, depth: int) -> Message:
        if depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} nested messages")
        found = Message(self.source)
        while not (self.kind == "mark" and self.token == closing):
            if self.kind == "end":
                if closing:
                    raise self.error(f"expected {closing!r} before the end")
                return found
            if self.kind != "name":
                raise self.error(f"expected the name of a field, found {self.token!r}")
            name, at = self.token, self.start
            self.advance()
            self.field(found.values_read_at(name, at), depth)
        self.advance()
        return found

    def field(self, values: list[Scalar | Message], depth: int) -> None:
        if self.token == ":" and self.kind == "mark":
            self.advance()
        if self.kind == "mark" and self.token == "[":
            self.advance()
            while not (self.kind == "mark" and self.token == "]"):
                values.append(self.value(depth))
                if self.kind == "mark" and self.token == ",":
                    self.advance()
                elif self.token != "]":
                    raise self.error("expected ',' or ']'")
            self.advance()
        else:
            values.append(self.value(depth))
        if self.kind == "mark" and self.token in ",;":
            self.advance()

    def value(self, depth: int) -> Scalar | Message:
        token, kind = self.token, self.kind
        if kind == "mark" and token in _CLOSING:
            self.advance()
            return self.message(_CLOSING[token], depth + 1)
        if kind == "string":
            parts = []
            while self.kind == "string":
                parts.append(_unescape(self.token[1:-1]))
                self.advance()
            return "".join(parts)
        if kind == "number":
            self.advance()
            return _number(token)
        if kind == "name":
            self.advance()
            return {"true": True, "false": False}.get(token, token)
        raise self.error(f"expected a value, found {token!r}")


def _number(token: str) -> int | float:
    if token.lstrip("-")[:2].lower() == "0x":
        return int(token, 16)
    try:
        return int(token)
    except ValueError:
        return float(token.rstrip("f"))


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 8))
        if match[2]:
            return chr(int(match[2], 16))
        return _SIMPLE_ESCAPES.get(match[3], match[3])

    return _ESCAPE.sub(plain, text)


# -- typed access --------------------------------------------------------------


def submessage(message: Message, name: str) -> Message:
    """The last message of that name; an empty one if there is none."""
    values = submessages(message, name)
    return values[-1] if values else message.without_fields()


def submessages(message: Message, name: str) -> list[Message]:
    """All messages of that name."""
    return [v for v in message.get(name, ()) if isinstance(v, Message)]


def scalar(message: Message, name: str, default: Scalar) -> Scalar:
    """The last scalar of that name, `default` if there is none."""
    values = [v for v in message.get(name, ()) if not isinstance(v, Message)]
    return values[-1] if values else default


def integer(message: Message, name: str, default: int = 0) -> int:
    """The last integer of that name; a number in quotes counts, and so does 3e12.

    Raises ParseError P400 for a value that is no number, not a whole one (`0.5`), or
    not one of 64 bits.
    """
    value = scalar(message, name, default)
    try:
        found = int(value)
    except (ValueError, OverflowError):  # a word, NaN or infinity
        _refuse_number(message, name, value)
    if isinstance(value, float) and found != value:
        message.refuse(name, f"{name} is {value!r}, not a whole number")
    if abs(found) > _MOST:
        _refuse_number(message, name, value)
    return found


def number(message: Message, name: str, default: float = 0.0) -> float:
    """The last number of that name. Raises ParseError P400 for one that is not finite.

    Text in quotes is not a number here.
    """
    value = scalar(message, name, default)
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        _refuse_number(message, name, value)
    return found


def integers(message: Message, name: str) -> tuple[int, ...]:
    """All integers of that name; values of other types are left out."""
    found = tuple(v for v in message.get(name, ()) if type(v) is int)
    for value in found:
        if abs(value) > _MOST:
            _refuse_number(message, name, value)
    return found


def _refuse_number(message: Message, name: str, value: Scalar) -> NoReturn:
    shown = "a longer number" if type(value) is int else repr(value)[:_SHOWN_LETTERS]
    message.refuse(name, f"{name} is {shown}, not a finite number of 64 bits")


def string(message: Message, name: str, default: str = "") -> str:
    """The last string of that name."""
    return str(scalar(message, name, default))
