"""Tries combinations of levers of XLA:TPU on a program: the compiler prices them.

    evaluator = TpuEvaluator(program, Rules(), Store.default())
    for chosen, outcome in evaluator.compiled([evaluator.nothing]): ...

What was compiled and priced before, with the same program, flags, releases and sources
of ours, is read from the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hlo_passes.errors import HloError
from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.ir.module import Module
from hlo_passes.runtime.installation.fingerprint import own_sources
from hlo_passes.runtime.tuning.compile_process import CompileProcess
from hlo_passes.runtime.tuning.evaluation import end_process, process_for
from hlo_passes.runtime.tuning.program import Traced
from hlo_passes.runtime.tuning.tpu_compile_worker import SCHEDULE_FILE
from hlo_passes.runtime.tuning.tpu_program import TpuProgram
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tpu.comparison import TOTAL, WASTED
from hlo_passes.scheduler.tuning.combination import (
    Combination,
    compiler_options,
    xla_flags,
)
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.search import Tried
from hlo_passes.scheduler.tuning.store import Store, key_of
from hlo_passes.scheduler.tuning.tpu_outcome import tpu_outcome
from hlo_passes.scheduler.tuning.tpu_result import Recompiled
from hlo_passes.text.reader import parse
from hlo_passes.xla_release import XlaRelease, xla_release

_PACKAGES: Final = ("jaxlib", "jax", "libtpu")
#: What libtpu and JAX read of the environment of a compilation.
FLAGS_VARIABLE: Final = "LIBTPU_INIT_ARGS"
_READ: Final = (FLAGS_VARIABLE, "XLA_FLAGS", "JAX_ENABLE_X64")
#: Goes up when `compile_to_tpu_schedule` compiles otherwise.
_WAY: Final = "2"
_NOTHING: Final = Combination(family="tpu")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A combination as XLA:TPU compiled it.

    Attributes:
        module: text of the scheduled module, '' where there is none.
        costs: of the compiler's scheduler; {} without.
        problem: why there is no module.
        seconds: that XLA took.
        needed_bytes: as in `TpuSchedule`, which has the next one, too.
        final_work_us: see there.
        is_certain: whether the next attempt would give the same.
    """

    module: str = ""
    costs: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0
    needed_bytes: int = 0
    final_work_us: float = 0.0
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """What one evaluation needs to know, in whichever process it runs."""

    program: TpuProgram
    rules: Rules
    chosen: Combination
    options: tuple[tuple[str, Any], ...]
    compiled: Compiled | None = None


def evaluate(task: Task) -> tuple[Compiled, Outcome]:
    """Compile, unless the task has the result already, and price."""
    compiled = task.compiled
    if compiled is None:
        compiled = _compile(process_for(task.program), dict(task.options))
    return compiled, price(compiled, task.rules)


def _compile(
    process: CompileProcess, options: Mapping[str, Any], *, to_the_end: bool = False
) -> Compiled:
    with process.answered(options, {"to_the_end": to_the_end}) as found:
        if found.problem:
            return Compiled(problem=found.problem, is_certain=found.is_certain)
        text = pathlib.Path(found.folder, SCHEDULE_FILE).read_text()
    return Compiled(**json.loads(text))


def price(compiled: Compiled, rules: Rules) -> Outcome:
    """The step of what was compiled, by both statistics."""
    if compiled.problem:
        return Outcome.failed(compiled.problem)
    digest = hashlib.sha256(compiled.module.encode()).hexdigest()
    try:
        return tpu_outcome(compiled.module, compiled.costs, rules, digest=digest)
    except HloError as problem:
        return Outcome.failed(problem.message.splitlines()[0])


@dataclass(slots=True)
class TpuEvaluator:
    """The `Evaluator` of a program for absent TPUs.

    Attributes:
        program: it.
        rules: of the simulation.
        store: of what was found out before.
        executor: that runs evaluations (`executors.named`); '' for this machine.
        processes: of this machine; 1: evaluations run in this process.
        compilations: how many XLA has run.
    """

    program: TpuProgram
    rules: Rules
    store: Store
    executor: str = ""
    processes: int = 1
    compilations: int = 0
    _compiled: dict[Combination, Compiled] = field(default_factory=dict)
    _workers: Evaluator[Any, Any] | None = None

    @property
    def nothing(self) -> Combination:
        """No lever set."""
        return _NOTHING

    @property
    def traced(self) -> Traced:
        """What JAX made of the program; errors of `CompileProcess.traced`."""
        return process_for(self.program).traced

    @property
    def release(self) -> XlaRelease:
        """Of JAX, whose compiler for TPUs is libtpu's."""
        return xla_release(self.traced.release)

    def close(self) -> None:
        """End the workers, and the compiling process of this one."""
        if self._workers is not None:
            self._workers.close()
        end_process()

    def baseline(self) -> Compiled:
        """The program as XLA compiles it without levers."""
        for _ in self.compiled([_NOTHING]):
            pass
        return self._compiled[_NOTHING]

    def module(self, chosen: Combination) -> Module:
        """The scheduled module of a combination that was compiled."""
        return parse(self._compiled[chosen].module, filename="<scheduled by XLA:TPU>")

    # -- the search's two questions --------------------------------------------

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Compile and price, each when it is ready."""
        tasks = []
        for chosen in batch:
            known = self._known(chosen)
            outcome = None
            if known is not None:
                self._compiled[chosen] = known
                outcome = self._priced(known)
            if outcome is None:
                options = tuple(compiler_options(chosen, self.release).items())
                tasks.append(Task(self.program, self.rules, chosen, options, known))
            else:
                yield chosen, outcome
        for task, (compiled, outcome) in self._run(tasks):
            if task.compiled is None:
                self.compilations += 1
                self._keep(self._compile_key(task.chosen), compiled)
            self._compiled[task.chosen] = compiled
            self._keep_price(compiled, outcome)
            yield task.chosen, outcome

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Nothing: compiling as far as the schedule takes as long as ours."""
        del batch
        return iter(())

    # -- from scratch ----------------------------------------------------------

    def alone(self, chosen: Combination, given_flags: str) -> Recompiled:
        """Compile anew from the flags of LIBTPU_INIT_ARGS, in a process of its own.

        Once as far as the schedule, and once to the end as a user does; the program
        without levers is compiled to the end, too.

        Args:
            chosen: what the flags say.
            given_flags: what LIBTPU_INIT_ARGS has without them.
        """
        flags = f"{given_flags} {xla_flags(chosen, self.release)}".strip()
        alone, whole = self._from_flags(flags, (False, True))
        (baseline,) = self._from_flags(given_flags, (True,))
        before, after = _totals(self._compiled[chosen]), _totals(whole)
        return Recompiled(
            outcome=price(alone, self.rules),
            problem=whole.problem,
            equal=sum(before.get(name) == pair for name, pair in after.items()),
            computations=len(after),
            needed_bytes=whole.needed_bytes,
            final_work_us=whole.final_work_us,
            baseline_final_work_us=baseline.final_work_us,
            seconds=whole.seconds,
        )

    def _from_flags(self, flags: str, ends: Sequence[bool]) -> list[Compiled]:
        """Compilations in one new process: as far as the schedule, or to the end."""
        key = key_of("tpu alone", flags, self._compile_key(_NOTHING))
        found = {end: self._stored(key_of(key, str(end))) for end in ends}
        if None in found.values():
            # One compiler's memory at a time; the search's process starts again when it
            # is needed. The flags of the user are in the text already.
            process_for(self.program).close()
            program = dataclasses.replace(self.program, flags=())
            environment = {FLAGS_VARIABLE: flags}
            with CompileProcess(program, environment=environment) as process:
                for end in ends:
                    if found[end] is None:
                        compiled = _compile(process, {}, to_the_end=end)
                        self.compilations += 1
                        self._keep(key_of(key, str(end)), compiled)
                        found[end] = compiled
        return [compiled for compiled in found.values() if compiled is not None]

    # -- running ---------------------------------------------------------------

    def _run(
        self, tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, tuple[Compiled, Outcome]]]:
        if self._workers is None:
            self._workers = Evaluator(evaluate, self.executor, self.processes)
        for task, found in zip(tasks, self._workers.map(tasks), strict=True):
            if isinstance(found, Lost):
                problem = f"its worker died: {found.reason}"
                # The next attempt may have more luck.
                lost = Compiled(problem=problem, is_certain=False)
                yield task, (lost, Outcome.failed(problem))
            else:
                yield task, found

    # -- the store -------------------------------------------------------------

    def _known(self, chosen: Combination) -> Compiled | None:
        if chosen in self._compiled:
            return self._compiled[chosen]
        return self._stored(self._compile_key(chosen))

    def _stored(self, key: str) -> Compiled | None:
        data = self.store.read(key)
        return None if data is None else Compiled(**json.loads(data))

    def _keep(self, key: str, compiled: Compiled) -> None:
        if compiled.is_certain:
            self.store.write(key, json.dumps(asdict(compiled)).encode())

    def _priced(self, compiled: Compiled) -> Outcome | None:
        data = self.store.read(self._price_key(compiled))
        return None if data is None else Outcome.from_json(json.loads(data))

    def _keep_price(self, compiled: Compiled, outcome: Outcome) -> None:
        data = json.dumps(outcome.to_json()).encode()
        self.store.write(self._price_key(compiled), data)

    def _compile_key(self, chosen: Combination) -> str:
        options = compiler_options(chosen, self.release)
        return key_of(
            "compiled for tpu",
            _WAY,
            self.traced.content,
            self.program.grid.name,
            str(self.program.slices),
            json.dumps([self.program.flags, options], sort_keys=True),
            *(f"{name}={os.environ.get(name, '')}" for name in _READ),
            *(importlib.metadata.version(name) for name in _PACKAGES),
        )

    def _price_key(self, compiled: Compiled) -> str:
        return key_of(
            "priced for tpu",
            compiled.module,
            json.dumps(compiled.costs, sort_keys=True),
            compiled.problem,
            repr(self.rules),
            own_sources(),
        )


def _totals(compiled: Compiled) -> dict[str, tuple[float, float]]:
    """(total, wasted) cycles of what the compiler's scheduler looked at."""
    after = compiled.costs.get("statistics", {}).get("after", {})
    return {
        name: (figures.get(TOTAL, 0.0), figures.get(WASTED, 0.0))
        for name, figures in after.items()
    }
