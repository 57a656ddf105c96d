"""All passes, alone and in random pipelines: do programs with loops compute the same?

    python -m tests.loops_campaign --programs=1000 --seed=1 [--devices=50 [--hosts=2]]
    python -m tests.loops_campaign --programs=1000 --only loop-multi-buffer

Each program (tests/loop_modules.py) is run before and after each pass, those over loops
also with options, and before and after three random pipelines: two of passes over
loops, one of all passes. Results must have the same bits, without XLA's quirks; only a
zero may have another sign after passes that may reorder sums. NumPy runs what it can; of every N-th program (`--devices`), XLA's eight emulated devices run
the random pipelines too, on `--hosts` of them together. With `--quirks` the passes do
what XLA does, and programs that XLA breaks are counted, not failed.

A program that fails is written to the folder of `--failures`; the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import hlo_passes
from hlo_passes.errors import PassError, UnsupportedHloError
from hlo_passes.ir.gpu_config import has_gpu_config, known_trip_count
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.registry import _FOLDERS
from tests.fuzz.documented import DEFECTS
from tests.loop_modules import DEVICES, MOST_ITERATIONS, ROWS, LoopModule, loop_module
from tests.own_passes import TARGET, own_passes, pipeline_of
from tests.runtime.evaluator import Evaluator

#: Passes over loops, each alone, as it is written at the command line.
LOOPS: Final = (
    "collective-pipeliner-forward",
    "collective-pipeliner-forward{op=reduce-scatter}",
    "collective-pipeliner-forward{reuse-buffer=true}",
    "collective-pipeliner-forward{use-tree=false,different-sizes=false}",
    "collective-pipeliner-backward",
    "collective-pipeliner-backward{invariant-ops=false}",
    "collective-pipeliner-forwardsink",
    "collective-pipeliner-forwardsink{op=reduce-scatter}",
    "collective-pipelining-analyzer",
    "dus-accumulator-zero-init-elimination",
    "loop-double-buffer-transformer",
    "loop-double-buffer-transformer{strategy=full-unroll}",
    "loop-invariant-collective-hoisting{always=true}",
    "loop-multi-buffer{always=true}",
    "loop-multi-buffer{always=true,control-edges=false}",
    "loop-multi-buffer{always=true,buffers=3,only-with-collectives=false}",
    "loop-multi-buffer{always=true,buffers=4,num-stream-buffers=2,"
    "parallel-collective-overlap-limit=2}",
    "while-loop-all-reduce-code-motion",
    "while-loop-all-reduce-code-motion{most-constants=2,xla=0.12}",
    "while-loop-all-reduce-code-motion{reduce-scatter=true}",
    "while-loop-concat-code-motion",
    "while-loop-constant-sinking",
    "while-loop-constant-sinking{broadcasts=true}",
    "while-loop-expensive-invariant-code-motion{opcodes=multiply}",
    "while-loop-fusible-sinking",
    "while-loop-invariant-code-motion",
    "while-loop-invariant-code-motion{constants=true,reshapes=true}",
    "while-loop-pipeline-unroller",
    "while-loop-trip-count-annotator",
    "while-loop-unroller",
    "while-loop-unroller{wrap=true}",
    "windowed-einsum-handler",
)
#: All others, each alone.
OTHERS: Final = tuple(
    pipeline_of([name]) for name in own_passes() if name not in _FOLDERS["loops"]
)
PASSES: Final = (*LOOPS, *OTHERS)
#: What pipelines also contain: they make a pipelined loop fit for the next pass.
_CLEANING: Final = ("hlo-cse", "hlo-dce", "tuple-simplifier")
_MOST_PASSES: Final = 4
_MOST_OF_ALL: Final = 12
#: What the content of a buffer is that nobody has written.
_NOISE: Final = 3.0
#: Computations that one run of a program may call.
_MOST_CALLS: Final = 2000


class LoopEvaluator(Evaluator):
    """Knows the custom calls of these passes, and gives endless loops up.

    A loop must run as often as its config says.
    """

    def __init__(self, module: Module, replicas: int, partitions: int) -> None:
        super().__init__(module, replicas, partitions)
        self.runs: collections.Counter[Any] = collections.Counter()

    def computation(self, computation: Any, arguments: list[Any]) -> list[Any]:
        self.runs[computation] += 1
        if self.runs.total() > _MOST_CALLS:
            raise AssertionError("a loop does not end")
        return super().computation(computation, arguments)

    def _while(self, i: Any, operands: list[Any]) -> list[Any]:
        body, before = i.called_computations[0], self.runs.copy()
        result = super()._while(i, operands)
        known = known_trip_count(i) if has_gpu_config(i) else None
        ran = self.runs[body] - before[body]
        if known not in (None, ran) and ran <= MOST_ITERATIONS:
            raise AssertionError(f"%{i.name} says {known} iterations, and runs {ran}")
        return result

    def _custom_call(self, i: Any, operands: list[Any]) -> list[Any]:
        target = i.attributes["custom_call_target"]
        if target == '"AllocateBuffer"':
            return [np.full(i.shape.dimensions, _NOISE, np.float32)] * self.count
        if target.endswith('ByPreviousStep"'):
            return operands[0]
        raise NotImplementedError(target)


@dataclass(slots=True)
class Tally:
    """How often each pass changed a program, left it alone, or broke it."""

    changed: collections.Counter[str] = field(default_factory=collections.Counter)
    same: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: collections.Counter[str] = field(default_factory=collections.Counter)
    on_devices: collections.Counter[str] = field(default_factory=collections.Counter)
    not_run: collections.Counter[str] = field(default_factory=collections.Counter)
    not_there: collections.Counter[str] = field(default_factory=collections.Counter)
    refused: collections.Counter[str] = field(default_factory=collections.Counter)

    def to_text(self) -> str:
        """A table, one line for each pass, and their sum."""
        seen = (*self.changed, *self.same, *self.refused, *self.failed)
        names = list(dict.fromkeys(seen))
        width = max(map(len, (*names, "total")))
        columns = {
            "changed": self.changed, "same": self.same, "refused": self.refused,
            "failed": self.failed, "not by NumPy": self.not_run,
            "on devices": self.on_devices, "not there": self.not_there,
        }  # fmt: skip
        counts = columns.values()
        rows = [(name, *(str(count[name]) for count in counts)) for name in names]
        rows.append(("total", *(str(count.total()) for count in counts)))
        return "\n".join(
            f"{name:{width}}  "
            + "  ".join(f"{n:>{len(h)}}" for h, n in zip(columns, numbers, strict=True))
            for name, *numbers in (("pass", *columns), *rows)
        )


def inputs() -> list[np.ndarray[Any, Any]]:
    """Multiples of a quarter for each device, whose sums no order changes."""
    numbers = np.random.default_rng(7)
    return [
        numbers.integers(-8, 8, (DEVICES, *shape)).astype(np.float32) / 4
        for shape in ((ROWS, 8), (8, 8))
    ]


def results(module: Module) -> list[np.ndarray[Any, Any]]:
    """What a module computes on the inputs, by NumPy."""
    return LoopEvaluator(module, 1, DEVICES).run(inputs())


def problem(
    made: LoopModule,
    passes: str,
    expected: Sequence[np.ndarray[Any, Any]],
    tally: Tally,
    *,
    quirks: bool = False,
    on_devices: bool = False,
) -> str:
    """What is wrong after some passes; '' if the program computes the same."""
    name = passes if passes in PASSES else "random pipelines"
    context = PassContext(xla_quirks=quirks, target=TARGET)
    try:
        module = hlo_passes.parse(made.text)
        pipeline = hlo_passes.Pipeline.parse(passes, context)
        signed = not any(each.reorders_sums for each in pipeline.passes)
        changed = pipeline.run(module, verify_each=True).changed
        (tally.changed if changed else tally.same)[name] += 1
        if not changed:
            return ""
        after = hlo_passes.parse(module.to_text())
        try:
            wrong = _differs(results(after), expected, signed=signed)
        except NotImplementedError:
            tally.not_run[name] += 1
            wrong = ""
        if not wrong and on_devices:
            try:
                wrong = _differs_on_devices(made, after, signed=signed)
                tally.on_devices[name] += 1
            except UnsupportedHloError:
                tally.not_there[name] += 1
    except PassError as refused:
        # A pass may refuse a module, such as one whose sends do not fit.
        wrong = refused.render() if refused.code in DEFECTS else ""
        tally.refused[name] += not wrong
    except Exception:  # whatever it is, it is a finding
        wrong = traceback.format_exc()
    tally.failed[name] += bool(wrong)
    return wrong


def _differs(
    mine: Sequence[np.ndarray[Any, Any]],
    expected: Sequence[np.ndarray[Any, Any]],
    *,
    signed: bool,
) -> str:
    """The first result with other bits; '' if there is none.

    If zeros are not `signed`, both are equal: a sum that begins with zero loses a sign.
    """
    for k, (one, other) in enumerate(zip(mine, expected, strict=True)):
        equal = one.tobytes() == other.tobytes()
        if not equal and (signed or not np.array_equal(one, other)):
            return f"result {k} differs"
    return ""


def _differs_on_devices(made: LoopModule, after: Module, *, signed: bool) -> str:
    """The same by XLA, on the devices of this process."""
    from hlo_passes import runtime

    before = runtime.load(hlo_passes.parse(made.text))(*inputs())
    wrong = _differs(runtime.load(after)(*inputs()), before, signed=signed)
    return wrong and f"{wrong} on devices"


def random_pipeline(draw: random.Random, passes: Sequence[str] = LOOPS) -> str:
    """Some passes over loops, in any order, with cleaning in between."""
    names = draw.choices((*passes, *_CLEANING), k=draw.randint(2, _MOST_PASSES))
    return ",".join(names)


def random_pipeline_of_all(draw: random.Random) -> str:
    """Some of all passes, in any order."""
    return pipeline_of(draw.sample(PASSES, k=draw.randint(2, _MOST_OF_ALL)))


def findings(
    seed: int,
    tally: Tally,
    *,
    alone: Sequence[str] = PASSES,
    only: bool = False,
    invariants: bool = False,
    quirks: bool = False,
    on_devices: bool = False,
) -> Iterator[tuple[str, str, LoopModule]]:
    """(passes, what is wrong, program) for all that one seed breaks.

    With `only`, no others run in the random pipelines either. With `invariants`, the
    program also computes things that are the same in each iteration.
    """
    draw = random.Random(seed)
    made = loop_module(draw, invariants=invariants)
    expected = results(hlo_passes.parse(made.text))
    among = alone if only else LOOPS
    pipelines = [random_pipeline(draw, among), random_pipeline(draw, among)]
    if not only:
        pipelines.append(random_pipeline_of_all(draw))
    for passes in (*alone, *pipelines):
        on = on_devices and passes in pipelines
        wrong = problem(made, passes, expected, tally, quirks=quirks, on_devices=on)
        if wrong:
            yield passes, wrong, made


def main() -> int:
    """Run the campaign; prints how often each pass changed and broke programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--devices", type=int, default=0, metavar="N")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--only-pipelines", action="store_true")
    parser.add_argument("--only", nargs="*", metavar="PASS", help="no others")
    parser.add_argument("--invariants", action="store_true")
    parser.add_argument("--quirks", action="store_true")
    parser.add_argument("--failures", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.devices:
        return campaign(arguments)
    from tests import several_hosts

    return several_hosts.run(
        "tests.loops_campaign",
        lambda: campaign(arguments),
        hosts=arguments.hosts,
        devices=DEVICES,
    )


def campaign(arguments: argparse.Namespace) -> int:
    """All programs, one after the other; the exit code."""
    tally, count = Tally(), 0
    alone = () if arguments.only_pipelines else PASSES
    if arguments.only is not None:
        names = set(arguments.only)
        alone = [p for p in PASSES if p.partition("{")[0].rpartition(",")[2] in names]
    for k in range(arguments.programs):
        seed = arguments.seed + k
        on = bool(arguments.devices) and k % arguments.devices == 0
        found = findings(
            seed,
            tally,
            alone=alone,
            only=arguments.only is not None,
            invariants=arguments.invariants,
            quirks=arguments.quirks,
            on_devices=on,
        )
        for passes, wrong, made in found:
            count += 1
            print(
                f"seed {seed}: {passes}: {wrong.strip().splitlines()[-1]}", flush=True
            )
            if arguments.failures:
                arguments.failures.mkdir(parents=True, exist_ok=True)
                file = arguments.failures / f"{seed}_{count}.hlo"
                file.write_text(f"// pipeline: {passes}\n{made.text}\n")
    print(tally.to_text())
    print(f"{arguments.programs} programs, {count} failures")
    return 1 if count and not arguments.quirks else 0


if __name__ == "__main__":
    sys.exit(main())
