"""From a module and a pipeline that harms it to a pass, a rewrite and a small module.

1  try the whole pipeline; if the module is too large to run, nothing is known
2  the passes: the shortest bad beginning of the pipeline ends with the pass at fault
3  slices around what that pass changed, small ones first, until one is bad by itself
4  reduce that slice (or the module) as far as it stays bad in the same way
5  try the pass's changes of the reduced module, one by one
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hlo_passes.errors import HloError, UsageError, VerificationError
from hlo_passes.ir.module import Module
from hlo_passes.passes.base import Pass, PassContext
from hlo_passes.passes.pipeline import Pipeline
from hlo_passes.reduction.changes import slices
from hlo_passes.reduction.reducer import reduce_module
from hlo_passes.runtime.bisect.judgment import GOOD, Judgment, bad, untried
from hlo_passes.runtime.bisect.oracles import Oracle
from hlo_passes.runtime.bisect.rewrites import Rewrite, first_bad_rewrite
from hlo_passes.verify.verifier import verify

#: Called with a description of the current step.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a bisection.

    Attributes:
        passes: names of the passes at fault: one, unless several are needed together.
        what: the failure.
        module: the smallest module found that shows it.
        rewrite: the first change that does the harm; None if changes cannot be
            separated (a pass that fails).
        instructions_before: of the input.
        trials: how often a module was tried.
        seconds: the total time.
    """

    passes: tuple[str, ...]
    what: str
    module: Module
    rewrite: Rewrite | None
    instructions_before: int
    trials: int
    seconds: float


def bisect(
    module: Module,
    pipeline: Pipeline,
    oracle: Oracle,
    progress: Progress = lambda text: None,
) -> Bisection:
    """Find the pass that harms a module.

    Raises:
        UsageError: U040, no pass does, or nothing can be tried.
        VerificationError: the module itself is invalid.
    """
    verify(module, allow_unknown=True)
    started = time.perf_counter()
    search = _Search(oracle, pipeline.context, progress)
    start, passes, judgment = search.guilty(module, pipeline.passes)
    progress(f"{', '.join(p.name for p in passes)}: {judgment.what}; reducing")
    small = reduce_module(start, lambda m: search.trial(m, passes) == judgment)
    rewrite = None
    if _runs_through(small, passes, pipeline.context):
        rewrite = first_bad_rewrite(
            small, Pipeline(passes, pipeline.context), oracle.judge
        )
    return Bisection(
        tuple(p.name for p in passes),
        judgment.what,
        small,
        rewrite,
        module.instruction_count,
        search.trials,
        time.perf_counter() - started,
    )


@dataclass(slots=True)
class _Search:
    oracle: Oracle
    context: PassContext
    progress: Progress
    trials: int = 0
    _known: dict[tuple[str, tuple[int, ...]], Judgment] = field(default_factory=dict)

    def guilty(
        self, module: Module, passes: tuple[Pass, ...]
    ) -> tuple[Module, tuple[Pass, ...], Judgment]:
        """A module to start from, the passes that harm it, and how."""
        judgment = self.trial(module, passes)
        if judgment.is_bad:
            return self._first_bad_opening(module, passes, judgment)
        if judgment.is_bad is False:
            raise UsageError(
                "the passes do no visible harm: there is nothing to look for",
                code="U040",
            )
        self.progress(f"{judgment.what}; looking at slices around each pass's changes")
        for k, each in enumerate(passes):
            before = _applied(module, passes[:k], self.context)
            found = self._bad_slice(before, (each,))
            if found is not None:
                return found[0], (each,), found[1]
        raise UsageError(
            f"{judgment.what}, and no slice of the module around what the passes "
            "changed shows any harm",
            code="U040",
        )

    def _first_bad_opening(
        self, module: Module, passes: tuple[Pass, ...], judgment: Judgment
    ) -> tuple[Module, tuple[Pass, ...], Judgment]:
        low, high = 0, len(passes)
        while high - low > 1:
            middle = (low + high) // 2
            self.progress(f"the first {middle} of {len(passes)} passes")
            if self.trial(module, passes[:middle]) == judgment:
                high = middle
            else:
                low = middle
        guilty = passes[high - 1 : high]
        before = _applied(module, passes[: high - 1], self.context)
        if self.trial(before, guilty) != judgment:
            before, guilty = module, passes[:high]
        found = self._bad_slice(before, guilty, judgment)
        return (found[0] if found else before), guilty, judgment

    def _bad_slice(
        self, module: Module, passes: tuple[Pass, ...], wanted: Judgment | None = None
    ) -> tuple[Module, Judgment] | None:
        """The first slice around the changes of passes that is bad by itself."""
        if not _runs_through(module, passes, self.context):
            return None
        after = _applied(module, passes, self.context)
        for candidate in slices(module, after):
            judgment = self.trial(candidate, passes)
            if judgment.is_bad and wanted in (None, judgment):
                return candidate, judgment
        return None

    def trial(self, module: Module, passes: tuple[Pass, ...]) -> Judgment:
        """Run passes on a copy, and ask the oracle."""
        key = (module.to_text(), tuple(map(id, passes)))
        judgment = self._known.get(key)
        if judgment is None:
            judgment = self._known[key] = self._try(module, passes)
        return judgment

    def _try(self, module: Module, passes: tuple[Pass, ...]) -> Judgment:
        copy = module.clone()
        try:
            Pipeline(passes, self.context).run(copy)
        except UsageError:
            raise
        except VerificationError as refused:
            return untried(f"the module is refused: {refused.code}")
        except HloError as failed:
            raised = failed.__cause__ if failed.code == "E001" else None
            name = type(raised or failed).__name__
            return bad(name if raised else f"{name} {failed.code}")
        if copy.to_text() == module.to_text():
            return GOOD
        self.trials += 1
        judgment = self.oracle.judge(module, copy)
        self.progress(
            f"trial {self.trials}: {module.instruction_count} instructions: "
            f"{judgment.what or 'good'}"
        )
        return judgment


def _applied(module: Module, passes: tuple[Pass, ...], context: PassContext) -> Module:
    copy = module.clone()
    Pipeline(passes, context).run(copy)
    return copy


def _runs_through(
    module: Module, passes: tuple[Pass, ...], context: PassContext
) -> bool:
    """Whether the passes finish at all."""
    try:
        _applied(module, passes, context)
    except HloError:
        return False
    return True
