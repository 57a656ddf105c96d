"""Blanks, comments, words and names: the smallest pieces of the grammar."""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.shapes import PRIMITIVE_TYPES
from hlo_passes.source import SourceText

#: Blanks and comments.
TRIVIA: Final = re.compile(r"(?:[ \t\r\n]+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)

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
