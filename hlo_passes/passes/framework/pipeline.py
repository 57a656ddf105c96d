"""Runs passes one after another, verifies and times them, and checks their claims.

result = Pipeline.parse("collective-permute-combiner,hlo-dce").run(module)
result.changed, result.passes, result.remarks
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hlo_passes.analysis.call_graph import call_depth
from hlo_passes.errors import (
    FalseChangeReportError,
    HloError,
    PassError,
    PipelineSpecError,
    PostconditionError,
    TooDeepError,
    VerificationError,
)
from hlo_passes.ir.module import Module
from hlo_passes.ir.spelling import Spelling
from hlo_passes.passes.framework.base import CheckingPass, Pass, PassContext, Report
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.sequence import (
    OptionTexts,
    PassSequence,
    expanded,
    left_out_of,
    split_options,
)
from hlo_passes.passes.framework.spec import (
    Step,
    option_values,
    parse_steps,
    step_text,
    value_text,
)
from hlo_passes.text.reader import parse
from hlo_passes.verify.verifier import verify
from hlo_passes.xla_release import XlaRelease, xla_release

#: Called after each pass with (name, module).
Observer = Callable[[str, Module], None]

#: Calls in one another that every pass follows.
_DEEP_CALLS = 100


@dataclass(frozen=True, slots=True)
class PassRun:
    """The result of one pass."""

    name: str
    changed: bool
    seconds: float
    statistics: dict[str, int]
    remarks: tuple[str, ...]
    details: dict[str, Any] = field(default_factory=dict)
    explanations: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The keys of `opt --report`."""
        return {
            "name": self.name,
            "changed": self.changed,
            "seconds": self.seconds,
            "statistics": self.statistics,
            "remarks": list(self.remarks),
            **({"details": self.details} if self.details else {}),
        }


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The result of a pipeline, pass by pass."""

    passes: tuple[PassRun, ...]
    instructions_before: int
    instructions_after: int
    unknown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any pass changed the module."""
        return any(p.changed for p in self.passes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of all passes, and about unknown parts of the input."""
        return self.unknown + tuple(r for p in self.passes for r in p.remarks)

    def to_json(self) -> dict[str, Any]:
        """The keys of `opt --report`."""
        return {
            "passes": [p.to_json() for p in self.passes],
            "instructions_before": self.instructions_before,
            "instructions_after": self.instructions_after,
            "unknown": list(self.unknown),
            "left_out": list(self.left_out),
        }


@dataclass(frozen=True, slots=True)
class FixedPoint(Pass):
    """Run a list of passes again and again until none of them changes anything.

    An example is `fixed-point{max-iterations=8}(hlo-cse,hlo-dce)`. It is an error if
    the passes do not settle, that is, if they still change the module in the last
    round.

    Attributes:
        max_iterations: the most rounds; at least 1. The last round must change nothing.
        passes: the passes in parentheses.
    """

    name: ClassVar[str] = "fixed-point"
    max_iterations: int = 16
    passes: tuple[Pass, ...] = field(default=())

    def __post_init__(self) -> None:
        """Refuse a loop without rounds (U013 in a pipeline's text)."""
        if self.max_iterations < 1:
            raise ValueError(
                f"max-iterations={self.max_iterations}, but at least 1 round is needed"
            )
        object.__setattr__(self, "passes", expanded(self.passes))

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Run the passes; E004 if they have not settled after max-iterations."""
        changed = False
        for _ in range(self.max_iterations):
            round_changed = False
            for each in self.passes:
                round_changed |= _changed(each, module, context, report)
            if not round_changed:
                return changed
            changed = True
            report.count("iterations")
        names = ", ".join(p.name for p in self.passes)
        raise PassError(
            f"{names}: still changing after {self.max_iterations} rounds", code="E004"
        )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order, and the settings that they share.

    Attributes:
        passes: those of every sequence in its place.
        context: settings of all passes.
        left_out: what the sequences do not do that XLA does there.
    """

    passes: tuple[Pass, ...]
    context: PassContext = field(default_factory=PassContext)
    left_out: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Put the passes of every sequence in its place; settle the release they name.

        Raises PipelineSpecError U016 when passes and context name several releases.
        """
        object.__setattr__(self, "left_out", left_out_of(self.passes))
        object.__setattr__(self, "passes", expanded(self.passes))
        release = _named_release(self.passes, self.context)
        if release is not self.context.release:
            context = dataclasses.replace(self.context, release=release)
            object.__setattr__(self, "context", context)

    @classmethod
    def parse(cls, text: str, context: PassContext | None = None) -> Pipeline:
        """Read a pipeline's text (see passes/spec.py).

        Raises PipelineSpecError U010-U016.
        """
        steps = parse_steps(text)
        return cls(tuple(_build(s) for s in steps), context or PassContext())

    def run(
        self,
        module: Module,
        *,
        verify_each: bool = False,
        after_pass: Observer | None = None,
    ) -> PipelineResult:
        """Run the passes on `module`, in place.

        The module is verified first, and after every pass that changed it (with
        `verify_each` after every pass, and also by the passes that a pass names in
        `checked_by`).

        Raises:
            VerificationError: the input is refused.
            PostconditionError: the verifier refuses the result of a pass.
            FalseChangeReportError: a pass's `changed` is wrong.
            PassError: a pass failed.
        """
        let_pass = verify(module, allow_unknown=True)
        unknown = tuple(f.render().replace(" error[", " remark[", 1) for f in let_pass)
        # Unknown parts of the input may be copied and moved; no pass may add new ones.
        known = frozenset((f.code, f.message) for f in let_pass)
        before = module.instruction_count
        runs = []
        text = _Text(module)
        context = self.settled(module)
        for each in self.passes:
            runs.append(
                self._run_one(
                    each, module, context, text, known, verify_each=verify_each
                )
            )
            if after_pass is not None:
                after_pass(each.name, module)
        after = module.instruction_count
        return PipelineResult(tuple(runs), before, after, unknown, self.left_out)

    def settled(self, module: Module) -> PassContext:
        """The context with the release of XLA that all passes follow on a module."""
        if self.context.release is not None or not any(
            _follows_xla(each) for each in self.passes
        ):
            return self.context
        release = self.context.release_for(module)
        return dataclasses.replace(self.context, release=release)

    def _run_one(
        self,
        each: Pass,
        module: Module,
        context: PassContext,
        text: _Text,
        known: frozenset[tuple[str, str]],
        *,
        verify_each: bool,
    ) -> PassRun:
        before = text.now()
        spelling = Spelling(module)
        report = Report()
        started = time.perf_counter()
        changed = _changed(each, module, context, report)
        seconds = time.perf_counter() - started
        # Orders that were tried and put back leave no trace in the text.
        spelling.restore()
        really = text.now() != before
        if changed != really:
            said = "changed" if changed else "left"
            raise FalseChangeReportError(
                f"{each.name} said that it {said} the module, which is not true"
            )
        if changed or verify_each:
            self._verify(each, module, known)
        if verify_each and each.checked_by:
            self._judge(each, module, context, before)
        remarks = list(report.remarks)
        if report.dropped_remarks:
            remarks.append(f"... and {report.dropped_remarks} more remarks")
        return PassRun(
            each.name,
            changed,
            seconds,
            dict(report.statistics),
            tuple(remarks),
            dict(report.details),
            tuple(report.explanations),
        )

    def _verify(
        self, each: Pass, module: Module, known: frozenset[tuple[str, str]]
    ) -> None:
        """Refuse an invalid result of a pass, and new unknown opcodes or attributes."""
        try:
            let_pass = verify(module, allow_unknown=True)
            made = tuple(f for f in let_pass if (f.code, f.message) not in known)
            if made:
                raise VerificationError(made)
        except VerificationError as refused:
            raise PostconditionError(
                f"{each.name} made a module that the verifier refuses:\n"
                f"{refused.render()}"
            ) from refused

    def _judge(
        self, each: Pass, module: Module, context: PassContext, before: str
    ) -> None:
        """Let the checking passes judge the result of a pass."""
        filename = module.source.filename if module.source else "<hlo>"
        own = each.options_of_checks(module, context)
        for name in each.checked_by:
            kind = find_pass(name)
            options = {f.name for f in dataclasses.fields(kind)}
            judge = kind(**{n: own[n] for n in own if n in options})
            if not isinstance(judge, CheckingPass):
                raise PipelineSpecError(
                    f"{name}, which {each.name} names in checked_by, is not a "
                    "checking pass"
                )
            judge.check(module, parse(before, filename=filename), context, Report())


def pipeline_text(passes: tuple[Pass, ...]) -> str:
    """The text of a pipeline of these passes; options at their defaults are left out.

    It is what `Pipeline.parse` reads, for passes whose options a text can spell.
    """
    return ",".join(step_text(_step_of(each)) for each in passes)


def _step_of(each: Pass) -> Step:
    fixed = isinstance(each, FixedPoint)
    options = tuple(
        (field.name.replace("_", "-"), value_text(value))
        for field in dataclasses.fields(each)
        if field.init and not (fixed and field.name == "passes")
        if (value := getattr(each, field.name)) != field.default
    )
    inner = tuple(map(_step_of, each.passes)) if fixed else ()
    return Step(each.name, options, inner, 0)


def _follows_xla(each: Pass) -> bool:
    """Whether what a pass does depends on the release of XLA."""
    if isinstance(each, FixedPoint):
        return any(_follows_xla(inner) for inner in each.passes)
    return hasattr(each, "xla")


def _named_release(passes: tuple[Pass, ...], context: PassContext) -> XlaRelease | None:
    """The release that passes or their context name; None where none of them does.

    Raises PipelineSpecError U016 for two: a program is made for one release.
    """
    named = {} if context.release is None else {context.release: "the context"}
    waiting = list(reversed(passes))
    while waiting:
        each = waiting.pop()
        if isinstance(each, FixedPoint):
            waiting += reversed(each.passes)
        elif version := getattr(each, "xla", ""):
            named.setdefault(xla_release(version), each.name)
    if len(named) > 1:
        listed = " and ".join(f"{name} {release}" for release, name in named.items())
        raise PipelineSpecError(
            f"one run follows one release of XLA, but here are {listed}",
            code="U016",
            hint="give xla= to one of them, or --xla for all",
        )
    return next(iter(named), None)


def _changed(each: Pass, module: Module, context: PassContext, report: Report) -> bool:
    """Run a pass; whatever it raises becomes one of this project's errors.

    Raises:
        HloError: as the pass raised it.
        TooDeepError: S016, calls are nested deeper than the pass follows.
        PassError: E001, a user's pass raised anything else, or did not return a bool.
    """
    try:
        changed = each.run(module, context, report)
    except HloError:
        raise
    except (Exception, SystemExit) as problem:
        if isinstance(problem, RecursionError) and call_depth(module) > _DEEP_CALLS:
            raise TooDeepError(each.name) from problem
        place = traceback.extract_tb(problem.__traceback__)[-1]
        raise PassError(
            f"{each.name} raised {type(problem).__name__}: {problem}\n"
            f"  at {place.filename}:{place.lineno}, in {place.name}",
            code="E001",
        ) from problem
    if not isinstance(changed, bool):
        raise PassError(
            f"{each.name} returned {changed!r}, not True or False",
            code="E001",
            hint="end `run` with `return True` (it changed the module) or `return "
            "False`",
        )
    return changed


class _Text:
    """A module's text, written once for every version of the module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._version = module.version
        self._text = module.to_text()

    def now(self) -> str:
        if self._module.version != self._version:
            self._version, self._text = self._module.version, self._module.to_text()
        return self._text


def _build(step: Step) -> Pass:
    kind = _class_of(step)
    options = step.options
    handed_on: OptionTexts = ()
    if issubclass(kind, PassSequence):
        options, handed_on = split_options(kind, options)
    values: dict[str, Any] = option_values(kind, step.name, options)
    if handed_on:
        values["handed_on"] = handed_on
    if step.inner:
        values["passes"] = tuple(_build(s) for s in step.inner)
    try:
        return kind(**values)
    except ValueError as problem:
        raise PipelineSpecError(f"{step.name}: {problem}", code="U013") from problem


def _class_of(step: Step) -> type[Pass]:
    if step.name == FixedPoint.name:
        if not step.inner:
            raise PipelineSpecError("fixed-point needs passes, as in fixed-point(a,b)")
        return FixedPoint
    kind = find_pass(step.name)
    if step.inner:
        raise PipelineSpecError(f"{step.name} does not take passes in parentheses")
    return kind
