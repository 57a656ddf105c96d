"""Runs the search of `hlo-passes tune`, for GPUs and for TPUs.

search = searched(arguments, choices.settings, evaluator, memory_bytes=limit)
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.search import Evaluator, Search
from hlo_passes.scheduler.tuning.tune_progress import TuneProgress

_NOTHING: Final = Combination()


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """In this context SIGTERM does what Ctrl-C does; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fairly(search: Callable[[], Search], settle: Callable[[str], None]) -> Search:
    """Search, and once more by formulas of ours if XLA's prices hide what was tried.

    Args:
        search: runs a whole search; what was compiled is not compiled again.
        settle: makes the formulas of ours price from now on, for a reason.
    """
    found = search()
    if found.doubt and not found.interrupted:
        settle(found.doubt)
        found = search()
    return found


def searched(
    arguments: argparse.Namespace,
    settings: Mapping[str, tuple[str, ...]],
    evaluator: Evaluator,
    *,
    memory_bytes: int | None,
    nothing: Combination = _NOTHING,
    then: str = "",
) -> Search:
    """Run the search; a KeyboardInterrupt before there is a step goes on.

    Args:
        arguments: of the command; the budget.
        settings: to try, by lever.
        evaluator: answers the search's questions.
        memory_bytes: that a step may take; None for any.
        nothing: no lever set, where the search begins.
        then: what is done with the best afterwards, for the progress.

    Raises CompilationError R004 if the program without levers has no price.
    """
    search = Search(
        settings,
        evaluator,
        arguments.budget,
        memory_bytes=memory_bytes,
        progress=TuneProgress(arguments.budget, then).show,
        baseline=nothing,
        best=nothing,
    )
    search.run()
    if search.baseline not in search.tried:
        raise KeyboardInterrupt
    found = search.tried[search.baseline]
    if found.problem:
        from hlo_passes.runtime.executable import CompilationError

        raise CompilationError(f"the program cannot be priced: {found.problem}")
    return search
