"""The schedule improver: what it gains on modules that XLA scheduled, and how fast.

    python -m benchmarks.bench_improver [--effort=1.0] [--seed=0] [FOLDER ...]

A folder holds XLA's `latency-hiding-scheduler.after.hlo[.gz]`, `costs.json[.gz]` and
`oracle.json`; by default those of the public modules beside the checkout. Seconds are
of the processor: of the whole pass, with two simulations and the checker.

The bound is the improver's own: no order of a computation is below it. The second mean
leaves out modules above XLA's memory limit, for which XLA stops overlapping.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import hlo_passes
from benchmarks.modules import SHARED, read_text
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.memory.memory_limit import scheduler_memory_limit_bytes

_AFTER = "latency-hiding-scheduler.after.hlo"
_TARGET = "h100_sxm"


@dataclass(frozen=True, slots=True)
class Row:
    """One module.

    Attributes:
        name: of its folder.
        before_us, after_us: the step.
        bound_us: of the entry, its callees as they are.
        peak: after, as a share of the one before.
        seconds: of the processor.
        moves: tried.
        above_limit: whether XLA's memory limit is exceeded anyway.
    """

    name: str
    before_us: float
    after_us: float
    bound_us: float
    peak: float
    seconds: float
    moves: int
    above_limit: bool

    @property
    def ratio(self) -> float:
        """Step after, as a share of the one before."""
        return self.after_us / self.before_us


def measure(folder: pathlib.Path, effort: float, seed: int) -> Row:
    """Improve XLA's schedule of one recording."""
    file = next(iter(sorted(folder.glob(f"{_AFTER}*"))))
    module = hlo_passes.parse(read_text(file), filename=str(file))
    oracle = json.loads((folder / "oracle.json").read_text("utf-8"))
    costs = next(iter(sorted(folder.glob("costs.json*"))))
    pricing = Pricing(costs=str(costs), topology=str(oracle["topology"]))
    report = Report()
    began = time.process_time()
    improver = ScheduleImprover(effort=effort, seed=seed)
    improver.run(module, PassContext(pricing), report)
    seconds = time.process_time() - began
    found = report.details["improvement"]
    limit = scheduler_memory_limit_bytes(module, target(_TARGET).memory_bytes)
    entry = found["computations"].get(module.entry.name, {})
    return Row(
        name=folder.parent.name if folder.name == "sol" else folder.name,
        before_us=found["step_before_us"],
        after_us=found["step_us"],
        bound_us=entry.get("bound_us", found["step_us"]),
        peak=found["peak_bytes"] / max(1, found["peak_before_bytes"]),
        seconds=seconds,
        moves=found["moves_tried"],
        above_limit=found["peak_before_bytes"] > limit,
    )


def _mean(ratios: Sequence[float]) -> float:
    """The geometric mean; 1 for none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folders = arguments.folders or sorted((SHARED / "golden").glob("*/sol"))
    out = sys.stdout.write
    out(
        f"{'module':26} {'XLA us':>12} {'ours us':>12} {'ratio':>7} {'bound us':>12} "
        f"{'gap':>6} {'peak':>6} {'CPU s':>6} {'moves/s':>8}\n"
    )
    rows = []
    for folder in folders:
        row = measure(folder, arguments.effort, arguments.seed)
        rows.append(row)
        out(
            f"{row.name:26} {row.before_us:12,.1f} {row.after_us:12,.1f} "
            f"{row.ratio:7.4f} {row.bound_us:12,.1f} "
            f"{row.after_us / row.bound_us:6.3f} {row.peak:6.3f} {row.seconds:6.1f} "
            f"{row.moves / row.seconds:8,.0f}\n"
        )
        sys.stdout.flush()
    kept = [row.ratio for row in rows if not row.above_limit]
    out(f"geometric mean {_mean([row.ratio for row in rows]):.4f}; ")
    out(f"without those above XLA's memory limit {_mean(kept):.4f}\n")


if __name__ == "__main__":
    main()
