"""Blanks, comments, words and names: the smallest pieces of the grammar."""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.shapes import PRIMITIVE_TYPES
from hlo_passes.source import SourceText

#: A comment. One that opens with `//` ends before any line end, a lone `\r` included;
#: a zero byte ends the text for XLA, so that no comment holds one.
COMMENT: Final = r"/\*[^*\0]*+\*++(?:[^*/\0][^*\0]*+\*++)*/|//[^\r\n\0]*+"
#: Blanks and comments. Each piece gives nothing back, and the pieces are told apart by
#: their first character: what follows a gap must begin with neither blank nor slash.
GAP: Final = rf"(?:[ \t\r\n]++|{COMMENT})*"
TRIVIA: Final = re.compile(GAP)

#: A name with or without `%`; group 1 is the name alone.
NAME: Final = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)")
WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

#: Words that are names only after a `%`.
RESERVED_WORDS: Final = PRIMITIVE_TYPES.union(
    (
        "true false inf nan HloModule ENTRY ROOT FileNames FunctionNames "
        "FileLocations StackFrames maximal replicated manual unknown unreduced "
        "last_tile_dim_replicate shard_as shard_like"
    ).split()
)


def error(
    source: SourceText, offset: int, code: str, message: str, hint: str = ""
) -> ParseError:
    """A ParseError at an offset of a source."""
    return ParseError(message, code=code, location=source.location(offset), hint=hint)


def skip_trivia(text: str, at: int) -> int:
    """Past blanks and comments. An unterminated comment is not skipped."""
    match = TRIVIA.match(text, at)
    return match.end() if match else at
