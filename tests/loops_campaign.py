"""Passes over loops, alone and in random pipelines: do the loops compute the same?

    python -m tests.loops_campaign --programs=1000 --seed=1 [--devices=50]

Each program (tests/loop_modules.py) is run before and after each pass, and before and
after two random pipelines of them, on eight devices of two hosts. Results must have
the same bits, without XLA's quirks. NumPy runs all of them; of every N-th program
(`--devices`), XLA's emulated devices run the random pipelines too. With `--quirks` the
passes do what XLA does, and programs that XLA breaks are counted, not failed.

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
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from tests.loop_modules import DEVICES, ROWS, LoopModule, loop_module
from tests.runtime.evaluator import Evaluator

#: Each pass alone, as it is written at the command line.
PASSES: Final = (
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
#: What pipelines also contain: they make a pipelined loop fit for the next pass.
_CLEANING: Final = ("hlo-cse", "hlo-dce", "tuple-simplifier")
_MOST_PASSES: Final = 4
_PIPELINES: Final = 2
#: What the content of a buffer is that nobody has written.
_NOISE: Final = 3.0
#: Computations that one run of a program may call.
_MOST_CALLS: Final = 2000


class LoopEvaluator(Evaluator):
    """Knows the custom calls of these passes, and gives endless loops up."""

    calls = 0

    def computation(self, computation: Any, arguments: list[Any]) -> list[Any]:
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise AssertionError("a loop does not end")
        return super().computation(computation, arguments)

    def _custom_call(self, i: Any, operands: list[Any]) -> list[Any]:
        target = i.attributes["custom_call_target"]
        if target == '"AllocateBuffer"':
            return [np.full(i.shape.dimensions, _NOISE, np.float32)] * self.count
        assert target.endswith('ByPreviousStep"')
        return operands[0]


@dataclass(slots=True)
class Tally:
    """How often each pass changed a program, left it alone, or broke it."""

    changed: collections.Counter[str] = field(default_factory=collections.Counter)
    same: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: collections.Counter[str] = field(default_factory=collections.Counter)

    def to_text(self) -> str:
        """A table, one line for each pass."""
        names = list(dict.fromkeys((*self.changed, *self.same, *self.failed)))
        width = max(map(len, names), default=0)
        lines = [f"{'pass':{width}}  changed  same  failed"]
        lines += [
            f"{n:{width}}  {self.changed[n]:7}  {self.same[n]:4}  {self.failed[n]:6}"
            for n in names
        ]
        return "\n".join(lines)


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
    try:
        module = hlo_passes.parse(made.text)
        pipeline = hlo_passes.Pipeline.parse(passes, PassContext(xla_quirks=quirks))
        changed = pipeline.run(module, verify_each=True).changed
        (tally.changed if changed else tally.same)[name] += 1
        if not changed:
            return ""
        after = hlo_passes.parse(module.to_text())
        for k, (mine, theirs) in enumerate(zip(results(after), expected, strict=True)):
            if mine.tobytes() != theirs.tobytes():
                tally.failed[name] += 1
                return f"result {k} differs"
        if on_devices and "AllocateBuffer" not in module.to_text():
            from hlo_passes import runtime

            before = runtime.load(hlo_passes.parse(made.text))(*inputs())
            for mine, theirs in zip(
                runtime.load(after)(*inputs()), before, strict=True
            ):
                if np.asarray(mine).tobytes() != np.asarray(theirs).tobytes():
                    tally.failed[name] += 1
                    return "results on devices differ"
    except Exception:  # whatever it is, it is a finding
        tally.failed[name] += 1
        return traceback.format_exc()
    return ""


def random_pipeline(draw: random.Random) -> str:
    """Some passes over loops, in any order, with cleaning in between."""
    names = draw.choices((*PASSES, *_CLEANING), k=draw.randint(2, _MOST_PASSES))
    return ",".join(names)


def findings(
    seed: int, tally: Tally, *, quirks: bool = False, on_devices: bool = False
) -> Iterator[tuple[str, str, LoopModule]]:
    """(passes, what is wrong, program) for all that one seed breaks."""
    draw = random.Random(seed)
    made = loop_module(draw)
    expected = results(hlo_passes.parse(made.text))
    pipelines = [random_pipeline(draw) for _ in range(_PIPELINES)]
    for passes in (*PASSES, *pipelines):
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
    parser.add_argument("--quirks", action="store_true")
    parser.add_argument("--failures", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.devices:
        from hlo_passes import runtime

        runtime.emulate(DEVICES)
    tally, count = Tally(), 0
    for k in range(arguments.programs):
        seed = arguments.seed + k
        on = bool(arguments.devices) and k % arguments.devices == 0
        found = findings(seed, tally, quirks=arguments.quirks, on_devices=on)
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
