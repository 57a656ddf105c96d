"""The interface of passes.

A pass is a frozen dataclass: its fields are its options; its docstring begins with what
is true after the pass, and with HLO before and after.

    @dataclass(frozen=True, slots=True)
    class RemoveTrivialReshape(ComputationPass):
        name: ClassVar[str] = "remove-trivial-reshape"

        def run_on_computation(self, computation, context, report):
            for i in computation.instructions:
                if i.opcode == "reshape" and i.shape == i.operands[0].shape:
                    if computation.replace(i, i.operands[0]):
                        report.count("reshapes-removed")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from hlo_passes.analysis.followed_release import followed_release, release_asked_for
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.xla_release import XlaRelease, xla_release

#: Remarks of one pass beyond this number are counted, but not kept.
MAXIMUM_REMARKS = 1000


@dataclass(slots=True)
class Report:
    """What a pass reports about its run: counts, and why something was not done.

    Attributes:
        statistics: counts by name (kebab-case).
        remarks: what was not done, and why.
        dropped_remarks: the number of further remarks.
        details: other content of the report, by name; JSON values.
        explanations: answers to `PassContext.explain`.
    """

    statistics: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    dropped_remarks: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    explanations: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a statistic (kebab-case)."""
        self.statistics[what] = self.statistics.get(what, 0) + number

    def remark(self, text: str) -> None:
        """Say why something was not done: 'not combined: %a and %b differ in ...'."""
        if len(self.remarks) < MAXIMUM_REMARKS:
            self.remarks.append(text)
        else:
            self.dropped_remarks += 1

    def explain(self, text: str) -> None:
        """Say why the instruction that `--explain` names is where it is."""
        self.explanations.append(text)


@dataclass(frozen=True, slots=True, init=False)
class PassContext:
    """The settings that all passes of a pipeline share.

    Attributes:
        pricing: the machine and the source of costs; its fields may be given one by
            one, as in `PassContext(target="b200")`.
        xla_quirks: do what XLA does where that is surprising (passes.md section 13);
            otherwise do the safe thing instead.
        explain: an instruction whose place passes should explain (`Report.explain`),
            '' for none.
        progress: called with a status line by work that takes more than a second.
    """

    pricing: Pricing
    xla_quirks: bool
    explain: str
    progress: Callable[[str], None] | None

    def __init__(
        self,
        pricing: Pricing | None = None,
        *,
        release: XlaRelease | None = None,
        xla_quirks: bool = True,
        explain: str = "",
        progress: Callable[[str], None] | None = None,
        **priced_on: Any,
    ) -> None:
        """`priced_on` are fields of `Pricing`, instead of those of `pricing`.

        Raises UsageError U207 for `xla` where it names no release.
        """
        if release is not None:
            priced_on["xla"] = release.name
        on = dataclasses.replace(pricing or Pricing(), **priced_on)
        if on.xla:
            release_asked_for(None, on.xla)
        assign = partial(object.__setattr__, self)
        assign("pricing", on)
        assign("xla_quirks", xla_quirks)
        assign("explain", explain)
        assign("progress", progress)

    @property
    def release(self) -> XlaRelease | None:
        """The release of XLA that all passes follow.

        None: what the module says, else the jaxlib installed
        (`analysis.followed_release`).
        """
        return xla_release(self.pricing.xla) if self.pricing.xla else None

    def release_for(self, module: Module, xla: str = "") -> XlaRelease:
        """The release of XLA that a pass follows.

        Args:
            module: as the pass found it.
            xla: the pass's own option, '' where it has not been set.
        """
        if self.release is not None and not xla:
            return self.release
        return followed_release(module, xla)


@dataclass(frozen=True, slots=True)
class Pass:
    """Rewrites a module in place and reports whether it changed anything.

    Attributes:
        name: kebab-case, as in a pipeline's text.
        needs_collectives: a scheduled module without collective, send, recv or
            anything asynchronous is left unchanged; inside compilations such
            a module is not even parsed for this pass.
        reorders_sums: floating numbers may be added in another order or type, so that
            results differ by rounding; any other pass keeps every bit.
    """

    name: ClassVar[str] = ""
    needs_collectives: ClassVar[bool] = False
    reorders_sums: ClassVar[bool] = False
    #: Names of checking passes that judge the result with `verify_each`; each receives
    #: those of `options_of_checks` that it has.
    checked_by: ClassVar[tuple[str, ...]] = ()

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Rewrite `module`; returns True if anything changed.

        Raises:
            PassError: if it cannot; the module must not be used after that.
        """
        raise NotImplementedError

    def options_of_checks(
        self, module: Module, context: PassContext
    ) -> dict[str, object]:
        """What the passes of `checked_by` are to hold this one to: its own options."""
        del module, context
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def describe_options(self) -> dict[str, object]:
        """Options by kebab-case name, with the values of this pass."""
        return {
            f.name.replace("_", "-"): getattr(self, f.name)
            for f in dataclasses.fields(self)
        }


@dataclass(frozen=True, slots=True)
class CheckingPass(Pass):
    """A pass that changes nothing and fails if something is wrong.

    It may be in a pipeline, and other passes may name it in `checked_by`.
    """

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Check the module as it is; never change it."""
        self.check(module, None, context, report)
        return False

    def check(
        self,
        module: Module,
        before: Module | None,
        context: PassContext,
        report: Report,
    ) -> None:
        """Raise PassError if something is wrong.

        `before` is the module before the pass that made `module`, None if it is not
        known.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ComputationPass(Pass):
    """A pass that visits one computation at a time; `changed` is derived.

    Fusion bodies are left out unless `in_fusions` says otherwise; so is what an
    `async-start` wraps, which must stay one operation.
    """

    in_fusions: ClassVar[bool] = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit computations, callees first."""
        from hlo_passes.analysis.call_graph import build_call_graph

        before = module.version
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if graph.is_async_body(computation) or (
                graph.is_fusion_body(computation) and not self.in_fusions
            ):
                continue
            self.run_on_computation(computation, context, report)
        return module.version != before

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Rewrite one computation."""
        raise NotImplementedError
