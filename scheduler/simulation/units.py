"""Times, bytes and shares as a person reads them: 12.3 us, 4.56 ms, 63.0 GiB, 20.4%."""

from __future__ import annotations

import re
from typing import Final

_US_PER_MS: Final = 1e3
_US_PER_S: Final = 1e6
_BINARY: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
#: A time as causes tell it.
_PLAIN_TIME: Final = re.compile(r"(\d+\.\d) us\b")


def time_text(us: float) -> str:
    """A time in the unit that suits it."""
    if abs(us) >= _US_PER_S:
        return f"{us / _US_PER_S:.3f} s"
    if abs(us) >= _US_PER_MS:
        return f"{us / _US_PER_MS:.2f} ms"
    return f"{us:.1f} us"


def bytes_text(count: int) -> str:
    """Bytes in the binary unit that suits them."""
    for unit, size in _BINARY:
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def share_text(part: float, whole: float) -> str:
    """A share in percent; 0% of nothing."""
    return f"{100.0 * part / whole:.1f}%" if whole > 0.0 else "0.0%"


def readable(text: str) -> str:
    """A sentence with its plain microseconds in units that suit them."""
    return _PLAIN_TIME.sub(lambda found: time_text(float(found[1])), text)
