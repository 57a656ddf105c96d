"""Tries combinations of levers on a program: XLA compiles, the simulator prices.

    evaluator = XlaEvaluator(program, on, rules, Store.default())
    for chosen, outcome in evaluator.compiled([Combination()]): ...

What was compiled and priced before, with the same program, flags, releases, costs and
sources of ours, is read from the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hlo_passes.errors import HloError
from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.files import read_file
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.installation.fingerprint import own_sources
from hlo_passes.runtime.tuning import compile_process
from hlo_passes.runtime.tuning.compile_process import CompileProcess
from hlo_passes.runtime.tuning.program import Program, Traced, Tuned
from hlo_passes.scheduler.hardware.target import target_text
from hlo_passes.scheduler.simulation.rules import Rules
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
    simulated,
)
from hlo_passes.scheduler.tuning.search import Tried
from hlo_passes.scheduler.tuning.store import Store, key_of
from hlo_passes.text.reader import parse
from hlo_passes.xla_release import XlaRelease, xla_release

_PACKAGES: Final = ("jaxlib", "jax", "jax-cuda12-plugin", "jax-cuda12-pjrt")
#: What XLA and JAX read of the environment of a compilation.
_READ: Final = ("XLA_FLAGS", "JAX_OPTIMIZATION_LEVEL", "JAX_ENABLE_X64")
_FILES: Final = ("costs", "profile", "collective_perf_table", "matmul_perf_table")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A combination as XLA compiled it.

    Attributes:
        before: text of the module that XLA's scheduler received, '' without.
        after: text of the scheduled module, '' where there is none.
        problem: why there is none.
        seconds: that XLA took.
        is_certain: whether the next attempt would give the same.
    """

    before: str
    after: str
    problem: str = ""
    seconds: float = 0.0
    is_certain: bool = True

    def to_bytes(self) -> bytes:
        """As the store keeps it."""
        return json.dumps(dataclasses.asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class Task:
    """What one evaluation needs to know, in whichever process it runs."""

    program: Program
    on: Pricing
    rules: Rules
    chosen: Combination
    options: tuple[tuple[str, Any], ...]
    compiled: Compiled | None = None


#: The process that compiles for this one, with its program.
_process: tuple[Tuned, CompileProcess] | None = None


def process_for(program: Tuned) -> CompileProcess:
    """This process's compiling process; one at a time."""
    global _process
    if _process is None or _process[0] != program:
        end_process()
        _process = program, CompileProcess(program)
    return _process[1]


def end_process() -> None:
    """End this process's compiling process."""
    global _process
    if _process is not None:
        _process[1].close()
        _process = None


def evaluate(task: Task) -> tuple[Compiled, Outcome]:
    """Compile, unless the task has the result already, and price."""
    compiled = task.compiled
    if compiled is None:
        process = process_for(task.program)
        compiled = _compiled_of(process.compile(dict(task.options)))
    return compiled, price(task, compiled)


def _compiled_of(found: compile_process.Compiled) -> Compiled:
    if found.module is None:
        return Compiled("", "", found.problem, is_certain=found.is_certain)
    module = found.module
    return Compiled(module.before, module.after, seconds=module.seconds)


def price(task: Task, compiled: Compiled) -> Outcome:
    """The step of what was compiled."""
    if compiled.problem:
        return Outcome.failed(compiled.problem)
    digest = hashlib.sha256(compiled.after.encode()).hexdigest()
    try:
        module = parse(compiled.after, filename="<scheduled by XLA>")
        return simulated(module, task.chosen, task.on, task.rules, digest=digest)
    except HloError as problem:
        return Outcome.failed(problem.render().splitlines()[0])


def answer(
    question: Task | tuple[Combination, BeforeScheduling],
) -> tuple[Compiled, Outcome] | Outcome:
    """What is asked of a worker: to compile and price, or to order and price."""
    if isinstance(question, Task):
        return evaluate(question)
    chosen, before = question
    return order(before, chosen)


def order(before: BeforeScheduling, chosen: Combination) -> Outcome:
    """Our scheduler's step, in whichever process it runs."""
    return before.price(chosen)


@dataclass(slots=True)
class XlaEvaluator:
    """The `Evaluator` of a program that XLA compiles.

    Attributes:
        program: it.
        on: the machine and the source of costs.
        rules: of the simulation.
        store: of what was found out before.
        executor: that runs evaluations (`executors.named`); '' for this machine.
        processes: of this machine; 1: evaluations run in this process.
        compilations: how many XLA has run.
    """

    program: Program
    on: Pricing
    rules: Rules
    store: Store
    executor: str = ""
    processes: int = 1
    compilations: int = 0
    _compiled: dict[Combination, Compiled] = field(default_factory=dict)
    _elided: dict[Combination, frozenset[str]] = field(default_factory=dict)
    _sources: str = ""
    _workers: Evaluator[Any, Any] | None = None

    def __post_init__(self) -> None:
        """Trace the program. Raises the errors of `CompileProcess.traced`."""
        self.on = dataclasses.replace(
            self.on, topology=self.traced.machine, hosts=None, gpus_per_host=None
        )
        self._sources = own_sources()

    @property
    def traced(self) -> Traced:
        """What JAX made of the program."""
        return process_for(self.program).traced

    @property
    def release(self) -> XlaRelease:
        """That compiles."""
        return xla_release(self.traced.release)

    def close(self) -> None:
        """End the workers, and the compiling process of this one."""
        if self._workers is not None:
            self._workers.close()
        end_process()

    def baseline(self) -> Compiled:
        """The program as XLA compiles it without levers."""
        for _ in self.compiled([Combination()]):
            pass
        return self._compiled[Combination()]

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

    def _from_flags(
        self, flags: str, others: dict[str, str], chosen: Combination
    ) -> Outcome:
        """What XLA makes of XLA_FLAGS and other variables, priced as a combination.

        Raises the errors of `CompileProcess.traced`.
        """
        key = key_of("alone", flags, repr(others), self._compile_key(Combination()))
        data = self.store.read(key)
        if data is None:
            environment = {"XLA_FLAGS": flags, **others}
            with CompileProcess(self.program, environment=environment) as process:
                compiled = _compiled_of(process.compile({}))
            self.compilations += 1
            if compiled.is_certain:
                self.store.write(key, compiled.to_bytes())
        else:
            compiled = Compiled(**json.loads(data))
        outcome = self._priced(chosen, compiled)
        if outcome is None:
            outcome = price(self._task(chosen, compiled), compiled)
            self._keep_price(chosen, compiled, outcome)
        return outcome

    # -- the search's two questions --------------------------------------------

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Compile and price, each when it is ready."""
        tasks = []
        for chosen in batch:
            known = self._known(chosen)
            outcome = None
            if known is not None:
                self._compiled[chosen] = known
                outcome = self._priced(chosen, known)
            if outcome is None:
                tasks.append(self._task(chosen, known))
            else:
                yield chosen, outcome
        for task, (compiled, outcome) in self._run(tasks):
            chosen = task.chosen
            if task.compiled is None:
                self.compilations += 1
                self._keep(chosen, compiled)
            self._compiled[chosen] = compiled
            self._keep_price(chosen, compiled, outcome)
            yield chosen, outcome

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Price with our scheduler on what was compiled with the other levers."""
        waiting: list[tuple[Combination, BeforeScheduling]] = []
        for chosen in batch:
            before = self.before(chosen)
            if before is None:
                continue
            key = self._order_key(chosen, before)
            known = self.store.read(key)
            if known is None:
                waiting.append((chosen, before))
            else:
                yield chosen, Outcome.from_json(json.loads(known))
        for (chosen, before), outcome in self._order(waiting):
            data = json.dumps(outcome.to_json()).encode()
            self.store.write(self._order_key(chosen, before), data)
            yield chosen, outcome

    # -- what is known ---------------------------------------------------------

    def before(self, chosen: Combination) -> BeforeScheduling | None:
        """The module that XLA's scheduler received; None if that is not known."""
        for each in (chosen.part("module"), chosen):
            compiled = self._compiled.get(each)
            if compiled is not None and compiled.before:
                if each not in self._elided:
                    modules = parse(compiled.before), parse(compiled.after)
                    self._elided[each] = elided_copies(*modules)
                return BeforeScheduling(
                    compiled.before, self._elided[each], self.settled, self.rules
                )
        return None

    def module(self, chosen: Combination) -> Module:
        """The scheduled module of a combination that was compiled."""
        return parse(self._compiled[chosen].after, filename="<scheduled by XLA>")

    def text(self, chosen: Combination) -> str:
        """The same as text."""
        return self._compiled[chosen].after

    def seconds(self) -> float:
        """What XLA took for a compilation on average; 0 before the first one."""
        times = [c.seconds for c in self._compiled.values() if c.seconds]
        return sum(times) / len(times) if times else 0.0

    @property
    def settled(self) -> Pricing:
        """The pricing, with the release that compiles."""
        return dataclasses.replace(self.on, xla=self.on.xla or self.traced.release)

    def _task(self, chosen: Combination, known: Compiled | None) -> Task:
        options = tuple(compiler_options(chosen, self.release).items())
        return Task(self.program, self.settled, self.rules, chosen, options, known)

    def _run(
        self, tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, tuple[Compiled, Outcome]]]:
        for task, found in self._asked(tasks):
            if isinstance(found, Lost):
                problem = f"its worker died: {found.reason}"
                # The next attempt may have more luck.
                lost = Compiled("", "", problem, is_certain=False)
                yield task, (lost, Outcome.failed(problem))
            else:
                yield task, found

    def _order(
        self, waiting: Sequence[tuple[Combination, BeforeScheduling]]
    ) -> Iterator[tuple[tuple[Combination, BeforeScheduling], Outcome]]:
        for each, found in self._asked(waiting):
            if not isinstance(found, Lost):
                yield each, found

    def _asked(self, questions: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Questions with their answers, in order; `Lost` where workers died."""
        if self._workers is None:
            self._workers = Evaluator(answer, self.executor, self.processes)
        return zip(questions, self._workers.map(questions), strict=True)

    # -- the store -------------------------------------------------------------

    def _known(self, chosen: Combination) -> Compiled | None:
        if chosen in self._compiled:
            return self._compiled[chosen]
        data = self.store.read(self._compile_key(chosen))
        return None if data is None else Compiled(**json.loads(data))

    def _keep(self, chosen: Combination, compiled: Compiled) -> None:
        if compiled.is_certain:
            self.store.write(self._compile_key(chosen), compiled.to_bytes())

    def _priced(self, chosen: Combination, compiled: Compiled) -> Outcome | None:
        data = self.store.read(self._price_key(chosen, compiled))
        return None if data is None else Outcome.from_json(json.loads(data))

    def _keep_price(
        self, chosen: Combination, compiled: Compiled, outcome: Outcome
    ) -> None:
        data = json.dumps(outcome.to_json()).encode()
        self.store.write(self._price_key(chosen, compiled), data)

    def _compile_key(self, chosen: Combination) -> str:
        options = compiler_options(chosen, self.release)
        return key_of(
            "compiled",
            self.traced.content,
            self.traced.machine,
            target_text(self.program.target),
            json.dumps(options, sort_keys=True),
            *(f"{name}={os.environ.get(name, '')}" for name in _READ),
            *map(_version, _PACKAGES),
        )

    def _price_key(self, chosen: Combination, compiled: Compiled) -> str:
        return key_of("priced", compiled.after, compiled.problem, *self._prices(chosen))

    def _order_key(self, chosen: Combination, before: BeforeScheduling) -> str:
        left_out = " ".join(sorted(before.elided))
        return key_of("ordered", before.text, left_out, *self._prices(chosen))

    def _prices(self, chosen: Combination) -> tuple[str, ...]:
        """All that decides a price, besides the module."""
        on = self.settled
        return (
            repr(chosen.part("schedule").settings),
            repr(on),
            repr(self.rules),
            target_text(on.target),
            *(_contents(getattr(on, name)) for name in _FILES),
            self._sources,
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
