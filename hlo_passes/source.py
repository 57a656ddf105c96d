"""Source text with positions: offset -> line and column, and the excerpt with a caret.

m.hlo:3:15: error[P004]: %b is not defined
  ROOT %r = f32[8] add(%a, %b)
                           ^
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

# An excerpt of a source line is cut to this many characters around the caret, so
# that an error in a 200 MB line stays readable.
EXCERPT_CHARACTERS = 160

#: A `\r` without a `\n` after it, which ends a line too, and any end of a line.
LONE_RETURN: Final = re.compile(r"\r(?!\n)")
_LINE_END: Final = re.compile(r"\r\n?|\n")


def printable(text: str) -> str:
    """The text with `?` for what a terminal might obey; line ends and tabs stay.

    Names of files and of instructions come from others.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a text: 1-based line and column, with the (cut) source line."""

    filename: str
    line: int
    column: int
    excerpt: str = ""
    caret: int = 0

    def __str__(self) -> str:
        """FILE:LINE:COLUMN."""
        return f"{self.filename}:{self.line}:{self.column}"


class SourceText:
    """A named text; line starts are found once, when a position is first asked for."""

    __slots__ = ("_line_starts", "filename", "text")

    def __init__(self, text: str, filename: str = "<hlo>") -> None:
        """Keep `text`; `filename` appears in messages only."""
        self.text = text
        self.filename = filename
        self._line_starts: list[int] | None = None

    def _starts(self) -> list[int]:
        if self._line_starts is None:
            if "\r" in self.text and LONE_RETURN.search(self.text):
                ends = _LINE_END.finditer(self.text)
                self._line_starts = [0, *(match.end() for match in ends)]
            else:
                lengths = map(len, self.text.split("\n"))
                starts = accumulate((n + 1 for n in lengths), initial=0)
                self._line_starts = list(starts)
                self._line_starts.pop()
        return self._line_starts

    def location(self, offset: int) -> Location:
        """The place of the character at `offset` (clamped to the text)."""
        offset = max(0, min(offset, len(self.text)))
        starts = self._starts()
        index = bisect_right(starts, offset) - 1
        return self._excerpt(index, offset - starts[index])

    def location_in_line(self, line: int, column: int) -> Location:
        """The place at 1-based `line` and `column`."""
        starts = self._starts()
        index = max(0, min(line - 1, len(starts) - 1))
        return self._excerpt(index, max(0, column - 1))

    def offset_of_line(self, line: int) -> int:
        """Offset of the first character of 1-based `line`."""
        starts = self._starts()
        return starts[max(0, min(line - 1, len(starts) - 1))]

    def line_of_offset(self, offset: int) -> int:
        """1-based line of the character at `offset`."""
        return bisect_right(self._starts(), offset)

    def _excerpt(self, index: int, within: int) -> Location:
        starts = self._starts()
        start, end = starts[index], len(self.text)
        if index + 1 < len(starts):
            end = starts[index + 1] - 1
            end -= end > start and self.text[end - 1 : end + 1] == "\r\n"
        first, last = start, end
        if end - start > EXCERPT_CHARACTERS:
            first = max(start, start + within - EXCERPT_CHARACTERS // 2)
            last = min(end, first + EXCERPT_CHARACTERS)
        shown = self.text[first:last].replace("\r", " ").replace("\t", " ")
        shown = printable(shown)
        caret = start + within - first
        indent = len(shown) - len(shown.lstrip(" ")) if first == start else 0
        indent = min(indent, caret)
        return Location(
            self.filename, index + 1, within + 1, shown[indent:], caret - indent
        )
