"""From a module and a pipeline that harms it to a pass, a rewrite and a small module.

1  try the whole pipeline; if the module is too large to run, nothing is known
2  the passes: the shortest bad beginning of the pipeline ends with the pass at fault
3  slices around what that pass changed, small ones first, until one is bad by itself
4  reduce that slice (or the module) as far as it stays bad in the same way
5  try the pass's changes of the reduced module, one by one

The search keeps the best finding so far. When its time is up, or at Ctrl-C, that is the
answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hlo_passes.errors import HloError, UsageError, VerificationError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext
from hlo_passes.passes.framework.pipeline import Pipeline, pipeline_text
from hlo_passes.reduction.changes import slices
from hlo_passes.reduction.reducer import reduce_module
from hlo_passes.runtime.bisect.judgment import (
    GOOD,
    Judgment,
    TimeIsUpError,
    UndecidedError,
    bad,
    untried,
)
from hlo_passes.runtime.bisect.oracles import Oracle
from hlo_passes.runtime.bisect.rewrites import (
    Rewrite,
    first_bad_rewrite,
    from_the_middle,
)
from hlo_passes.verify.verifier import verify

#: Called with a description of the current step.
Progress = Callable[[str], None]
#: What ended a search early; '' for nothing.
Ended = Literal["", "time", "interrupt"]


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
        pipeline: text of the passes at fault, with their options.
        detail: figures of the failure.
        ended: what ended the search early: there may be fewer passes, a smaller module.
    """

    passes: tuple[str, ...]
    what: str
    module: Module
    rewrite: Rewrite | None
    instructions_before: int
    trials: int
    seconds: float
    pipeline: str = ""
    detail: str = ""
    ended: Ended = ""


def bisect(
    module: Module,
    pipeline: Pipeline,
    oracle: Oracle,
    progress: Progress = lambda text: None,
    *,
    budget_seconds: float = float("inf"),
    search: Search | None = None,
) -> Bisection:
    """Find the pass that harms a module.

    Args:
        module: stays as it is.
        pipeline: what may harm it.
        oracle: judges.
        progress: called after each step.
        budget_seconds: after this time the best finding so far is the result.
        search: a new one, for callers that report its state while it goes on.

    Raises:
        UsageError: U040, no pass does.
        UndecidedError: R011, nothing can be tried, or the time was up too early.
        VerificationError: the module itself is invalid.
        KeyboardInterrupt: as raised inside, before anything was found.
    """
    verify(module, allow_unknown=True)
    search = search or Search()
    search.begin(oracle, pipeline.context, progress, budget_seconds)
    rewrite = None
    ended: Ended = ""
    try:
        search.guilty(module, pipeline.passes)
        search.reduce()
        rewrite = search.rewrite()
    except TimeIsUpError:
        ended = "time"
    except KeyboardInterrupt:
        if search.best is None:
            raise
        ended = "interrupt"
    best = search.best
    if best is None:
        raise UndecidedError(
            f"nothing was found in {budget_seconds:.0f} s (trials: {search.trials})",
            hint="--budget-seconds allows more time",
        )
    return Bisection(
        tuple(p.name for p in best.passes),
        best.judgment.what,
        best.module,
        rewrite,
        module.instruction_count,
        search.trials,
        search.seconds,
        pipeline_text(best.passes),
        best.judgment.detail,
        ended,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """A module, the passes that harm it, and how."""

    module: Module
    passes: tuple[Pass, ...]
    judgment: Judgment

    def __str__(self) -> str:
        """One line."""
        names = ", ".join(p.name for p in self.passes)
        count = self.module.instruction_count
        return f"{names}: {self.judgment.what}: {count} instructions"


@dataclass(slots=True)
class Search:
    """The state of a bisection: what is known so far.

    Attributes:
        trials: how often a module was tried.
        best: the smallest finding so far.
    """

    trials: int = 0
    best: Finding | None = None
    _oracle: Oracle = field(init=False)
    _context: PassContext = field(init=False)
    _progress: Progress = field(init=False)
    _started: float = 0.0
    _until: float = float("inf")
    _known: dict[tuple[str, tuple[int, ...]], Judgment] = field(default_factory=dict)

    def begin(
        self,
        oracle: Oracle,
        context: PassContext,
        progress: Progress,
        budget_seconds: float,
    ) -> None:
        """Start the clock."""
        self._oracle, self._context, self._progress = oracle, context, progress
        self._started = time.monotonic()
        self._until = self._started + budget_seconds

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._started

    def status(self) -> str:
        """Trials, the best finding so far, and the time that is left."""
        parts = [f"{self.trials} trial{'s' * (self.trials != 1)}"]
        parts.append(f"best so far: {self.best}" if self.best else "nothing found yet")
        left = self._until - time.monotonic()
        if left < float("inf"):
            parts.append(f"{max(left, 0.0):.0f} s left")
        return "; ".join(parts)

    def guilty(self, module: Module, passes: tuple[Pass, ...]) -> None:
        """Find a module to start from, the passes that harm it, and how."""
        judgment = self.trial(module, passes)
        if judgment.is_bad:
            self.best = Finding(module, passes, judgment)
            self._first_bad_opening(module, passes, judgment)
            return
        if judgment.is_bad is False:
            raise UsageError(
                "the passes do no visible harm: there is nothing to look for",
                code="U040",
            )
        self._progress(
            f"cannot tell of the whole module: {judgment.text}; "
            "looking at slices around each pass's changes"
        )
        for k, each in enumerate(passes):
            before = _applied(module, passes[:k], self._context)
            if self._bad_slice(before, (each,)):
                return
        raise UndecidedError(
            f"cannot tell: {judgment.text}; no slice of the module around what the "
            "passes changed shows any harm",
            hint="a longer --timeout-seconds, smaller shapes, or another oracle",
        )

    def _first_bad_opening(
        self, module: Module, passes: tuple[Pass, ...], judgment: Judgment
    ) -> None:
        low, high = 0, len(passes)
        while high - low > 1:
            # Skip a number of passes of which the oracle cannot tell.
            for middle in from_the_middle(low, high):
                self._progress(f"the first {middle} of {len(passes)} passes")
                tried = self.trial(module, passes[:middle])
                if tried.is_bad is not None:
                    break
            else:
                break
            if tried == judgment:
                high = middle
                self.best = Finding(module, passes[:high], tried)
            else:
                low = middle
        before = _applied(module, passes[:low], self._context)
        tried = self.trial(before, passes[low:high])
        if tried == judgment:
            self.best = Finding(before, passes[low:high], tried)
        assert self.best is not None
        self._bad_slice(self.best.module, self.best.passes, judgment)

    def _bad_slice(
        self, module: Module, passes: tuple[Pass, ...], wanted: Judgment | None = None
    ) -> bool:
        """Find the first slice around the changes of passes that is bad by itself."""
        if not _runs_through(module, passes, self._context):
            return False
        after = _applied(module, passes, self._context)
        for candidate in slices(module, after):
            judgment = self.trial(candidate, passes)
            if judgment.is_bad and wanted in (None, judgment):
                self.best = Finding(candidate, passes, judgment)
                return True
        return False

    def reduce(self) -> None:
        """Make the best finding smaller as long as it stays bad in the same way."""
        best = self.best
        assert best is not None
        names = ", ".join(p.name for p in best.passes)
        self._progress(f"{names}: {best.judgment.text}; reducing")

        def fails(candidate: Module) -> bool:
            judgment = self.trial(candidate, best.passes)
            if judgment != best.judgment:
                return False
            self.best = Finding(candidate, best.passes, judgment)
            return True

        reduce_module(best.module, fails)

    def rewrite(self) -> Rewrite | None:
        """The change that does the harm to the best finding."""
        assert self.best is not None
        module, passes = self.best.module, self.best.passes
        if not _runs_through(module, passes, self._context):
            return None
        return first_bad_rewrite(module, Pipeline(passes, self._context), self._judge)

    def trial(self, module: Module, passes: tuple[Pass, ...]) -> Judgment:
        """Run passes on a copy, and ask the oracle.

        Raises TimeIsUpError when the time is up.
        """
        key = (module.to_text(), tuple(map(id, passes)))
        judgment = self._known.get(key)
        if judgment is None:
            judgment = self._known[key] = self._try(module, passes)
        return judgment

    def _try(self, module: Module, passes: tuple[Pass, ...]) -> Judgment:
        if time.monotonic() >= self._until:
            raise TimeIsUpError
        copy = module.clone()
        try:
            Pipeline(passes, self._context).run(copy)
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
        return self._judge(module, copy)

    def _judge(self, module: Module, after: Module) -> Judgment:
        self.trials += 1
        left = self._until - time.monotonic()
        judgment = self._oracle.judge(module, after, left)
        self._progress(
            f"trial {self.trials}: {module.instruction_count} instructions: "
            f"{judgment.text}"
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
