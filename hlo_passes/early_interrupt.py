"""Ctrl-C while a command is still importing: no traceback.

`main` ends a command that is interrupted. Before `main` runs, a tenth of a second goes
into imports, and Python would print where in them it was.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

#: How `sys.argv` begins while the package of a command is imported: the console script,
#: and `python -m hlo_passes`.
_PROGRAMS = ("hlo-passes", "hlo-passes.exe", "-m")


def end_quietly() -> None:
    """Let an interrupt end the process without a traceback, if it is our command.

    Python then ends by the signal itself, which a shell reports as 130.
    """
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    if program in _PROGRAMS:
        sys.excepthook = _report


def _report(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
