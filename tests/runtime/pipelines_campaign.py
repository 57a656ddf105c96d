"""Random pipelines of all passes on the corpus: do the programs compute the same?

    python -m tests.runtime.pipelines_campaign --rounds=10 --seed=1 [--of=PASS ...]

Each partitioned module of `corpus/modules` for at most eight devices goes through a
random pipeline in every round, without XLA's quirks, and is run before and after on
eight emulated devices. Every bit must be the same; where a pass that may reorder sums
was in the pipeline, results may differ by what rounding does (`TOLERANCES`).

A module that fails is named with its pipeline; the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import traceback

import hlo_passes
from hlo_passes import runtime
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.registry import PASSES
from hlo_passes.runtime.compare import Tolerance
from tests.modules import REPOSITORY

DEVICES = 8
MOST_PASSES = 24
#: What other orders of some sums of 8 to 64 numbers near 1 cost, by the narrowest
#: floating type of a module: the relative error of a sum that does not cancel.
TOLERANCES = {"bf16": 2**-5, "f16": 2**-8, "f32": 2**-16, "f64": 2**-45}
#: Passes after which XLA:CPU gives products operands in other layouts: its kernels then
#: add in another order.
LAYOUTS = frozenset({"all-gather-decomposer"})


def modules() -> list[pathlib.Path]:
    """The partitioned modules of the corpus, all releases."""
    found = (REPOSITORY / "corpus/modules").glob("*/*.partitioned.hlo*")
    return sorted(found)


def random_pipeline(draw: random.Random) -> str:
    """Different passes of the table, in any order."""
    return ",".join(draw.sample(sorted(PASSES), draw.randint(1, MOST_PASSES)))


def tolerance(module: Module, pipeline: str) -> Tolerance | None:
    """How far results may be apart; None: not at all."""
    passes = hlo_passes.Pipeline.parse(pipeline).passes
    if not any(p.reorders_sums or p.name in LAYOUTS for p in passes):
        return None
    text = module.to_text()
    used = [bound for name, bound in TOLERANCES.items() if f"{name}[" in text]
    largest = max(used, default=0.0)
    return Tolerance(relative=largest, absolute=largest)


def outcome(path: pathlib.Path, pipeline: str) -> str:
    """'unchanged', 'same bits', 'rounded otherwise', 'not run: ...' or what failed."""
    before = read_module(str(path))
    if before.replica_count * before.num_partitions > DEVICES:
        return "not run: more devices"
    after = before.clone()
    context = PassContext(xla_quirks=False, target="h100_sxm")
    try:
        parsed = hlo_passes.Pipeline.parse(pipeline, context)
        if not parsed.run(after, verify_each=True).changed:
            return "unchanged"
        after = hlo_passes.parse(after.to_text())
        allowed = tolerance(before, pipeline)
        compared = runtime.compare(before, after, tolerance=allowed)
    except UnsupportedHloError as problem:
        return f"not run: {problem.code}"
    except Exception:  # whatever it is, it is a finding
        return f"failed: {traceback.format_exc().strip().splitlines()[-1]}"
    if compared.bitwise_equal:
        return "same bits"
    if compared.matches:
        return "rounded otherwise"
    return f"failed: results differ by {compared.max_abs_error:g}"


def main() -> int:
    """Run the campaign; prints how many ended how."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--of", nargs="*", metavar="PASS", help="only these pipelines")
    arguments = parser.parse_args()
    runtime.emulate(DEVICES)
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        draw = random.Random(seed)
        for path in modules():
            for pipeline in arguments.of or [random_pipeline(draw)]:
                ended = outcome(path, pipeline)
                counts[ended.partition(":")[0]] += 1
                if ended.startswith("failed"):
                    where = f"{path.parent.name}/{path.name}"
                    print(f"{where}: {ended}\n  {pipeline}", flush=True)
    print(dict(counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
