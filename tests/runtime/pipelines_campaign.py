"""Random pipelines of all passes: do programs compute the same?

    python -m tests.runtime.pipelines_campaign --rounds=10 --seed=1 [--of=PASS ...]
    python -m tests.runtime.pipelines_campaign --programs=1000 --seed=1 [--hosts=2]
        [--devices=4]

Each partitioned module of `corpus/modules` for at most eight devices goes through a
random pipeline in every round, without XLA's quirks, and is run before and after on
eight emulated devices. With `--programs`, random modules do so: those with a counted
loop (tests/loop_modules.py), and in turn others (tests/spmd_modules.py) and those over
rows that do not divide (tests/uneven_modules.py). Loops need eight devices; with
fewer (`--devices`) the other two kinds take turns. Every bit must be the same; where a pass that may reorder sums was in the pipeline, results of the
corpus and of the others may differ by what rounding does (`TOLERANCES`); numbers of the
loops are such that no order changes their sums. `--hosts=2` runs two processes with
four devices each.

What fails is named with its pipeline; the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import hlo_passes
from hlo_passes import runtime
from hlo_passes.errors import PassError, UnsupportedHloError
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.runtime.comparison import (
    Comparison,
    Tolerance,
    compare_outputs,
    require_same_signature,
)
from hlo_passes.runtime.executable import Executable
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from tests import loops_campaign, several_hosts
from tests.fuzz.documented import DEFECTS
from tests.loop_modules import loop_module
from tests.modules import REPOSITORY
from tests.own_passes import TARGET, own_passes, pipeline_of
from tests.spmd_modules import spmd_module
from tests.uneven_modules import uneven_module

DEVICES = 8
MOST_PASSES = 24
#: What other orders of some sums of 8 to 64 numbers near 1 cost, by the narrowest
#: floating type of a module: the relative error of a sum that does not cancel, and the
#: error of one that does, as a share of the largest result.
TOLERANCES = {"bf16": 2**-5, "f16": 2**-8, "f32": 2**-16, "f64": 2**-45}


def modules() -> list[pathlib.Path]:
    """The partitioned modules of the corpus, all releases."""
    found = (REPOSITORY / "corpus/modules").glob("*/*.partitioned.hlo*")
    return sorted(found)


def random_pipeline(draw: random.Random) -> str:
    """Different passes of the project, in any order."""
    return pipeline_of(draw.sample(own_passes(), draw.randint(1, MOST_PASSES)))


def tolerance(module: Module, pipeline: str) -> Tolerance | None:
    """How far results may be apart; None: not at all."""
    passes = hlo_passes.Pipeline.parse(pipeline).passes
    if not any(p.reorders_sums for p in passes):
        return None
    text = module.to_text()
    used = [bound for name, bound in TOLERANCES.items() if f"{name}[" in text]
    largest = max(used, default=0.0)
    return Tolerance(relative=largest, absolute=largest)


@dataclass(slots=True)
class Given:
    """A module, and what it computes: run once for all pipelines.

    Attributes:
        module: that pipelines rewrite.
        inputs: whose sums no order changes, but for the sign of zeros; () for seeded
            ones, whose sums may be rounded otherwise.
    """

    module: Module
    inputs: Sequence[np.ndarray] = ()
    _first: tuple[Executable, Sequence[np.ndarray], list[np.ndarray]] | None = None

    def compare(self, after: Module, allowed: Tolerance | None) -> Comparison:
        """What a rewritten module computes, beside what it should."""
        executable, inputs, results = self._results()
        second = runtime.load(after)
        require_same_signature(executable, second)
        if allowed is not None:
            share = 0.0 if self.inputs else allowed.absolute * _largest(results)
            allowed = replace(allowed, absolute=share) if share else Tolerance()
        return compare_outputs(results, second(*inputs), allowed)

    def _results(self) -> tuple[Executable, Sequence[np.ndarray], list[np.ndarray]]:
        """The module, its inputs, and its results."""
        if self._first is None:
            executable = runtime.load(self.module)
            inputs = self.inputs or seeded_inputs(
                plain_module(self.module),
                self.module,
                device_count=executable.device_count,
                seed=0,
            )
            self._first = executable, inputs, executable(*inputs)
        return self._first


def _largest(results: Sequence[np.ndarray]) -> float:
    """The largest finite number of some results, at least 1: sums of such may cancel."""
    wide = (np.abs(each.astype(np.complex128)) for each in results if each.size)
    return max((float(w[np.isfinite(w)].max(initial=1.0)) for w in wide), default=1.0)


def outcome(given: Given, pipeline: str) -> str:
    """'unchanged', 'same bits', 'rounded otherwise', 'not run: ...' or what failed.

    A pass may refuse a module, such as one whose sends do not fit; that is 'not run'.
    """
    before = given.module
    if before.replica_count * before.num_partitions > DEVICES:
        return "not run: more devices"
    after = before.clone()
    context = PassContext(xla_quirks=False, target=TARGET)
    try:
        parsed = hlo_passes.Pipeline.parse(pipeline, context)
        if not parsed.run(after, verify_each=True).changed:
            return "unchanged"
        after = hlo_passes.parse(after.to_text())
        compared = given.compare(after, tolerance(before, pipeline))
    except (UnsupportedHloError, PassError) as problem:
        if problem.code in DEFECTS:
            return f"failed: {problem.render()}"
        return f"not run: {problem.code}"
    except Exception:  # whatever it is, it is a finding
        return f"failed: {traceback.format_exc().strip().splitlines()[-1]}"
    if compared.bitwise_equal:
        return "same bits"
    if compared.matches:
        return "rounded otherwise"
    return f"failed: results differ by {compared.max_abs_error:g}"


#: Where a module comes from, its pipeline, and how it ended.
Ended = tuple[str, str, str]


def on_the_corpus(seeds: range, only: list[str]) -> Iterator[Ended]:
    """Every module in every round."""
    for seed in seeds:
        draw = random.Random(seed)
        for path in modules():
            where = f"{path.parent.name}/{path.name}"
            given = Given(read_module(str(path)))
            for pipeline in only or [random_pipeline(draw)]:
                yield where, pipeline, outcome(given, pipeline)


def on_random_programs(
    seeds: range, only: list[str], devices: int = DEVICES
) -> Iterator[Ended]:
    """One program for each seed."""
    for seed in seeds:
        draw = random.Random(seed)
        inputs: Sequence[np.ndarray] = ()
        if seed % 2 == 0 and devices == DEVICES:
            text = loop_module(draw).text
            inputs = loops_campaign.inputs()
        elif seed % 4 < 2:
            text = spmd_module(draw, devices)
        else:
            uneven = uneven_module(draw, devices)
            text = uneven.text(fill=7)
            inputs = uneven.inputs(fill=7)
        given = Given(hlo_passes.parse(text), inputs)
        for pipeline in only or [random_pipeline(draw)]:
            yield f"seed {seed}", pipeline, outcome(given, pipeline)


def campaign(arguments: argparse.Namespace) -> int:
    """All modules, one after the other; the exit code."""
    first, count = arguments.seed, arguments.programs or arguments.rounds
    seeds, only = range(first, first + count), arguments.of or []
    counts: collections.Counter[str] = collections.Counter()
    for where, pipeline, ended in (
        on_random_programs(seeds, only, arguments.devices)
        if arguments.programs
        else on_the_corpus(seeds, only)
    ):
        kind, _, why = ended.partition(": ")
        counts[kind if kind == "failed" else ended] += 1
        if kind == "failed":
            print(f"{where}: failed: {why}\n  {pipeline}", flush=True)
    print(dict(counts), counts.total())
    return 1 if counts["failed"] else 0


def main() -> int:
    """Run the campaign; prints how many ended how."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--devices", type=int, default=DEVICES, choices=(2, 4, DEVICES))
    parser.add_argument("--of", nargs="*", metavar="PASS", help="only these pipelines")
    arguments = parser.parse_args()
    return several_hosts.run(
        "tests.runtime.pipelines_campaign",
        lambda: campaign(arguments),
        hosts=arguments.hosts,
        devices=arguments.devices,
    )


if __name__ == "__main__":
    sys.exit(main())
