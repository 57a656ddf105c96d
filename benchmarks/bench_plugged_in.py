"""Our passes inside XLA's compilation: what each gains, and where it changes nothing.

    python -m benchmarks.bench_plugged_in [--machine=h100_sxm@2] [--cache=DIR]
        [--passes=NAME,...] [PROGRAM ...]

Programs and machines are those of `bench_tune`, besides the programs that were written
for the passes. XLA's GPU compiler (the extra `gpu-aot`, jax 0.12) compiles each program
as it is and with each pass of `tune --plug-in` alone, with default flags. Both final
modules are simulated by the same rules. A pass decides before the scheduler; what XLA
does after it may take back the gain, or more: such rows say `longer`, and the exit
code is 1. Steps are priced as `tune` does, with `--extended` where XLA's table counts
matrix products several times; a step that cannot be compared says `not priced`. With
`--cache` a run goes on where another ended.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.bench_tune import MACHINES, default_programs
from hlo_passes.errors import HloError
from hlo_passes.runtime.tuning.compile_process import end_process
from hlo_passes.runtime.tuning.evaluation import XlaEvaluator
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.facts import facts_of
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.plugged_in import PassLever, PluggedIn, passes_for
from hlo_passes.scheduler.tuning.store import Store

#: Programs written for passes of ours.
_WRITTEN: Final = (
    "docs/collective_matmul/large.py:step",
    "docs/moe/experts.py:step",
    "docs/uneven/vit.py:step",
    "docs/pipelining/loops.py:fsdp",
    "docs/pipelining/loops.py:tensor_parallel",
    "docs/pipelining/loops.py:pipeline_parallel",
)
_NOTHING: Final = Combination()
#: A step that differs by less than this share is the same.
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One pass inside one compilation.

    Attributes:
        program: FUNCTION of FILE.py.
        machine: TARGET@HOSTS.
        name: of the pass.
        before_us: XLA's step without it.
        after_us: with it.
        verdict: gains, same, longer, unchanged, not priced or refused.
        problem: why there is no step.
    """

    program: str
    machine: str
    name: str
    before_us: float = 0.0
    after_us: float = 0.0
    verdict: str = "refused"
    problem: str = ""

    def to_text(self) -> str:
        """A line of the table."""
        cells = [self.program, self.machine, self.name, self.verdict]
        if self.problem:
            cells += [self.problem.splitlines()[0], "", ""]
        else:
            change = 100.0 * (self.after_us / self.before_us - 1.0)
            cells += [
                time_text(self.before_us),
                time_text(self.after_us),
                f"{change:+.2f}%",
            ]
        return f"| {' | '.join(cells)} |"


def rows_of(
    name: str, machine: str, cache: str, wanted: Sequence[str]
) -> Iterator[Row]:
    """A row for each pass that may matter for a program."""
    chip, _, hosts = machine.partition("@")
    program = Program(name, target=chip, hosts=int(hosts or "1"))
    short = name.rpartition("/")[2]
    try:
        evaluator = XlaEvaluator(program, Rules(), Store(cache), on=program.on)
        baseline = evaluator.baseline()
        if baseline.problem:
            yield Row(short, machine, "", problem=baseline.problem)
            return
        evaluator.settle_prices()
        facts = facts_of(baseline.to_module(), Topology.parse(evaluator.traced.machine))
        levers = [lever for lever in passes_for(facts) if _is_wanted(lever, wanted)]
        # The step without a pass is that of the same flags in a process of its own.
        before = evaluator.alone(_NOTHING, "")
        for tried in evaluator.plugged_in(levers, _NOTHING, ""):
            outcome = tried.outcome
            yield Row(
                short,
                machine,
                tried.lever.name,
                before.step_us,
                outcome.step_us,
                _verdict(tried, before),
                outcome.problem,
            )
    except HloError as problem:
        yield Row(short, machine, "", problem=problem.message)
    finally:
        end_process()


def _is_wanted(lever: PassLever, wanted: Sequence[str]) -> bool:
    return not wanted or lever.name.partition("{")[0] in wanted


def _verdict(tried: PluggedIn, before: Outcome) -> str:
    after = tried.outcome
    if not after.is_done:
        return "refused"
    if not tried.changes:
        return "unchanged"
    if after.unpriced > before.unpriced or after.overcounted > before.overcounted:
        return "not priced"
    ratio = after.change_from(before)
    if abs(ratio) <= _SAME:
        return "same"
    return "gains" if ratio < 0 else "longer"


def main() -> int:
    """Compile, print the table and counts by pass."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", action="append", metavar="TARGET@HOSTS")
    parser.add_argument("--cache", default="", help="folder of what was compiled")
    parser.add_argument("--passes", default="", help="names, separated by commas")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    wanted = [name for name in options.passes.split(",") if name]
    counts: dict[str, collections.Counter[str]] = {}
    print("| program | machine | pass | verdict | without | with | change |")
    print("|---|---|---|---|---|---|---|")
    for name in options.programs or [*default_programs(), *_WRITTEN]:
        for machine in options.machine or MACHINES:
            for row in rows_of(name, machine, options.cache, wanted):
                print(row.to_text(), flush=True)
                counts.setdefault(row.name, collections.Counter())[row.verdict] += 1
    print()
    for name, found in counts.items():
        told = ", ".join(f"{count} {verdict}" for verdict, count in found.items())
        print(f"{name or 'not compiled'}: {told}")
    return 1 if any(found["longer"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
