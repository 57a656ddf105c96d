"""Tries combinations of levers on a program, with the compiler of either kind.

    for chosen, outcome in evaluator.compiled([evaluator.nothing]): ...
    evaluator.module(evaluator.nothing)

Workers compile and price. What was compiled and priced before, with the same program,
flags, releases, costs and sources of ours, is read from the store.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.ir.module import Module
from hlo_passes.runtime.tuning.compile_process import end_process, process_for
from hlo_passes.runtime.tuning.program import Traced, Tuned
from hlo_passes.runtime.tuning.task import AnyCompiled, Question, Task, answer
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination, compiler_options
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.search import Tried
from hlo_passes.scheduler.tuning.store import Store
from hlo_passes.xla_release import XlaRelease, xla_release

_AnyTuned = TypeVar("_AnyTuned", bound=Tuned)


@dataclass(slots=True)
class ProgramEvaluator(ABC, Generic[_AnyTuned, AnyCompiled]):
    """The `Evaluator` of a program that XLA compiles.

    Attributes:
        nothing: no lever set.
        READ: what the compiler and JAX read of the environment of a compilation.
        program: it.
        rules: of the simulation.
        store: of what was found out before.
        executor: that runs evaluations (`executors.named`); '' for this machine.
        processes: of this machine; 1: evaluations run in this process.
        compilations: how many XLA has run.
    """

    nothing: ClassVar[Combination]
    READ: ClassVar[tuple[str, ...]]

    program: _AnyTuned
    rules: Rules
    store: Store
    executor: str = ""
    processes: int = 1
    compilations: int = 0
    _compiled: dict[Combination, AnyCompiled] = field(default_factory=dict)
    _workers: Evaluator[Any, Any] | None = None

    @property
    def traced(self) -> Traced:
        """What JAX made of the program; errors of `CompileProcess.traced`."""
        return process_for(self.program).traced

    @property
    def release(self) -> XlaRelease:
        """Of JAX, with whose XLA or plug-in the program is compiled."""
        return xla_release(self.traced.release)

    def close(self) -> None:
        """End the workers, and the compiling process of this one."""
        if self._workers is not None:
            self._workers.close()
        end_process()

    def baseline(self) -> AnyCompiled:
        """The program as XLA compiles it without levers."""
        for _ in self.compiled([self.nothing]):
            pass
        return self._compiled[self.nothing]

    def module(self, chosen: Combination) -> Module:
        """The scheduled module of a combination that was compiled."""
        return self._compiled[chosen].to_module()

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
            if task.known is None:
                self.compilations += 1
                self._keep(self._compile_key(chosen), compiled)
            self._compiled[chosen] = compiled
            self._keep_price(chosen, compiled, outcome)
            yield chosen, outcome

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Price with our scheduler, where there is one like the compiler's: none."""
        del batch
        return iter(())

    # -- what differs ----------------------------------------------------------

    @abstractmethod
    def _task_of(self, **fields: Any) -> Task[AnyCompiled]:
        """A task, from the fields that both kinds have."""

    @abstractmethod
    def _made(self, **fields: Any) -> AnyCompiled:
        """What was compiled, from its fields."""

    @abstractmethod
    def _compile_key(self, chosen: Combination) -> str:
        """All that decides what the compiler makes."""

    @abstractmethod
    def _price_key(self, chosen: Combination, compiled: AnyCompiled) -> str:
        """All that decides its price."""

    # -- running ---------------------------------------------------------------

    def _task(
        self, chosen: Combination, known: AnyCompiled | None
    ) -> Task[AnyCompiled]:
        """What a worker is told of a combination."""
        return self._task_of(
            program=self.program,
            rules=self.rules,
            chosen=chosen,
            options=tuple(compiler_options(chosen, self.release).items()),
            known=known,
        )

    def _run(
        self, tasks: Sequence[Task[AnyCompiled]]
    ) -> Iterator[tuple[Task[AnyCompiled], tuple[AnyCompiled, Outcome]]]:
        for task, found in self._asked(tasks):
            if isinstance(found, Lost):
                # The next attempt may have more luck.
                lost = self._made(problem=found.problem, is_certain=False)
                yield task, (lost, Outcome.failed(found.problem))
            else:
                yield task, found

    def _asked(self, questions: Sequence[Question]) -> Iterator[tuple[Any, Any]]:
        """Questions with their answers, in order; `Lost` where workers died."""
        if self._workers is None:
            self._workers = Evaluator(answer, self.executor, self.processes)
        return zip(questions, self._workers.map(questions), strict=True)

    # -- the store -------------------------------------------------------------

    def _known(self, chosen: Combination) -> AnyCompiled | None:
        if chosen in self._compiled:
            return self._compiled[chosen]
        return self._stored(self._compile_key(chosen))

    def _stored(self, key: str) -> AnyCompiled | None:
        data = self.store.read(key)
        return None if data is None else self._made(**json.loads(data))

    def _keep(self, key: str, compiled: AnyCompiled) -> None:
        if compiled.is_certain:
            self.store.write(key, json.dumps(asdict(compiled)).encode())

    def _stored_or_made(self, key: str, make: Callable[[], AnyCompiled]) -> AnyCompiled:
        """What is stored under a key, or else a compilation, which is kept there."""
        compiled = self._stored(key)
        if compiled is None:
            compiled = make()
            self.compilations += 1
            self._keep(key, compiled)
        return compiled

    def _priced(self, chosen: Combination, compiled: AnyCompiled) -> Outcome | None:
        return self._stored_outcome(self._price_key(chosen, compiled))

    def _keep_price(
        self, chosen: Combination, compiled: AnyCompiled, outcome: Outcome
    ) -> None:
        self._keep_outcome(self._price_key(chosen, compiled), outcome)

    def _stored_outcome(self, key: str) -> Outcome | None:
        data = self.store.read(key)
        return None if data is None else Outcome.from_json(json.loads(data))

    def _keep_outcome(self, key: str, outcome: Outcome) -> None:
        self.store.write(key, json.dumps(outcome.to_json()).encode())

    def _environment(self) -> list[str]:
        """'NAME=VALUE' of what is read of the environment, for a key."""
        return [f"{name}={os.environ.get(name, '')}" for name in self.READ]
