"""One line on stderr about what takes more than a second, written over by the next.

scheduling %main.2500: 40,000 of 62,000 instructions
"""

from __future__ import annotations

import sys

_ERASE_LINE = "\r\033[K"


def show_progress(line: str) -> None:
    """Show a line; on a terminal it replaces the one before, '' clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(_ERASE_LINE + line)
        sys.stderr.flush()
    elif line:
        sys.stderr.write(line + "\n")
