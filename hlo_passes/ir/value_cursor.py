"""A position in the text of one attribute value, and the tokens that can occur there.

    cursor = ValueCursor("{{0,1}}", "P210")
    cursor.expect("{") ... cursor.integer() ... cursor.end()

Blanks and comments between tokens are skipped. Every failure is a ParseError with the
code of the value's kind, at the offending character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from hlo_passes.errors import ParseError
from hlo_passes.ir.c_strings import QUOTED, EscapeError, unescape
from hlo_passes.ir.lexical import TRIVIA
from hlo_passes.ir.shape_parser import read_shape
from hlo_passes.ir.shapes import Shape
from hlo_passes.source import SourceText
from hlo_passes.whole_numbers import number_of_digits

#: Where a blank or a comment may start; most tokens have nothing between them.
_TRIVIA_STARTS: Final = " \t\r\n/"
_INTEGER: Final = re.compile(r"-?[0-9]+")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NUMBER: Final = re.compile(
    r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-?inf|-?nan"
)
_JSON_STOP: Final = re.compile(r'[{}"]')
_JSON_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


T = TypeVar("T")


class ValueCursor:
    """Reads one value from the front; see the module's docstring."""

    __slots__ = ("at", "code", "source", "text")

    def __init__(
        self, text: str, code: str, source: SourceText | None = None, at: int = 0
    ) -> None:
        """Start at offset `at`; `code` is that of all errors raised here."""
        self.text = text
        self.code = code
        self.source = source or SourceText(text, "<attribute>")
        self.at = at

    # -- failing ------------------------------------------------------------

    def fail(self, message: str, *, at: int | None = None, hint: str = "") -> NoReturn:
        """Raise a ParseError at the next token, or at `at`."""
        if at is None:
            at = self.skip()
        raise self.error(message, at=at, hint=hint)

    def error(self, message: str, *, at: int, hint: str = "") -> ParseError:
        """A ParseError at an offset, not raised."""
        return ParseError(
            message, code=self.code, location=self.source.location(at), hint=hint
        )

    # -- looking ------------------------------------------------------------

    def skip(self) -> int:
        """Move past blanks and comments; returns the offset of the next token."""
        at = self.at
        if self.text[at : at + 1] in _TRIVIA_STARTS:
            match = TRIVIA.match(self.text, at)
            if match:
                self.at = at = match.end()
        return at

    def sees(self, token: str) -> bool:
        """Whether the next characters are `token`."""
        return self.text.startswith(token, self.skip())

    def peek(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of a pattern at the next token, without moving."""
        return pattern.match(self.text, self.skip())

    def done(self) -> bool:
        """Whether nothing is left."""
        return self.skip() >= len(self.text)

    # -- moving -------------------------------------------------------------

    def eat(self, token: str) -> bool:
        """Move past `token` if it is next."""
        if self.sees(token):
            self.at += len(token)
            return True
        return False

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move past a pattern if it is next."""
        match = self.peek(pattern)
        if match:
            self.at = match.end()
        return match

    def expect(self, token: str, where: str = "") -> None:
        """Move past `token`, which must be next."""
        if not self.eat(token):
            self.fail(f"expected '{token}'{f' {where}' if where else ''}")

    def end(self) -> None:
        """Raise a ParseError unless everything is read."""
        if not self.done():
            self.fail("unexpected text after the value")

    def integer(self, what: str = "an integer") -> int:
        """A 64-bit integer; XLA wraps 2**63..2**64-1 to negative values."""
        at = self.skip()
        match = self.take(_INTEGER)
        if not match:
            self.fail(f"expected {what}")
        value = number_of_digits(match[0])
        if not -(1 << 63) <= value < 1 << 64:
            self.fail("this integer does not fit 64 bits", at=at)
        return value if value < 1 << 63 else value - (1 << 64)

    def number(self) -> float:
        """A decimal or integer number, `inf`, `-inf` or `nan`."""
        at = self.skip()
        match = self.take(_NUMBER)
        if not match:
            self.fail("expected a number")
        value = float(match[0])
        if value in (float("inf"), -float("inf")) and "inf" not in match[0]:
            self.fail("this number does not fit a double", at=at)
        return value

    def boolean(self) -> bool:
        """`true` or `false`."""
        match = self.peek(_WORD)
        if not match or match[0] not in ("true", "false"):
            self.fail("expected true or false")
        self.at = match.end()
        return match[0] == "true"

    def word(self, what: str = "a word") -> str:
        """An identifier."""
        match = self.take(_WORD)
        if not match:
            self.fail(f"expected {what}")
        return match[0]

    def name(self) -> str:
        """An identifier, with or without a leading `%`; the result is without it."""
        if self.sees("%"):
            self.at += 1
            if not _WORD.match(self.text, self.at):
                self.fail("expected a name directly after '%'", at=self.at)
        return self.word("a name")

    def attribute_name(self, what: str = "an attribute") -> str:
        """An identifier directly followed by `=`; the result is without it."""
        match = self.peek(_WORD)
        if not match or not self.text.startswith("=", match.end()):
            self.fail(f"expected {what}", hint="'=' must follow the name directly")
        self.at = match.end() + 1
        return match[0]

    def string(self) -> str:
        """A quoted string, decoded."""
        at = self.skip()
        match = self.take(QUOTED)
        if not match:
            if self.sees('"') or self.sees("'"):
                self.fail("this string is not closed")
            self.fail("expected a string in quotes")
        try:
            return unescape(match[0][1:-1])
        except EscapeError as problem:
            self.fail(str(problem), at=at + 1 + problem.offset)

    def json_dict(self) -> str:
        """The bare text from `{` to its matching `}`; only quotes are understood."""
        start = self.skip()
        end = json_dict_end(self.text, start)
        if end < 0:
            self.fail("this JSON dict is not closed" if self.sees("{") else
                      "expected a JSON dict", at=start)  # fmt: skip
        self.at = end
        return self.text[start:end]

    def shape(self) -> Shape:
        """A shape (its own codes P010-P014)."""
        shape, self.at = read_shape(self.source, self.skip())
        return shape

    def items(self, opener: str, closer: str, read: Callable[[], T]) -> list[T]:
        """`opener item, item closer`, possibly empty."""
        self.expect(opener)
        found: list[T] = []
        if self.eat(closer):
            return found
        while True:
            found.append(read())
            if not self.eat(","):
                break
        self.expect(closer, "at the end of the list")
        return found

    def integers(self, opener: str = "{", closer: str = "}") -> tuple[int, ...]:
        """`{1,2}`."""
        return tuple(self.items(opener, closer, self.integer))

    def integer_lists(self) -> tuple[tuple[int, ...], ...]:
        """`{{0,1},{1,0}}`."""
        return tuple(self.items("{", "}", self.integers))


def json_dict_end(text: str, start: int) -> int:
    """Where the JSON dict that opens at `start` ends; -1 when it does not."""
    if not text.startswith("{", start):
        return -1
    depth, at = 1, start + 1
    while depth:
        match = _JSON_STOP.search(text, at)
        if not match:
            return -1
        if match[0] == '"':
            string = _JSON_STRING.match(text, match.start())
            if not string:
                return -1
            at = string.end()
            continue
        depth += 1 if match[0] == "{" else -1
        at = match.end()
    return at


def is_json_dict(text: str) -> bool:
    """Whether XLA prints this text bare: a JSON dict and nothing but blanks around."""
    start = TRIVIA.match(text)
    end = json_dict_end(text, start.end() if start else 0)
    if end < 0:
        return False
    rest = TRIVIA.match(text, end)
    return (rest.end() if rest else end) == len(text)
