"""What is left of the improver's gain if the costs were wrong.

    python -m benchmarks.bench_wrong_costs [--samples=20] [--effort=1.0] [--only=REGEX]
        [PLACE ...]

XLA's schedules are improved under XLA's own costs. Then both orders are simulated
under others: every cost and every latency is changed by up to 20 % or 50 %, each by
itself; or the network is 1.5 times as slow. Shown are the mean of (improved / XLA's),
the worst of the samples, and in how many of them the improved order is the slower one.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import hlo_passes
from benchmarks.bench_improver import recordings
from benchmarks.modules import SHARED
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.simulation.simulate import simulate
from tests.scheduler.conformance.recordings import Recording
from tests.scheduler.conformance.setting import pricing_of

_LATENCIES = "latency_us"
Costs = dict[str, dict[str, float]]


def spread(costs: Costs, share: float, seed: int) -> Costs:
    """Every cost and every latency changed by up to a share, each by itself."""
    draw = random.Random(seed).random
    return {
        table: {name: us * (1 + share * (2 * draw() - 1)) for name, us in of.items()}
        for table, of in costs.items()
    }


def slower_network(costs: Costs, factor: float) -> Costs:
    """Every latency longer."""
    longer = {name: us * factor for name, us in costs[_LATENCIES].items()}
    return costs | {_LATENCIES: longer}


def ratios(
    before: Module, after: Module, pricing: Pricing, costs: Iterator[Costs]
) -> list[float]:
    """The step of one order as a share of that of another, under each costs."""
    found = []
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        file = pathlib.Path(folder) / "costs.json"
        on = replace(pricing, costs=str(file))
        for each in costs:
            file.write_text(json.dumps(each))
            found.append(
                simulate(after, on).step_time_us / simulate(before, on).step_time_us
            )
    return found


def row(recording: Recording, effort: float, samples: int) -> list[str] | None:
    """The cells of one recording; None if nothing is improved."""
    before = hlo_passes.parse(recording.after, filename=recording.name)
    after = before.clone()
    costs: Costs = json.loads(recording.texts["costs.json"])
    report = Report()
    with pricing_of(recording) as pricing:
        ScheduleImprover(effort=effort).run(after, PassContext(pricing), report)
        found = report.details["improvement"]
        if found["kept"]:
            return None
        cells = [recording.name, f"{found['step_us'] / found['step_before_us']:.4f}"]
        for share in (0.2, 0.5):
            drawn = (spread(costs, share, seed) for seed in range(samples))
            of = ratios(before, after, pricing, drawn)
            worse = sum(ratio > 1.0 for ratio in of)
            cells += [f"{sum(of) / samples:.4f}", f"{max(of):.4f}", str(worse)]
        slow = iter([slower_network(costs, 1.5)])
        cells.append(f"{ratios(before, after, pricing, slow)[0]:.4f}")
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", metavar="PLACE", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", default="", metavar="REGEX", help="of names")
    options = parser.parse_args()
    head = ["module", "right", "mean 20%", "worst", "slower", "mean 50%", "worst"]

    def show(cells: list[str]) -> None:
        rest = "".join(f"{cell:>10}" for cell in cells[1:])
        print(f"{cells[0]:44}{rest}", flush=True)

    show([*head, "slower", "network"])
    for recording in recordings(options.places or [SHARED / "golden"], options.only):
        cells = row(recording, options.effort, options.samples)
        if cells is not None:
            show(cells)


if __name__ == "__main__":
    main()
