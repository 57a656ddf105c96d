"""Random annotated programs: XLA's partitioner alone, and after sharding-propagator.

    python -m tests.runtime.sharded_programs --programs=200 --seed=1
    python -m tests.runtime.sharded_programs --programs=1 --seed=1 --first=17 --show

Each program of `sharded_generator.py` is lowered in GSPMD's words. XLA partitions it as
it is, and as the pass annotates it; both run on eight emulated devices with the same
whole arrays. Results of integer programs must be equal, bit by bit; those of floating
programs must be within `TOLERANCE` of the largest number of the result, as sums may be
made in another order. Bytes that a device sends in collectives are compared right after
the partitioner: programs that need more than `WORSE` times as many are listed. A program
that XLA alone does not partition, or refuses, says nothing of the pass: it is named, and
another one is drawn.

The exit code is 1 if a result differs or a pass fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
from dataclasses import asdict, dataclass

import hlo_passes
from hlo_passes import runtime
from hlo_passes.analysis.sent_bytes import sent_bytes
from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module

DEVICES = 8
WORSE = 1.05
#: Rounding of sums of at most 2**14 numbers in another order, in units of the largest
#: result; float32 has 24 bits.
TOLERANCE = 2.0**-14
PASSES = "sharding-propagator"
#: How lines of a process of programs begin.
_NEXT = "next:"
_VERDICT = "verdict:"
#: What a process does where nothing depends on the pass.
_ALONE = "XLA alone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one program.

    Attributes:
        before_bytes: that a device sends where XLA decides alone.
        after_bytes: the same where the pass has annotated the program.
        is_equal: whether all results have the same bits.
        error: the largest difference, in units of the largest number of its result.
        is_exact: whether results must have the same bits.
        changed: whether the pass wrote anything.
    """

    before_bytes: int
    after_bytes: int
    is_equal: bool
    error: float
    is_exact: bool
    changed: bool

    @property
    def is_wrong(self) -> bool:
        """Whether results differ more than they may."""
        return not self.is_equal and (self.is_exact or not self.error <= TOLERANCE)

    @property
    def is_worse(self) -> bool:
        """Whether the pass costs bytes."""
        return self.after_bytes > WORSE * self.before_bytes

    def to_text(self) -> str:
        """One line."""
        return (
            f"{self.before_bytes} -> {self.after_bytes} bytes"
            f"{'' if self.changed else ', unchanged'}"
            f"{'' if self.is_equal else f', error {self.error:.3g}'}"
            f"{', WRONG' if self.is_wrong else ''}{', worse' if self.is_worse else ''}"
        )


class RefusedAloneError(Exception):
    """XLA does not partition a program as it is."""


def lowered(number: int, seed: int) -> tuple[Module, list, bool, list[str]]:
    """Module, inputs, whether it is exact, and the steps of a program."""
    from tests.runtime.sharded_generator import random_program

    program = random_program(random.Random(f"{seed}/{number}"))
    module = runtime.lower(
        program.jitted, *program.inputs, stage="before-optimizations"
    )
    return module, program.inputs, program.is_exact, program.steps


def judged(module: Module, inputs: list, *, is_exact: bool, passes: str) -> Verdict:
    """Partition and run a module with and without passes."""
    import numpy as np

    after = module.clone()
    result = hlo_passes.Pipeline.parse(passes).run(after)
    told(_ALONE)
    try:
        one = runtime.partition(module)
        expected = one(*inputs)
    except HloError as problem:
        raise RefusedAloneError(str(problem)) from problem
    told(passes)
    other = runtime.partition(after)
    found = other(*inputs)
    is_equal, error = True, 0.0
    for a, b in zip(expected, found, strict=True):
        is_equal &= a.tobytes() == b.tobytes()
        wide = a.astype(np.float64), b.astype(np.float64)
        largest = float(np.max(np.abs(wide[0]), initial=0.0)) or 1.0
        error = max(error, float(np.max(np.abs(wide[0] - wide[1]))) / largest)
    return Verdict(
        sent_bytes(one.module),
        sent_bytes(other.module),
        is_equal,
        error,
        is_exact,
        result.changed,
    )


def told(what: str) -> None:
    """Tell the parent process what comes next, in case that it is the end."""
    print(f"{_NEXT} {what}", flush=True)


def run_here(options: argparse.Namespace) -> None:
    """Judge programs one by one; a line of JSON for each."""
    runtime.emulate(DEVICES)
    import jax

    jax.config.update("jax_use_shardy_partitioner", False)
    left = options.programs
    for number in itertools.count(options.first):
        if not left:
            break
        left -= 1
        told(f"program {number}")
        module, inputs, is_exact, steps = lowered(number, options.seed)
        if options.show:
            print(*steps, sep="\n")
            after = module.clone()
            result = hlo_passes.Pipeline.parse(options.passes).run(after)
            print(module.to_text(), after.to_text(), *result.remarks, sep="\n")
            for each in (module, after):
                print(runtime.partition(each).module.to_text())
        try:
            verdict = judged(module, inputs, is_exact=is_exact, passes=options.passes)
        except RefusedAloneError as problem:
            left += 1
            print(_VERDICT + json.dumps({"refused": str(problem)}), flush=True)
        except HloError as problem:
            print(_VERDICT + json.dumps({"failed": str(problem)}), flush=True)
        else:
            print(_VERDICT + json.dumps(asdict(verdict)), flush=True)


def run_apart(options: argparse.Namespace) -> tuple[list[Verdict], list[str]]:
    """Judge programs in a process of their own; the next one follows where it dies.

    Returns the verdicts, and what failed.
    """
    verdicts: list[Verdict] = []
    failures: list[str] = []
    number = options.first
    while left := options.programs - len(verdicts) - len(failures):
        command = [
            sys.executable, "-m", "tests.runtime.sharded_programs", "--here",
            f"--first={number}", f"--programs={left}", f"--seed={options.seed}",
            f"--passes={options.passes}",
        ]  # fmt: skip
        doing, judged_before = "", len(verdicts) + len(failures)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith(_NEXT):
                    doing = line.removeprefix(_NEXT).strip()
                if not line.startswith(_VERDICT):
                    continue
                found = json.loads(line.removeprefix(_VERDICT))
                if "refused" in found:
                    print(f"program {number}: {_ALONE}: {found['refused']}", flush=True)
                elif "failed" in found:
                    failures.append(f"program {number}: {found['failed']}")
                    print(failures[-1], flush=True)
                else:
                    verdicts.append(Verdict(**found))
                    if verdicts[-1].is_worse or verdicts[-1].is_wrong:
                        text = verdicts[-1].to_text()
                        print(f"program {number}: {text}", flush=True)
                number += 1
        if len(verdicts) + len(failures) < judged_before + left:
            died = f"program {number}: the process died at: {doing}"
            print(died, flush=True)
            if doing != _ALONE:
                failures.append(died)
            number += 1
    return verdicts, failures


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--passes", default=PASSES)
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--show", action="store_true", help="print programs; --here")
    options = parser.parse_args()
    if options.here:
        run_here(options)
        return 0
    verdicts, failures = run_apart(options)
    print(summary(verdicts, len(failures)))
    return int(bool(failures) or any(v.is_wrong for v in verdicts))


def summary(verdicts: list[Verdict], failures: int) -> str:
    """The last lines."""
    before = sum(v.before_bytes for v in verdicts)
    after = sum(v.after_bytes for v in verdicts)
    fewer = sum(v.after_bytes * WORSE < v.before_bytes for v in verdicts)
    inexact = [v.error for v in verdicts if not v.is_equal]
    return (
        f"{len(verdicts)} programs, {failures} failed, "
        f"{sum(v.is_wrong for v in verdicts)} wrong; "
        f"{sum(v.is_equal for v in verdicts)} bit-equal, largest error of the others "
        f"{max(inexact, default=0.0):.3g}\n"
        f"bytes sent: {before} -> {after}; worse by more than 5% in "
        f"{sum(v.is_worse for v in verdicts)}, better by more than 5% in {fewer}, "
        f"{sum(v.before_bytes == v.after_bytes for v in verdicts)} equal"
    )


if __name__ == "__main__":
    sys.exit(main())
