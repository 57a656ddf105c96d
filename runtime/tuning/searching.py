"""Runs the search of `hlo-passes tune`, for GPUs and for TPUs.

search = searched(arguments, choices.settings, evaluator, memory_bytes=limit)
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.search import Evaluator, Search
from hlo_passes.scheduler.tuning.tune_progress import TuneProgress

_NOTHING: Final = Combination()


def searched(
    arguments: argparse.Namespace,
    settings: Mapping[str, tuple[str, ...]],
    evaluator: Evaluator,
    *,
    memory_bytes: int | None,
    nothing: Combination = _NOTHING,
) -> Search:
    """Run the search; a KeyboardInterrupt before there is a step goes on.

    Args:
        arguments: of the command; the budget.
        settings: to try, by lever.
        evaluator: answers the search's questions.
        memory_bytes: that a step may take; None for any.
        nothing: no lever set, where the search begins.

    Raises CompilationError R004 if the program without levers has no price.
    """
    search = Search(
        settings,
        evaluator,
        arguments.budget,
        memory_bytes=memory_bytes,
        progress=TuneProgress(arguments.budget).show,
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
