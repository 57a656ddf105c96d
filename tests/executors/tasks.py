"""Tasks that other processes import."""

from __future__ import annotations

import os
import pathlib
import time
from dataclasses import dataclass

from hlo_passes.errors import UsageError


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    if number == 3:
        raise UsageError("three is too many", code="U222", hint="two")
    return number


def slow_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0.0)
    return number


@dataclass(frozen=True)
class DieOnce:
    """Ends its process at one item, the first time that one asks."""

    folder: str
    at: int

    def __call__(self, number: int) -> int:
        mark = pathlib.Path(self.folder, "died")
        if number == self.at and not mark.exists():
            mark.touch()
            os._exit(9)
        return number * number


def die_at_three(number: int) -> int:
    if number == 3:
        os._exit(9)
    return number * number


def process_number(_: int) -> int:
    time.sleep(0.01)
    return os.getpid()
