"""Progress on stderr for what takes more than a second: a bar with rich, else lines."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from hlo_passes.cli.progress import tell

_Item = TypeVar("_Item")
#: Seconds between two lines where there is no bar.
_QUIET_S = 1.0


def with_progress(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """The items, with progress told while they come.

    A terminal gets rich's bar where rich is installed (the extra `progress`); a file or
    a plain installation gets a line a second at most, and none within the first.
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
    """Rich's bar on stderr, None where rich is not installed."""
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
