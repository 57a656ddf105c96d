"""Tries combinations of levers on a program for TPUs: the compiler prices them.

    evaluator = TpuEvaluator(program, Rules(), Store.default())
    for chosen, outcome in evaluator.compiled([evaluator.nothing]): ...

Compiling as far as the schedule takes as long as our scheduler does, so no order is
priced with that.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from hlo_passes.errors import HloError
from hlo_passes.runtime.installation.fingerprint import own_sources
from hlo_passes.runtime.tpu_aot import FLAGS_VARIABLE
from hlo_passes.runtime.tuning.compile_process import CompileProcess, process_for
from hlo_passes.runtime.tuning.program_evaluator import ProgramEvaluator
from hlo_passes.runtime.tuning.task import Compiled, Task
from hlo_passes.runtime.tuning.tpu_compile_worker import SCHEDULE_FILE
from hlo_passes.runtime.tuning.tpu_program import TpuProgram
from hlo_passes.scheduler.tpu.comparison import TOTAL, WASTED
from hlo_passes.scheduler.tuning.combination import (
    Combination,
    compiler_options,
    xla_flags,
)
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.store import key_of
from hlo_passes.scheduler.tuning.tpu_outcome import tpu_outcome
from hlo_passes.scheduler.tuning.tpu_result import Recompiled

_PACKAGES: Final = ("jaxlib", "jax", "libtpu")
#: Goes up when `compile_to_tpu_schedule` compiles otherwise.
_WAY: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledForTpus(Compiled):
    """A combination as XLA:TPU compiled it.

    Attributes:
        module: text of the scheduled module, '' where there is none.
        costs: of the compiler's scheduler; {} without.
        needed_bytes: as in `TpuSchedule`, which has the next one, too.
        final_work_us: see there.
    """

    COMPILER: ClassVar[str] = "XLA:TPU"

    module: str = ""
    costs: dict[str, Any] = field(default_factory=dict)
    needed_bytes: int = 0
    final_work_us: float = 0.0

    @property
    def text(self) -> str:
        """Of the scheduled module."""
        return self.module


def _compile_for_tpus(
    process: CompileProcess, options: Mapping[str, Any], *, to_the_end: bool = False
) -> CompiledForTpus:
    """Compile with flags by name; errors of `CompileProcess.answered`."""
    with process.answered(options, {"to_the_end": to_the_end}) as found:
        if found.problem:
            return CompiledForTpus(problem=found.problem, is_certain=found.is_certain)
        text = pathlib.Path(found.folder, SCHEDULE_FILE).read_text()
    return CompiledForTpus(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TpuTask(Task[CompiledForTpus]):
    """A task whose step both statistics give."""

    def compile(self, process: CompileProcess) -> CompiledForTpus:
        return _compile_for_tpus(process, dict(self.options))

    def step(self, compiled: CompiledForTpus) -> Outcome:
        module, costs, digest = compiled.module, compiled.costs, compiled.digest
        try:
            return tpu_outcome(module, costs, self.rules, digest=digest)
        except HloError as problem:
            return Outcome.failed(problem.message.splitlines()[0])


@dataclass(slots=True)
class TpuEvaluator(ProgramEvaluator[TpuProgram, CompiledForTpus]):
    """The `Evaluator` of a program for absent TPUs."""

    nothing: ClassVar[Combination] = Combination(family="tpu")
    READ: ClassVar[tuple[str, ...]] = (FLAGS_VARIABLE, "XLA_FLAGS", "JAX_ENABLE_X64")

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
            outcome=self._task(chosen, alone).price(alone),
            problem=whole.problem,
            equal=sum(before.get(name) == pair for name, pair in after.items()),
            computations=len(after),
            needed_bytes=whole.needed_bytes,
            final_work_us=whole.final_work_us,
            baseline_final_work_us=baseline.final_work_us,
            seconds=whole.seconds,
        )

    def _from_flags(self, flags: str, ends: Sequence[bool]) -> list[CompiledForTpus]:
        """Compilations in one new process: as far as the schedule, or to the end."""
        key = key_of("tpu alone", flags, self._compile_key(self.nothing))
        # The flags of the user are in the text already.
        program = dataclasses.replace(self.program, flags=())
        environment = {FLAGS_VARIABLE: flags}
        with CompileProcess(program, environment=environment) as process:

            def make(to_the_end: bool) -> CompiledForTpus:
                # One compiler's memory at a time; the search's process starts again
                # when it is needed.
                process_for(self.program).close()
                return _compile_for_tpus(process, {}, to_the_end=to_the_end)

            return [
                self._stored_or_made(key_of(key, str(end)), partial(make, end))
                for end in ends
            ]

    # -- tasks and keys --------------------------------------------------------

    def _task_of(self, **fields: Any) -> _TpuTask:
        return _TpuTask(**fields)

    def _made(self, **fields: Any) -> CompiledForTpus:
        return CompiledForTpus(**fields)

    def _compile_key(self, chosen: Combination) -> str:
        options = compiler_options(chosen, self.release)
        return key_of(
            "compiled for tpu",
            _WAY,
            self.traced.content,
            self.program.grid.name,
            str(self.program.slices),
            json.dumps([self.program.flags, options], sort_keys=True),
            *self._environment(),
            *(importlib.metadata.version(name) for name in _PACKAGES),
        )

    def _price_key(self, chosen: Combination, compiled: CompiledForTpus) -> str:
        del chosen
        return key_of(
            "priced for tpu",
            compiled.module,
            json.dumps(compiled.costs, sort_keys=True),
            compiled.problem,
            repr(self.rules),
            own_sources(),
        )


def _totals(compiled: CompiledForTpus) -> dict[str, tuple[float, float]]:
    """(total, wasted) cycles of what the compiler's scheduler looked at."""
    after = compiled.costs.get("statistics", {}).get("after", {})
    return {
        name: (figures.get(TOTAL, 0.0), figures.get(WASTED, 0.0))
        for name, figures in after.items()
    }
