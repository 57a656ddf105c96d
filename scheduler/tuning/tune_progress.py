"""The progress of a search on stderr: how many, the best so far, the time left."""

from __future__ import annotations

import math
import sys
import time
from typing import Final

from hlo_passes.progress import show_progress
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.tuning.search import Search

#: Seconds between two lines in a file.
_QUIET_S: Final = 5.0


class TuneProgress:
    """Shows a search as it goes on."""

    def __init__(self, budget: int, then: str = "") -> None:
        """A search of a number of combinations.

        Args:
            budget: combinations that are compiled at most.
            then: what is done with a best that is not the baseline, after the search.
        """
        self._budget, self._then = budget, then
        self._began = self._shown = time.monotonic()

    def show(self, search: Search) -> None:
        """Show where a search is; in a file not too often."""
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self._shown < _QUIET_S:
            return
        self._shown = now
        show_progress(self.text(search, now - self._began))

    def text(self, search: Search, seconds: float) -> str:
        """'tune: 12 of 40, best 4.93 ms (-6.3%), at most 35 s left'."""
        done = len(search.tried)
        told = f"tune: {done} of {self._budget}"
        baseline = search.tried.get(search.baseline)
        best = search.tried.get(search.best, baseline)
        if best is not None and baseline is not None and math.isfinite(best.step_us):
            change = 100.0 * best.change_from(baseline)
            told += f", best {time_text(best.step_us)} ({change:+.1f}%)"
        if done:
            left = (self._budget - done) * seconds / done
            told += f", at most {left:.0f} s left"
        if self._then and search.best != search.baseline:
            told += f", then {self._then}"
        return told
