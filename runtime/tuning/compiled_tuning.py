"""What `hlo-passes tune` does alike with the compilers for GPUs and for TPUs.

with evaluating(partial(TpuEvaluator, program, Rules()), arguments) as evaluator:
    first, module = compiled_first(evaluator, arguments)
    ...
    TpuTuneResult(**compiled_result(evaluator, search, choices, began), ...)
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypedDict, TypeVar

from hlo_passes.ir.module import Module
from hlo_passes.progress import show_progress
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.tuning.program_evaluator import ProgramEvaluator
from hlo_passes.runtime.tuning.task import AnyCompiled
from hlo_passes.scheduler.simulation.arguments import rules_of
from hlo_passes.scheduler.tuning.choices import Choices
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.search import Search
from hlo_passes.scheduler.tuning.store import Store
from hlo_passes.xla_release import XlaRelease

#: In place of a folder: keep nothing. An empty value is refused for every option.
_NO_CACHE: Final = "none"

_AnyEvaluator = TypeVar("_AnyEvaluator", bound=ProgramEvaluator[Any, Any])


@contextlib.contextmanager
def evaluating(
    evaluator_of: Callable[..., _AnyEvaluator], arguments: argparse.Namespace
) -> Iterator[_AnyEvaluator]:
    """An evaluator, whose processes end with the context.

    Args:
        evaluator_of: makes it of a store, an executor and a number of processes.
        arguments: of the command.
    """
    store = Store.default() if arguments.cache is None else Store(arguments.cache)
    if arguments.cache == _NO_CACHE:
        store = Store("")
    show_progress("tune: tracing the program" if sys.stderr.isatty() else "")
    evaluator = evaluator_of(store, arguments.executor, arguments.processes)
    try:
        yield evaluator
    finally:
        evaluator.close()
        show_progress("")


def compiled_first(
    evaluator: ProgramEvaluator[Any, AnyCompiled], arguments: argparse.Namespace
) -> tuple[AnyCompiled, Module]:
    """The program as it is, which says which levers may matter, and by which rules.

    Raises CompilationError R004 if the compiler makes nothing of it.
    """
    first = evaluator.baseline()
    if not first.text:
        raise CompilationError(first.problem or f"{first.COMPILER} scheduled nothing")
    module = evaluator.module(evaluator.nothing)
    evaluator.rules = rules_of(arguments, module)
    return first, module


class CompiledResult(TypedDict):
    """Fields of a `TuneResult` for which a compiler made every module."""

    name: str
    release: XlaRelease
    search: Search
    dropped: Mapping[str, str]
    is_compiled: bool
    pipelines: Mapping[Combination, str]
    compilations: int
    seconds: float
    remarks: tuple[str, ...]


def compiled_result(
    evaluator: ProgramEvaluator[Any, Any],
    search: Search,
    choices: Choices,
    began: float,
) -> CompiledResult:
    """What was found with a compiler, `began` being `time.monotonic()` then."""
    return {
        "name": evaluator.program.function,
        "release": evaluator.release,
        "search": search,
        "dropped": choices.dropped,
        "is_compiled": True,
        "pipelines": {},
        "compilations": evaluator.compilations,
        "seconds": time.monotonic() - began,
        "remarks": search.tried[search.baseline].remarks,
    }
