"""Random JAX programs, with and without our passes: the same bits, or a refusal.

    python -m tests.runtime.random_programs --programs=150 --seed=7 --jobs=2
    python -m tests.runtime.random_programs --only=scheduled,post-scheduler
    python -m tests.runtime.random_programs --programs=1 --seed=7 --first=31 --show

Each program of `jax_generator.py` runs as JAX runs it. Then, with a random pipeline:

    partitioned, scheduled           lower at that stage -> passes -> `runtime.load`
    pre-scheduler, post-scheduler    `runtime.install` at that stage

A difference counts as ours if the program without passes, but through `load`, agrees
with JAX: XLA's own simplifications are not always right. Programs run in processes that
may die; the count then names the program.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

from tests.fuzz import campaign

LOADED: Final = ("partitioned", "scheduled")
INSTALLED: Final = ("pre-scheduler", "post-scheduler")
DEVICES: Final = 8

#: What passes and loading may answer: documented, and no defect of ours.
REFUSALS: Final = frozenset(
    ("S010", "S013", "E020", "E021", "E022", "E023", "E024", "E025", "E026", "E027", "E030", "E031", "E032",
     "E050", "C001", "C030", "C050", "C061", "U061")
)  # fmt: skip
_CODE: Final = re.compile(r"error\[([A-Z]\d+)\]")

#: Without its simplifier XLA's CPU compiler divides by zero on a dot over nothing.
_DOT: Final = re.compile(r"stablehlo\.dot_general")
_EMPTY: Final = re.compile(r"tensor<(?:\d+x)*0x")

_ANYWHERE: Final = (
    "collective-permute-combiner",
    "collective-permute-combiner{threshold-count=2}",
    "collective-permute-combiner{past-dependence=true}",
    "gpu-all-reduce-combiner{threshold-bytes=100000}",
    "gpu-all-gather-combiner{threshold-bytes=100000}",
    "gpu-all-gather-combiner{threshold-bytes=100000,combine-by-dim=true}",
    "gpu-reduce-scatter-combiner{threshold-bytes=100000}",
    "hlo-dce", "tuple-simplifier", "collective-permute-splitter",
    "async-collective-creator", "convert-async-collectives-to-sync",
    "collectives-schedule-linearizer", "fixed-point(tuple-simplifier,hlo-dce)",
)  # fmt: skip
_SCHEDULES: Final = (
    "latency-hiding-scheduler", "gpu-schedule", "hlo-memory-scheduler",
    "latency-hiding-scheduler{parallel-collective-overlap-limit=4}",
    "latency-hiding-scheduler{collective-start-as-early-as-possible=true}",
    "latency-hiding-scheduler{estimator=gpu-approximate}",
    "latency-hiding-scheduler,execution-stream-assignment",
)  # fmt: skip


def random_pipeline(draw: random.Random, stage: str) -> str:
    """Some passes in any order; after them perhaps a schedule, which is checked."""
    passes = list(_ANYWHERE)
    if stage in LOADED:
        passes.append("hlo-cse")
    chosen = draw.choices(passes, k=draw.randint(1, 4))
    if draw.random() < 0.5:
        if draw.random() < 0.7:
            chosen.append("async-collective-creator")
        chosen.append(draw.choice(_SCHEDULES))
    return ",".join(chosen)


class WrongError(AssertionError):
    """The result has other bits, or the refusal is none that may be."""


def _code_of(problem: BaseException) -> str:
    own = getattr(problem, "code", "")
    found = _CODE.search(str(problem))
    return own or (found[1] if found else type(problem).__name__)


def _refused(where: str, problem: BaseException) -> str:
    """The verdict on an error; raises it again if it is a defect."""
    code = _code_of(problem)
    if code not in REFUSALS:
        raise WrongError(f"{where}: {code}") from problem
    return f"refused {code}"


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(one, other, strict=True)
    )


def _near(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether only rounding is different: XLA's fusions round less often."""
    import numpy as np

    def wide(array: Any) -> Any:
        kind = "complex128" if array.dtype.kind == "c" else "float64"
        return array.astype(kind)

    return len(one) == len(other) and all(
        a.shape == b.shape
        and np.allclose(wide(a), wide(b), rtol=0.02, atol=0.02, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


class Tester:
    """Judges programs by number; JAX starts with the first one."""

    def __init__(self, stages: Sequence[str], *, show: bool = False) -> None:
        self.stages = stages
        self.show = show
        self.devices: list[Any] = []

    def make(self, rng: random.Random) -> campaign.Case:
        """A case holds nothing but the seed of its program."""
        text = str(rng.getrandbits(32))
        stage = rng.choice(self.stages) if len(self.stages) > 1 else self.stages[0]
        return campaign.Case(stage, ".seed", text.encode(), f"program {text}")

    def check(self, case: campaign.Case, rng: random.Random) -> str:
        """The verdict on one program at one stage."""
        import jax

        from hlo_passes import runtime
        from tests.runtime.jax_generator import random_program

        if not self.devices:
            logging.disable(logging.WARNING)
            runtime.emulate(DEVICES)
            self.devices = jax.devices()
        program = random_program(int(case.contents), self.devices)
        with jax.enable_x64(rng.random() < 0.15):
            return f"{case.kind:15} {self._judged(program, case.kind, rng)}"

    def _judged(self, program: Any, stage: str, rng: random.Random) -> str:
        pipeline = random_pipeline(rng, stage)
        if self.show:
            print(f"{pipeline}\n{program}")
        # As JAX runs it. What JAX itself refuses is no program.
        try:
            lowered = program.jitted().lower(*program.arguments())
        except (TypeError, ValueError, NotImplementedError) as problem:
            if self.show:
                traceback.print_exc()
            return f"no program for JAX: {type(problem).__name__}"
        if self.show:
            print(lowered.as_text())
        arguments = program.arguments()
        inputs = [program.rows_of(a) for a in arguments]
        try:
            with campaign.outside("no program for XLA"):
                plain = [program.rows_of(r) for r in program.jitted()(*arguments)]
        except jax_runtime_error() as problem:
            if self.show:
                traceback.print_exc()
            return f"no program for XLA: {str(problem).split(':')[0]}"
        if stage in INSTALLED:
            return self._installed(program, stage, pipeline, plain)
        options = _without_rounding() if rng.random() < 0.7 else {}
        if _DOT.search(text := lowered.as_text()) and _EMPTY.search(text):
            options = {}
        return self._loaded(program, stage, pipeline, (inputs, plain), options)

    def _installed(self, program: Any, stage: str, pipeline: str, plain: Any) -> str:
        from hlo_passes import HloError, runtime

        try:
            with runtime.install(pipeline, stage=stage) as installed:
                results = program.jitted()(*program.arguments())
                found = [program.rows_of(r) for r in results]
        except HloError as problem:
            return _refused(pipeline, problem)
        except jax_runtime_error() as problem:
            return _refused(pipeline, problem)
        if not _same(found, plain):
            raise WrongError(f"{pipeline}: other bits than without passes")
        return "equal, changed" if installed.changed else "equal, nothing changed"

    def _loaded(
        self, program: Any, stage: str, pipeline: str, ran: Any, options: Any
    ) -> str:
        import hlo_passes
        from hlo_passes import HloError, runtime

        inputs, plain = ran
        try:
            jitted = program.jitted(compiler_options=options)
            with campaign.outside("no module by XLA"):
                before = runtime.lower(jitted, *program.arguments(), stage=stage)
            hlo_passes.verify(before)
            without_passes = runtime.load(before)(*inputs)
        except HloError as problem:
            return f"load {_refused('without passes', problem)}"
        except ValueError as problem:
            raise WrongError(f"signature of the lowered module: {problem}") from problem
        verdict = "equal"
        if not _same(without_passes, plain):
            verdict = self._judged_without(program, without_passes, plain)
        after = before.clone()
        try:
            result = hlo_passes.Pipeline.parse(pipeline).run(after)
            if self.show:
                print(after.to_text())
            found = runtime.load(after)(*inputs)
        except HloError as problem:
            return _refused(pipeline, problem)
        if not _same(found, without_passes):
            raise WrongError(f"{pipeline}: other bits than without passes")
        return f"{verdict}, {'changed' if result.changed else 'nothing changed'}"

    def _judged_without(self, program: Any, found: Any, plain: Any) -> str:
        """Why `load` differs from JAX although no pass of ours has run.

        XLA's fusions round less often, and its simplifications are not always right.
        """
        literal = program.jitted(compiler_options=_without_rounding())
        exact = [program.rows_of(r) for r in literal(*program.arguments())]
        if _same(found, exact):
            return "equal without XLA's own passes"
        if not _near(found, plain):
            raise WrongError("load without passes differs from JAX")
        return "equal up to XLA's rounding"


def jax_runtime_error() -> type[Exception]:
    """The error of XLA's compilations and runs."""
    import jax

    return jax.errors.JaxRuntimeError


def _without_rounding() -> dict[str, str]:
    """Compiler options under which XLA computes what the program says, as `load` does."""
    from hlo_passes.runtime.executable import LEFT_OUT_PASSES

    partitioner = ("sharding-propagation", "spmd-partitioning")
    names = [name for name in LEFT_OUT_PASSES if name not in partitioner]
    return {"xla_disable_hlo_passes": ",".join(names)}


def main() -> int:
    """Run the campaign; prints counts of the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    campaign.add_arguments(parser)
    parser.add_argument("--programs", type=int, default=0, help="as --cases")
    parser.add_argument("--only", default=",".join((*LOADED, *INSTALLED)))
    parser.add_argument(
        "--show", action="store_true", help="print the programs, in this process"
    )
    arguments = parser.parse_args()
    arguments.cases = arguments.cases or arguments.programs
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    tester = Tester(arguments.only.split(","), show=arguments.show)
    if arguments.show:
        for number in range(arguments.first, arguments.first + arguments.cases):
            case = tester.make(random.Random(f"{arguments.seed}:{number}"))
            rng = random.Random(f"{arguments.seed}:{number}:check")
            with contextlib.suppress(BrokenPipeError):
                print(tester.check(case, rng))
        return 0
    return campaign.run(
        tester.make, tester.check, arguments, "of random programs",
        campaign.Limits(seconds=300, silent_seconds=600, case_bytes=None),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
