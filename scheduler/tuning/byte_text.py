"""Bytes as a user types them: '72GiB', '500MiB', '85899345920'."""

from __future__ import annotations

import argparse
import re
from typing import Final

_BYTES: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(B|KiB|MiB|GiB|TiB)?")
_UNITS: Final = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def bytes_from_text(text: str) -> int:
    """The type of an argument that is a number of bytes, with a unit or without."""
    found = _BYTES.fullmatch(text.strip())
    size = int(float(found[1]) * (1 << _UNITS[found[2] or ""])) if found else 0
    if size < 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a number of bytes, as in 72GiB or 500MiB"
        )
    return size
