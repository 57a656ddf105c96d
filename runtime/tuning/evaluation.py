"""Tries combinations of levers on a program for GPUs: the simulator prices them.

    evaluator = XlaEvaluator(program, rules, Store.default(), on=on)
    for chosen, outcome in evaluator.compiled([Combination()]): ...

Levers that change the order alone can be priced with our scheduler, too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from hlo_passes.errors import HloError
from hlo_passes.executors.evaluator import Lost
from hlo_passes.files import read_file
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.installation.fingerprint import own_sources
from hlo_passes.runtime.tuning.compile_process import CompileProcess
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.runtime.tuning.program_evaluator import ProgramEvaluator
from hlo_passes.runtime.tuning.task import Compiled, Task
from hlo_passes.scheduler.hardware.target import target_text
from hlo_passes.scheduler.tuning.combination import (
    Combination,
    compiler_options,
    variables,
    xla_flags,
)
from hlo_passes.scheduler.tuning.flag_list import GivenList, TriedList
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_schedule import (
    BeforeScheduling,
    elided_copies,
    rewritten_fusions,
    simulated,
)
from hlo_passes.scheduler.tuning.plugged_in import PassLever, PluggedIn
from hlo_passes.scheduler.tuning.search import Tried
from hlo_passes.scheduler.tuning.store import key_of
from hlo_passes.text.reader import parse

_PACKAGES: Final = ("jaxlib", "jax", "jax-cuda12-plugin", "jax-cuda12-pjrt")
_FILES: Final = ("costs", "profile", "collective_perf_table", "matmul_perf_table")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledForGpus(Compiled):
    """A combination as XLA compiled it.

    Attributes:
        before: text of the module that XLA's scheduler received, '' without.
        after: text of the scheduled module, '' where there is none.
    """

    COMPILER: ClassVar[str] = "XLA"

    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """Of the scheduled module."""
        return self.after


def compile_for_gpus(
    process: CompileProcess,
    options: Mapping[str, Any],
    *,
    makes_kernels: bool = False,
    installed: Mapping[str, str] | None = None,
) -> CompiledForGpus:
    """Compile with flags by name; errors of `CompileProcess.answered`.

    Args:
        process: that compiles.
        options: the flags.
        makes_kernels: go on to the end.
        installed: `passes` inside the compilation, their `stage` and `target`.
    """
    request = {"makes_kernels": makes_kernels, "installed": installed}
    with process.answered(options, request) as found:
        if found.problem:
            return CompiledForGpus(problem=found.problem, is_certain=found.is_certain)
        before, after = (
            pathlib.Path(found.folder, name).read_text()
            for name in ("before.hlo", "after.hlo")
        )
        seconds = found.fields["seconds"]
    return CompiledForGpus(before=before, after=after, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuTask(Task[CompiledForGpus]):
    """A task, with the machine and the source of costs."""

    on: Pricing

    def compile(self, process: CompileProcess) -> CompiledForGpus:
        return compile_for_gpus(process, dict(self.options))

    def step(self, compiled: CompiledForGpus) -> Outcome:
        digest = compiled.digest
        try:
            module = compiled.to_module()
            return simulated(module, self.chosen, self.on, self.rules, digest=digest)
        except HloError as problem:
            return Outcome.failed(problem.render().splitlines()[0])


@dataclass(frozen=True, slots=True)
class _OrderTask:
    """A combination to price with our scheduler, and the module to order."""

    chosen: Combination
    before: BeforeScheduling

    def answer(self) -> Outcome:
        return self.before.price(self.chosen)


@dataclass(slots=True)
class XlaEvaluator(ProgramEvaluator[Program, CompiledForGpus]):
    """The `Evaluator` of a program for absent GPUs.

    Attributes:
        on: the machine and the source of costs.
    """

    nothing: ClassVar[Combination] = Combination()
    READ: ClassVar[tuple[str, ...]] = (
        "XLA_FLAGS",
        "JAX_OPTIMIZATION_LEVEL",
        "JAX_ENABLE_X64",
    )

    on: Pricing = field(kw_only=True)
    misleads: str = field(default="", kw_only=True)
    _ordered: dict[Combination, BeforeScheduling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Trace the program. Raises the errors of `CompileProcess.traced`."""
        self.on = dataclasses.replace(
            self.on, topology=self.traced.machine, hosts=None, gpus_per_host=None
        )

    @property
    def settled(self) -> Pricing:
        """The pricing, with the release that compiles."""
        return dataclasses.replace(self.on, xla=self.on.xla or self.traced.release)

    def settle_prices(self) -> None:
        """Price with formulas of ours if XLA's mislead of the baseline.

        It has been compiled.
        """
        first = self._price_of(self.nothing, self._compiled[self.nothing])
        self.price_by_our_formulas(first.misleads)

    def price_by_our_formulas(self, why: str) -> None:
        """From now on, for a reason as of `Outcome.misleads`; '' changes nothing."""
        if why:
            self.on, self.misleads = dataclasses.replace(self.on, extended=True), why

    # -- from scratch ----------------------------------------------------------

    def alone(self, chosen: Combination, given_flags: str) -> Outcome:
        """Compile anew from the flags of XLA_FLAGS alone, in a process of its own.

        Args:
            chosen: what the flags say.
            given_flags: what XLA_FLAGS has without them.
        """
        flags = f"{given_flags} {xla_flags(chosen, self.release)}".strip()
        return self._from_flags(flags, variables(chosen, self.release), chosen)

    def listed(self, given: GivenList, given_flags: str) -> TriedList:
        """Compile a list of flags as it is, in a process of its own.

        XLA ends the process for a flag that it does not know; the list has a problem
        then, and no more.

        Args:
            given: the list.
            given_flags: what XLA_FLAGS has without it.
        """
        added = given.flags_for(self.release)
        flags = f"{given_flags} {added}".strip()
        unknown = given.unknown_to(self.release)
        if not added:
            nothing = "nothing of it can be priced"
            return TriedList(given, flags, unknown, Outcome.failed(nothing))
        priced_as = given.levers_in(self.release)
        try:
            outcome = self._from_flags(flags, {}, priced_as)
        except HloError as problem:
            outcome = Outcome.failed(problem.message)
        return TriedList(given, flags, unknown, outcome)

    def plugged_in(
        self,
        levers: Sequence[PassLever],
        chosen: Combination,
        given_flags: str,
        *,
        both_forms: bool = False,
        memory_bytes: int | None = None,
    ) -> Iterator[PluggedIn]:
        """Compile anew with passes of ours inside, each alone, in a process of its own.

        Args:
            levers: the passes.
            chosen: the combination that they are tried with, which was compiled.
            given_flags: what XLA_FLAGS has without it.
            both_forms: try each pass also without asking what XLA leaves of a gain; the
                better one of the two is told.
            memory_bytes: what a step may need; None for any.
        """
        flags = f"{given_flags} {xla_flags(chosen, self.release)}".strip()
        others = variables(chosen, self.release)
        target, machine = self.program.target, self.traced.machine
        without = self._compiled[chosen].after
        with CompileProcess(
            self.program, environment={"XLA_FLAGS": flags, **others}
        ) as process:

            def tried(lever: PassLever) -> PluggedIn:
                installed = {
                    "passes": lever.name,
                    "stage": lever.stage,
                    "target": target,
                }
                key = key_of(
                    "plugged in",
                    flags,
                    repr(others),
                    json.dumps(installed, sort_keys=True),
                    own_sources(),
                    self._compile_key(self.nothing),
                )
                make = partial(compile_for_gpus, process, {}, installed=installed)
                compiled = self._stored_or_made(key, make)
                return PluggedIn(
                    lever,
                    self._price_of(chosen, compiled),
                    changes=compiled.after != without,
                    install=lever.install_text(target, machine),
                )

            for lever in levers:
                forms = lever.forms() if both_forms else (lever,)
                yield min(map(tried, forms), key=lambda each: each.rank(memory_bytes))

    def _from_flags(
        self, flags: str, others: dict[str, str], chosen: Combination
    ) -> Outcome:
        """What XLA makes of XLA_FLAGS and other variables, priced as a combination.

        Raises the errors of `CompileProcess.traced`.
        """
        environment = {"XLA_FLAGS": flags, **others}

        def make() -> CompiledForGpus:
            with CompileProcess(self.program, environment=environment) as process:
                return compile_for_gpus(process, {})

        key = key_of("alone", flags, repr(others), self._compile_key(self.nothing))
        return self._price_of(chosen, self._stored_or_made(key, make))

    def _price_of(self, chosen: Combination, compiled: CompiledForGpus) -> Outcome:
        """What was compiled, priced as a combination."""
        outcome = self._priced(chosen, compiled)
        if outcome is None:
            outcome = self._task(chosen, compiled).price(compiled)
            self._keep_price(chosen, compiled, outcome)
        return outcome

    # -- our scheduler ---------------------------------------------------------

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Price with our scheduler on what was compiled with the other levers."""
        waiting: list[_OrderTask] = []
        for chosen in batch:
            before = self._before(chosen)
            if before is None:
                continue
            task = _OrderTask(chosen, before)
            known = self._stored_outcome(self._order_key(task))
            if known is None:
                waiting.append(task)
            else:
                yield chosen, known
        for task, outcome in self._asked(waiting):
            if not isinstance(outcome, Lost):
                self._keep_outcome(self._order_key(task), outcome)
                yield task.chosen, outcome

    def _before(self, chosen: Combination) -> BeforeScheduling | None:
        """The module that XLA's scheduler received; None if that is not known."""
        for each in (chosen.part("module"), chosen):
            compiled = self._compiled.get(each)
            if compiled is not None and compiled.before:
                if each not in self._ordered:
                    modules = parse(compiled.before), parse(compiled.after)
                    self._ordered[each] = BeforeScheduling(
                        compiled.before,
                        elided_copies(*modules),
                        self.settled,
                        self.rules,
                        rewritten_fusions(*modules),
                    )
                return dataclasses.replace(
                    self._ordered[each], on=self.settled, rules=self.rules
                )
        return None

    # -- tasks and keys --------------------------------------------------------

    def _task_of(self, **fields: Any) -> _GpuTask:
        return _GpuTask(on=self.settled, **fields)

    def _made(self, **fields: Any) -> CompiledForGpus:
        return CompiledForGpus(**fields)

    def _compile_key(self, chosen: Combination) -> str:
        options = compiler_options(chosen, self.release)
        return key_of(
            "compiled",
            self.traced.content,
            self.traced.machine,
            target_text(self.program.target),
            json.dumps(options, sort_keys=True),
            *self._environment(),
            *map(_version, _PACKAGES),
        )

    def _price_key(self, chosen: Combination, compiled: CompiledForGpus) -> str:
        return key_of("priced", compiled.after, compiled.problem, *self._prices(chosen))

    def _order_key(self, task: _OrderTask) -> str:
        before, prices = task.before, self._prices(task.chosen)
        left_out = " ".join(sorted(before.elided))
        rewritten = repr(before.rewritten)
        return key_of("ordered", before.text, left_out, rewritten, *prices)

    def _prices(self, chosen: Combination) -> tuple[str, ...]:
        """All that decides a price, besides the module."""
        on = self.settled
        return (
            repr(chosen.part("schedule").settings),
            repr(on),
            repr(self.rules),
            target_text(on.target),
            *(_contents(getattr(on, name)) for name in _FILES),
            own_sources(),
        )


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} none"


def _contents(path: str) -> str:
    if not path or not pathlib.Path(path).is_file():
        return path
    return hashlib.sha256(read_file(path)).hexdigest()
