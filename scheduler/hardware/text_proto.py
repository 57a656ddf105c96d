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

import re
from typing import Final, TypeAlias

from hlo_passes.errors import ParseError
from hlo_passes.source import SourceText

Scalar: TypeAlias = int | float | str | bool
Message: TypeAlias = "dict[str, list[Scalar | Message]]"

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
        found: Message = {}
        while not (self.kind == "mark" and self.token == closing):
            if self.kind == "end":
                if closing:
                    raise self.error(f"expected {closing!r} before the end")
                return found
            if self.kind != "name":
                raise self.error(f"expected the name of a field, found {self.token!r}")
            name = self.token
            self.advance()
            self.field(found.setdefault(name, []), depth)
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
    """The last message of that name; {} if there is none."""
    values = [v for v in message.get(name, ()) if isinstance(v, dict)]
    return values[-1] if values else {}


def submessages(message: Message, name: str) -> list[Message]:
    """All messages of that name."""
    return [v for v in message.get(name, ()) if isinstance(v, dict)]


def scalar(message: Message, name: str, default: Scalar) -> Scalar:
    """The last scalar of that name, `default` if there is none."""
    values = [v for v in message.get(name, ()) if not isinstance(v, dict)]
    return values[-1] if values else default


def integer(message: Message, name: str, default: int = 0) -> int:
    """The last integer of that name; a number in quotes counts."""
    value = scalar(message, name, default)
    return int(float(value)) if isinstance(value, float) else int(value)


def string(message: Message, name: str, default: str = "") -> str:
    """The last string of that name."""
    return str(scalar(message, name, default))
