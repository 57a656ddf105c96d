r"""Quoted strings: C escapes, read and written as XLA does.

    "a \"b\" \303\251"   <->   a "b" é

A Python string holds the UTF-8 text; bytes that are not UTF-8 become lone surrogates
(`surrogateescape`), so that every string survives the round trip. Source of the rules:
`absl::CEscape` and `absl::CUnescape`.
"""

from __future__ import annotations

import re
from typing import Final

#: A whole quoted string. A backslash takes the next character, but not a line end.
QUOTED: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"' r"|'[^'\\]*(?:\\.[^'\\]*)*'")

_NAMED_TO_BYTE: Final = {
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t",
    "v": b"\v", "\\": b"\\", "?": b"?", "'": b"'", '"': b'"',
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"""\\(?:([0-7]{1,3})
          | [xX]([0-9a-fA-F]+)
          | u([0-9a-fA-F]{4})
          | U([0-9a-fA-F]{8})
          | (.)
          | $)""",
    re.VERBOSE | re.DOTALL,
)
_BYTE_TO_TEXT: Final = {
    **{b: f"\\{b:03o}" for b in range(256)},
    **{b: chr(b) for b in range(0x20, 0x7F)},
    ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t",
    ord('"'): '\\"', ord("'"): "\\'", ord("\\"): "\\\\",
}  # fmt: skip
_PLAIN: Final = re.compile(r"[ !#-&(-\[\]-~]*")


class EscapeError(ValueError):
    """A bad escape; `offset` is the place of its backslash in the raw text."""

    def __init__(self, message: str, offset: int) -> None:
        """Keep the place."""
        super().__init__(message)
        self.offset = offset


def escape(value: str) -> str:
    """The text between the quotes for a value; every non-ASCII byte in octal."""
    if _PLAIN.fullmatch(value):
        return value
    return "".join(map(_BYTE_TO_TEXT.__getitem__, _to_bytes(value)))


def quote(value: str) -> str:
    """The value in double quotes, as XLA writes it."""
    return f'"{escape(value)}"'


def unescape(raw: str) -> str:
    """The value of the text between quotes. Raises EscapeError."""
    if "\\" not in raw:
        return raw
    pieces: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(raw):
        pieces.append(_to_bytes(raw[at : match.start()]))
        pieces.append(_escaped_bytes(match))
        at = match.end()
    pieces.append(_to_bytes(raw[at:]))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def _to_bytes(value: str) -> bytes:
    # A surrogate that does not represent a byte can only come from Python code.
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _escaped_bytes(match: re.Match[str]) -> bytes:
    octal, hexadecimal, short, long, named = match.groups()
    if octal or hexadecimal:
        digits, base = (octal, 8) if octal else (hexadecimal.lstrip("0") or "0", 16)
        value = int(digits, base) if len(digits) <= 3 else 256
        if value > 255:
            raise EscapeError("this escape is larger than one byte", match.start())
        return bytes([value])
    if short or long:
        value = int(short or long, 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise EscapeError("this escape is not a Unicode character", match.start())
        return chr(value).encode()
    if named is None or named not in _NAMED_TO_BYTE:
        raise EscapeError("unknown escape in a string", match.start())
    return _NAMED_TO_BYTE[named]
