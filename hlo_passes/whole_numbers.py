"""Whole numbers in text that anybody may have written.

    whole_number("12")    12        whole_number("-1")    None
    integer_of(" +12 ")   12        integer_of("1e3")     None
    integer_of("9" * 20)  None      integer_of("٣")       None

`int` alone is no reader for such text: it raises ValueError for more than 4,300
digits, leading zeros among them, and takes digits of every script and `1_000`.
These take ASCII digits and what fits a signed number of 64 bits, as XLA does
(`absl::SimpleAtoi`).
"""

from __future__ import annotations

import re
from typing import Final

_INTEGER: Final = re.compile(r"\s*\+?(-?[0-9]+)\s*", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+")
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
#: No number of 64 bits, signed or not, has more digits.
_MOST_DIGITS: Final = 20
_TOO_LARGE: Final = 1 << 64


def integer_of(text: str) -> int | None:
    """The number of 64 bits that a text is, with a sign or blanks around; else None."""
    found = _INTEGER.fullmatch(text)
    number = number_of_digits(found[1]) if found else _TOO_LARGE
    return number if _LEAST <= number <= _MOST else None


def whole_number(text: str) -> int | None:
    """The number from 0 to 2**63 - 1 that a text is, digits alone; else None."""
    return integer_of(text) if _DIGITS.fullmatch(text) else None


def number_of_digits(text: str) -> int:
    """The number of `-?[0-9]+`, which the caller has seen to match.

    What has more than 20 digits after its zeros counts as 2**64, or that negated: no
    field of XLA's holds either.
    """
    if len(text) <= _MOST_DIGITS:
        return int(text)
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("-").lstrip("0") or "0"
    return sign * (int(digits) if len(digits) <= _MOST_DIGITS else _TOO_LARGE)
