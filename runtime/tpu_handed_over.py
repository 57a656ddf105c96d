"""Runs our passes inside XLA:TPU's compilation, and compares with XLA:TPU alone.

    alone = compile_alone_for_tpu("model.py:step", grid)
    both = hand_to_tpu(alone, passes="schedule-improver")
    both.alone, both.ours          two compilations
    both.moved                     instructions that the passes put elsewhere
    both.kept, both.common         of those in the executable too, how many stayed there

The first compilation gives the costs that the passes price with. At `post-scheduler`
the order given is the order of the executable. At `pre-scheduler` XLA's scheduler is
still to run: an order is pinned there by control edges (`installation/for_tpu.py`), and
the log then has XLA's own statistic of it.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.proto import module_from_proto
from hlo_passes.runtime import tpu_aot
from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.handed_over import RefusedError
from hlo_passes.runtime.installation.for_tpu import (
    NOWHERE,
    SCHEDULERS,
    unpinnable,
)
from hlo_passes.runtime.installation.install import (
    Installation,
    Registrations,
    install,
)
from hlo_passes.runtime.tpu_aot import Grid
from hlo_passes.runtime.tpu_program import (
    FINAL,
    CompiledForTpu,
    compile_program,
    flags_of,
    tpu_program,
)
from hlo_passes.scheduler.tpu.comparison import (
    Figures,
    figures_of,
    logged_figures,
    without_figures,
)

_PRE: Final = "pre-scheduler"
#: XLA's word if its verifier refuses the result of a callback.
_IN_TRANSFORMATION: Final = "apply-xla-transforms"
#: Why an order could not be given to XLA:TPU.
_CUT: Final = (
    "the order stays the compiler's, whose all-gathers are cut into fusions with what "
    "they overlap"
)


@dataclass(frozen=True, slots=True)
class HandedToTpu:
    """A program compiled twice for absent TPUs: alone, and with passes inside.

    Attributes:
        alone: by XLA:TPU alone.
        ours: with the passes inside.
        stage: at which they ran.
        changed: modules that they changed.
        settled: computations whose order could not be given to XLA:TPU, and why.
        moved: instructions that they put elsewhere; only what takes time counts here.
        common: instructions of theirs that the executable has, too.
        kept: of these, those in the place where the passes put them.
        given: (total, wasted) cycles of the order given, by computation: XLA's own
            statistic at `pre-scheduler`, else ours. Of computations that are not
            pinned it is that of the order that XLA:TPU's scheduler makes then.
        original: the same of the order of XLA's scheduler, by its own statistic.
        unpriced: computations with work that the compiler's costs lack, and which. Our
            schedulers leave their order, and they have no statistic of ours: the
            compiler cut all-gathers into fusions, or a pass made the work.
    """

    alone: CompiledForTpu
    ours: CompiledForTpu
    stage: str
    changed: int
    settled: Mapping[str, str]
    moved: int
    common: int
    kept: int
    given: Mapping[str, Figures]
    original: Mapping[str, Figures]
    unpriced: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Keys for `compile --json`."""
        return {
            "stage": self.stage,
            "changed_modules": self.changed,
            "order_stays": list(self.settled),
            "without_costs": dict(self.unpriced),
            "moved_instructions": self.moved,
            "common_instructions": self.common,
            "instructions_in_place": self.kept,
            "statistic_by": "xla" if self.stage == _PRE else "ours",
            "with_passes": [
                {
                    "name": name,
                    "xla_total_cycles": self.original[name][0],
                    "xla_wasted_cycles": self.original[name][1],
                    "total_cycles": total,
                    "wasted_cycles": wasted,
                }
                for name, (total, wasted) in self.given.items()
            ],
        }

    def to_text(self) -> str:
        """What became of the passes, in lines."""
        mhz = self.alone.costs().mhz if self.alone.log.rounds else 0.0
        whose = "XLA:TPU's statistic" if self.stage == _PRE else "our statistic"
        lines = [
            f"passes at {self.stage}: accepted by XLA:TPU, "
            f"{counted(self.changed, 'module')} changed, "
            f"{counted(self.moved, 'instruction')} moved",
            f"{self.kept} of {self.common} instructions are in the executable where "
            "the passes put them",
        ]
        lines += [f"%{name}: {why}" for name, why in self.settled.items()]
        lines += [
            f"%{name}: {why}, so our schedulers leave its order and have no statistic "
            "of it"
            for name, why in self.unpriced.items()
        ]
        for name, (total, wasted) in self.given.items():
            before, exposed = self.original[name]
            one, other, two, three = (
                cycles / mhz / 1000.0 for cycles in (before, exposed, total, wasted)
            )
            lines.append(
                f"%{name}: {one:.3f} ms, {other:.3f} exposed -> {two:.3f} ms, "
                f"{three:.3f} exposed ({whose} of the order given)"
            )
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class AloneOnTpu:
    """A program that XLA:TPU compiled alone, to be compiled with passes.

    Attributes:
        function: FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.
        program: it, for these chips.
        compiled: by XLA:TPU alone, with its log.
    """

    function: str
    program: Compilation
    compiled: CompiledForTpu


def compile_alone_for_tpu(
    function: str,
    grid: Grid,
    *,
    arguments: str = "",
    flags: Sequence[str] = (),
) -> AloneOnTpu:
    """Compile what a user names for absent TPUs, without passes.

    Arguments and errors are those of `compile_for_tpu`; NoTpuCompilerError R007 where
    this jax calls no passes.
    """
    tpu_aot.require_passes_in_tpu_compilations()
    options = flags_of(flags)
    tpu_aot.ask_for_log()
    program = tpu_program(function, grid, arguments)
    compiled = compile_program(program, grid, options, with_log=True)
    return AloneOnTpu(function, program, compiled)


def hand_to_tpu(
    alone: AloneOnTpu, *, passes: str, stage: str = "post-scheduler"
) -> HandedToTpu:
    """Compile a program again, with passes inside that price with its own costs.

    Args:
        alone: from `compile_alone_for_tpu`.
        passes: a pipeline's text.
        stage: `pre-scheduler` or `post-scheduler`.

    Raises:
        HloError: as `runtime.install` and the passes.
        CompilationError: R004, a scheduler for a program with nothing asynchronous.
        RefusedError: E040, XLA:TPU refuses the result of the passes.
        UsageError: U028, the program has nothing for these passes.
    """
    if needs_costs(Pipeline.parse(passes)):
        alone.compiled.costs()  # refuses a program that has none
    with tempfile.TemporaryDirectory(prefix="hlo-passes-costs-") as folder:
        on = _pricing_of(alone.compiled, pathlib.Path(folder) / "costs.json")
        # A look before and after the passes shows what XLA:TPU gave and took.
        with (
            _watched(stage) as came,
            install(
                passes,
                stage=stage,
                platforms=tpu_aot.PLATFORM,
                multiprocess="off",
                context=PassContext(on),
            ) as installed,
            _watched(stage) as went,
        ):
            ours = _with_passes(alone, installed)
    if not installed.fired or not went:
        raise UsageError(
            f"the passes ran in none of {counted(installed.seen, 'module')} of "
            f"{alone.function}",
            code="U028",
            hint="they look for communication, but the program has none",
        )
    return _compared(alone.compiled, ours, installed, _largest(came), _largest(went))


def needs_costs(pipeline: Pipeline) -> bool:
    """Whether a pass of ours orders by the compiler's costs."""
    return any(each.name in SCHEDULERS for each in pipeline.passes)


def _pricing_of(alone: CompiledForTpu, file: pathlib.Path) -> Pricing:
    """The compiler's own costs; none where nothing is asynchronous."""
    if not alone.log.rounds:
        return Pricing()
    file.write_text(json.dumps(alone.costs().to_json()))
    return Pricing(costs=str(file))


@contextlib.contextmanager
def _watched(stage: str) -> Iterator[list[bytes]]:
    """The modules that pass by at a stage."""
    seen: list[bytes] = []
    registrations = Registrations(stage)
    registrations.add(tpu_aot.PLATFORM, seen.append)
    try:
        yield seen
    finally:
        registrations.clear()


def _with_passes(alone: AloneOnTpu, installed: Installation) -> CompiledForTpu:
    """The same compilation again; errors of a pass are raised as they are."""
    before = alone.compiled
    try:
        return compile_program(alone.program, before.grid, before.flags, with_log=True)
    except CompilationError as problem:
        for failure in installed.failures:
            raise failure from None
        if _IN_TRANSFORMATION in str(problem):
            raise RefusedError(
                f"XLA:TPU refuses the result of the passes: {problem.message}"
            ) from problem
        raise


def _largest(modules: Sequence[bytes]) -> Module:
    return module_from_proto(max(modules, key=len), filename="<compiled by XLA:TPU>")


def _compared(
    alone: CompiledForTpu,
    ours: CompiledForTpu,
    installed: Installation,
    came: Module,
    went: Module,
) -> HandedToTpu:
    moved, _ = _elsewhere(came, went)
    elsewhere, common = _elsewhere(went, ours.module(FINAL))
    settled = [name for report in installed.reports for name in report.kept]
    # Figures of the order given, where each of its instructions has a price.
    given: dict[str, Figures] = {}
    original: Mapping[str, Figures] = {}
    unpriced: dict[str, str] = {}
    if alone.log.rounds:
        original = logged_figures(alone.log, "after")
        unpriced = without_figures(went, alone.costs())
        if installed.stage == _PRE:
            # What is not pinned has the order that XLA:TPU's scheduler then made.
            made = logged_figures(ours.log, "after")
            figures = logged_figures(ours.log, "before")
            figures |= {name: made[name] for name in settled if name in made}
        else:
            figures = figures_of(went, alone.costs())
        given = {name: pair for name, pair in figures.items() if name in original}
    return HandedToTpu(
        alone,
        ours,
        installed.stage,
        installed.changed,
        _why_they_stay(settled, installed.stage, went),
        moved,
        common,
        common - elsewhere,
        given,
        original,
        unpriced,
    )


def _why_they_stay(names: Sequence[str], stage: str, went: Module) -> dict[str, str]:
    """Why orders of computations could not be given to XLA:TPU."""
    if stage != _PRE:
        return dict.fromkeys(names, _CUT)
    reasons = {each.name: f": {why}" for each, why in unpinnable(went).items()}
    # A computation of a smaller module, which passes saw too, has none here.
    return {
        name: f"the order is not pinned{reasons.get(name, '')}. XLA:TPU's scheduler "
        "decides again"
        for name in names
    }


def _elsewhere(before: Module, after: Module) -> tuple[int, int]:
    """(instructions of both in another place among these, instructions of both).

    Only what takes time counts, and only where an order counts: not inside fusions.
    """
    elsewhere = total = 0
    for computation in scheduled_computations(before):
        other = after.computation(computation.name)
        if other is None:
            continue
        old, new = (
            [i.name for i in each.instructions if i.opcode not in NOWHERE]
            for each in (computation, other)
        )
        common = set(old) & set(new)
        old, new = ([n for n in names if n in common] for names in (old, new))
        total += len(common)
        elsewhere += sum(one != two for one, two in zip(old, new, strict=True))
    return elsewhere, total
