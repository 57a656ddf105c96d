"""What the evaluators for GPUs and TPUs share, with a compiler made by hand."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hlo_passes.executors.evaluator import Lost
from hlo_passes.runtime.tuning.compile_process import CompileProcess
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.runtime.tuning.program_evaluator import ProgramEvaluator
from hlo_passes.runtime.tuning.task import Compiled, Question, Task
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.store import Store, key_of
from hlo_passes.xla_release import XlaRelease, xla_release

NOTHING = Combination()
LIMIT = Combination.of({"overlap limit": "2"})
REFUSED = Combination.of({"overlap limit": "4"})
KILLED = Combination.of({"overlap limit": "8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Compiled):
    COMPILER: ClassVar[str] = "nobody"

    module: str = ""

    @property
    def text(self) -> str:
        return self.module


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTask(Task[Made]):
    def compile(self, process: CompileProcess) -> Made:
        if self.chosen == REFUSED:
            return Made(problem="no such flag")
        return Made(module=f"{dict(self.options)}")

    def step(self, compiled: Made) -> Outcome:
        return Outcome(float(len(compiled.module)), module=compiled.digest)


@dataclass(slots=True)
class MadeEvaluator(ProgramEvaluator[Program, Made]):
    nothing: ClassVar[Combination] = NOTHING
    READ: ClassVar[tuple[str, ...]] = ("HLO_PASSES_TEST_FLAGS",)

    @property
    def release(self) -> XlaRelease:
        return xla_release("0.12")

    def _asked(self, questions: Sequence[Question]) -> Iterator[tuple[Any, Any]]:
        for task, found in ProgramEvaluator._asked(self, questions):
            is_lost = task.chosen == KILLED
            yield task, Lost("no memory") if is_lost else found

    def _task_of(self, **fields: Any) -> MadeTask:
        return MadeTask(**fields)

    def _made(self, **fields: Any) -> Made:
        return Made(**fields)

    def _compile_key(self, chosen: Combination) -> str:
        return key_of(chosen.to_text(), *self._environment())

    def _price_key(self, chosen: Combination, compiled: Made) -> str:
        return key_of("price", chosen.to_text(), compiled.text, compiled.problem)


def evaluated(store: Store) -> tuple[dict[Combination, Outcome], int]:
    evaluator = MadeEvaluator(Program("step.mlir"), Rules(), store)
    outcomes = dict(evaluator.compiled([NOTHING, LIMIT, REFUSED, KILLED]))
    evaluator.close()
    return outcomes, evaluator.compilations


def test_what_dies_is_tried_again_and_what_is_refused_is_not(
    tmp_path: pathlib.Path,
) -> None:
    store = Store(str(tmp_path))
    first, compilations = evaluated(store)
    assert compilations == 4
    assert first[LIMIT].step_us > first[NOTHING].step_us > 0.0
    assert first[REFUSED].problem == "no such flag"
    assert first[KILLED].problem == "its worker died: no memory"
    again, compilations = evaluated(store)
    assert again == first
    assert compilations == 1


def test_the_environment_is_part_of_a_key(
    tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    store = Store(str(tmp_path))
    evaluated(store)
    monkeypatch.setenv("HLO_PASSES_TEST_FLAGS", "--other")
    assert evaluated(store)[1] == 4


def test_no_order_is_priced_where_no_scheduler_is_like_the_compilers() -> None:
    evaluator = MadeEvaluator(Program("step.mlir"), Rules(), Store(""))
    assert not list(evaluator.scheduled([NOTHING]))
    assert evaluator.baseline().text == "{}"
    evaluator.close()
