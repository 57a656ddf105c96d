"""Exit codes, and the errors that lead to each."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from hlo_passes.errors import (
    HloError,
    PassError,
    UnsupportedHloError,
    UsageError,
)


class ExitCode(IntEnum):
    """What the process reports to its caller."""

    DONE = 0
    INVALID_INPUT = 1
    USAGE = 2
    PASS_FAILED = 3
    DIFFERENT = 4
    CANNOT_RUN = 5
    LIMIT_EXCEEDED = 6


#: What shells report for a process that SIGINT ended.
INTERRUPTED: Final = 130


def exit_code_of(problem: HloError) -> int:
    """The exit code for an error; a class may name its own in `exit_code`."""
    own = getattr(problem, "exit_code", None)
    if isinstance(own, int):
        return own
    if isinstance(problem, UsageError):
        return ExitCode.USAGE
    if isinstance(problem, PassError):
        return ExitCode.PASS_FAILED
    if isinstance(problem, UnsupportedHloError):
        return ExitCode.CANNOT_RUN
    return ExitCode.INVALID_INPUT
