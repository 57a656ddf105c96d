"""Times, bytes and shares for readers: 12.3 us, 4.56 ms, 63.0 GiB, 20.4%."""

from __future__ import annotations

import re
from typing import Final

_US_PER_MS: Final = 1e3
_US_PER_S: Final = 1e6
_BINARY: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
#: A time as causes write it.
_PLAIN_TIME: Final = re.compile(r"(\d+\.\d) us\b")


def time_text(us: float) -> str:
    """A time in a suitable unit."""
    if abs(us) >= _US_PER_S:
        return f"{us / _US_PER_S:.3f} s"
    if abs(us) >= _US_PER_MS:
        return f"{us / _US_PER_MS:.2f} ms"
    return f"{us:.1f} us"


def bytes_text(count: int) -> str:
    """Bytes in a suitable binary unit."""
    for unit, size in _BINARY:
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def share_text(part: float, whole: float) -> str:
    """A share in percent; 0% if the whole is 0."""
    return f"{100.0 * part / whole:.1f}%" if whole > 0.0 else "0.0%"


def readable(text: str) -> str:
    """Replace the plain microseconds in a sentence by suitable units."""
    return _PLAIN_TIME.sub(lambda found: time_text(float(found[1])), text)
