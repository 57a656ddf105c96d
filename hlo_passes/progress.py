"""What a reader is told: results on stdout; on stderr above all the progress.

say("...")                              the result, on stdout
tell("...")                             any text, on stderr
show_progress("scheduling %main ...")   a line that replaces the one before
for item in with_progress(items, total, "simulating"): ...
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from hlo_passes.source import printable

_Item = TypeVar("_Item")
#: Bytes of a file's name that are not UTF-8, as Python keeps them.
_STRAY: Final = re.compile("[\ud800-\udfff]")
_ERASE_LINE: Final = "\r\033[K"
#: Seconds between two lines when there is no bar.
_QUIET_S: Final = 1.0
#: Seconds after which a file receives the status of work that goes on.
_QUIET_STATUS_S: Final = 10.0


def tell(text: str) -> None:
    """Write on stderr; if nobody reads it any more, continue without.

    Names may hold anything, so a terminal receives only what can be printed; bytes of a
    file's name that are not UTF-8 appear as the replacement character.
    """
    _write(printable(_STRAY.sub("\N{REPLACEMENT CHARACTER}", text)))


def say(text: str) -> None:
    """Write a result for a reader on stdout; names are cleaned as by `tell`."""
    sys.stdout.write(printable(_STRAY.sub("\N{REPLACEMENT CHARACTER}", text)))


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # The buffered text would fail again at every write, and at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def show_progress(line: str) -> None:
    """Show a line; on a terminal it replaces the one before; '' clears it."""
    if sys.stderr.isatty():
        _write(_ERASE_LINE + printable(_STRAY.sub("\N{REPLACEMENT CHARACTER}", line)))
    elif line:
        tell(line + "\n")


class Status:
    """Lines about work that goes on for long, and a status between them.

    On a terminal the status is the last line and is replaced each time; in a file it
    appears only after ten seconds without any other line.
    """

    def __init__(self) -> None:
        """Nothing has been shown yet."""
        self._shown = time.monotonic()

    def line(self, text: str) -> None:
        """Show a line that stays."""
        show_progress("")
        tell(f"{text}\n")
        self._shown = time.monotonic()

    def status(self, text: str) -> None:
        """Show what is going on at the moment."""
        now = time.monotonic()
        if sys.stderr.isatty() or now - self._shown >= _QUIET_STATUS_S:
            self._shown = now
            show_progress(text)


def with_progress(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """Yield the items and report progress on the way.

    A terminal shows rich's bar if rich is installed (the extra `progress`); a file or a
    plain installation receives at most one line a second, and none in the first second.
    """
    bar = _rich_progress() if sys.stderr.isatty() else None
    if bar is None:
        yield from _with_lines(items, total, what)
        return
    with bar:
        task = bar.add_task(what, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _rich_progress() -> Any:
    """Rich's bar on stderr, None if rich is not installed."""
    try:
        progress = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console")
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=console.Console(stderr=True),
        transient=True,
    )


def _with_lines(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    shown = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - shown >= _QUIET_S and done < total:
            shown = now
            tell(f"{what}: {done} of {total}\n")
