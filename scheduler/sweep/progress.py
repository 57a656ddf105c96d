"""Progress on stderr for long work: a bar if rich is installed, otherwise lines."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from hlo_passes.cli.progress import tell

_Item = TypeVar("_Item")
#: Seconds between two lines when there is no bar.
_QUIET_S = 1.0


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
    told = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - told >= _QUIET_S and done < total:
            told = now
            tell(f"{what}: {done} of {total}\n")
