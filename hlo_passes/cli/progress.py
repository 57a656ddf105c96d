"""Messages on stderr, above all one progress line for work of more than a second.

scheduling %main.2500: 40,000 of 62,000 instructions
"""

from __future__ import annotations

import os
import sys

_ERASE_LINE = "\r\033[K"


def tell(text: str) -> None:
    """Write on stderr; if nobody reads it any more, continue without."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # The buffered text would fail again at every write, and at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def show_progress(line: str) -> None:
    """Show a line; on a terminal it replaces the one before; '' clears it."""
    if sys.stderr.isatty():
        tell(_ERASE_LINE + line)
    elif line:
        tell(line + "\n")
