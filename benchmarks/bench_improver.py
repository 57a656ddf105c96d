"""The schedule improver: what it gains on modules that XLA scheduled, and how fast.

    python -m benchmarks.bench_improver [--effort=1.0] [--seed=0] [--only=REGEX]
        [--prove=SECONDS] [--markdown] [PLACE ...]

A PLACE is a folder or an archive of recordings, as for `tests.scheduler.conformance`;
by default the public modules beside the checkout. Of several settings `sol` is
measured, with XLA's own costs. Seconds are of the processor: of the whole pass, with
two simulations and the checker.

The bound is proven: no orders of the computations give a shorter step, whatever memory
they take. `gap` is a step as a multiple of it, XLA's and ours. With `--prove`, HiGHS
and, where it is installed, CP-SAT raise it, each with so many seconds of the clock for
each computation whose order is not proved optimal yet; gaps are to what they prove.
Means are geometric; one leaves out modules above XLA's memory limit, for which XLA
stops overlapping.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import pathlib
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import hlo_passes
from benchmarks.modules import SHARED
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.improver.prove import proven_bound_us
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.improver.solvers import CP_SAT, HIGHS, Limits
from hlo_passes.scheduler.memory.memory_limit import scheduler_memory_limit_bytes
from hlo_passes.scheduler.simulation.simulate import simulate
from tests.scheduler.conformance.recordings import Recording, find_recordings
from tests.scheduler.conformance.setting import pricing_of

#: Modules nearer to the bound than this have nothing to gain.
_NEAR = 1.02


@dataclass(frozen=True, slots=True)
class Row:
    """One module.

    Attributes:
        name: of its recording.
        before_us, after_us: the step.
        flow_us: bound of the whole module by what can overlap.
        bound_us: the same, or what solvers raise it to.
        peak: after, as a share of the one before.
        seconds: of the processor.
        moves: tried.
        above_limit: whether XLA's memory limit is exceeded anyway.
    """

    name: str
    before_us: float
    after_us: float
    flow_us: float
    bound_us: float
    peak: float
    seconds: float
    moves: int
    above_limit: bool

    @property
    def ratio(self) -> float:
        """Step after, as a share of the one before."""
        return self.after_us / self.before_us

    @property
    def gap(self) -> float:
        """Step after, as a multiple of the bound."""
        return self.after_us / self.bound_us

    @property
    def gap_before(self) -> float:
        """Step before, as a multiple of the bound."""
        return self.before_us / self.bound_us

    def cells(self) -> list[str]:
        """A line of the table."""
        return [
            self.name,
            f"{self.before_us:,.1f}",
            f"{self.after_us:,.1f}",
            f"{self.ratio:.4f}",
            f"{self.flow_us:,.1f}",
            f"{self.bound_us:,.1f}",
            f"{self.gap_before:.3f}",
            f"{self.gap:.3f}",
            f"{self.peak:.3f}",
            f"{self.seconds:.1f}",
            f"{self.moves / self.seconds:,.0f}" if self.moves else "-",
        ]


_HEAD = ["module", "XLA us", "ours us", "ratio", "flow us", "bound us"]
_HEAD += ["gap XLA", "gap ours", "peak", "CPU s", "moves/s"]


def measure(
    recording: Recording, effort: float, seed: int, solvers: Sequence[Limits] = ()
) -> Row | None:
    """Improve XLA's schedule of one recording; None if its step takes no time."""
    module = hlo_passes.parse(recording.after, filename=recording.name)
    improver = ScheduleImprover(effort=effort, seed=seed)
    with pricing_of(recording) as pricing:
        context = PassContext(pricing)
        memory_bytes = target(pricing.target).memory_bytes
        limit = scheduler_memory_limit_bytes(module, memory_bytes)
        report = Report()
        began = time.process_time()
        improver.run(module, context, report)
        seconds = time.process_time() - began
        conditions = improver.conditions(module, context)
        flow = proven_bound_us(module, conditions, ())
        flow = max(flow, simulate(module, pricing).lower_bound_us)
        bound = flow
        if solvers:
            bound = max(flow, proven_bound_us(module, conditions, solvers))
    found = report.details["improvement"]
    if not found["step_before_us"]:
        return None
    return Row(
        name=recording.name,
        before_us=found["step_before_us"],
        after_us=found["step_us"],
        flow_us=flow,
        bound_us=bound,
        peak=found["peak_bytes"] / max(1, found["peak_before_bytes"]),
        seconds=seconds,
        moves=found["moves_tried"],
        above_limit=found["peak_before_bytes"] > limit,
    )


def recordings(places: Sequence[pathlib.Path], only: str) -> Iterator[Recording]:
    """Those with XLA's own costs, of several settings `sol`."""
    for recording in find_recordings(*places):
        setting = recording.name.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
        others = ("approx", "start_delay", "tight", "multi", "async_compute")
        is_asked = re.search(only, recording.name) is not None
        if recording.is_priced and is_asked and not setting.startswith(others):
            yield recording


def provers(seconds: float | None) -> list[Limits]:
    """The solvers at hand, with so much time for each computation."""
    if seconds is None:
        return []
    names = [HIGHS]
    if importlib.util.find_spec("ortools") is not None:
        names.append(CP_SAT)
    return [Limits(seconds, solver=name) for name in names]


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean; 1 for none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def means(rows: Sequence[Row]) -> str:
    """The geometric means, of all and of some."""
    some = [row for row in rows if row.gap_before > _NEAR]
    chosen = {
        "all": rows,
        f"XLA's gap above {_NEAR}": some,
        "of them, within XLA's memory limit": [r for r in some if not r.above_limit],
    }
    return "".join(
        f"{name}: {len(of)} modules, ratio {mean(r.ratio for r in of):.4f}, "
        f"greatest {max((r.ratio for r in of), default=1.0):.4f}, "
        f"gap {mean(r.gap for r in of):.4f} (greatest "
        f"{max((r.gap for r in of), default=1.0):.4f}), "
        f"bound as a share of XLA's step {mean(1 / r.gap_before for r in of):.4f}\n"
        for name, of in chosen.items()
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", metavar="PLACE", type=pathlib.Path)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="of names")
    parser.add_argument("--prove", type=float, metavar="SECONDS")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    places = options.places or [SHARED / "golden"]
    width = 44

    def line(cells: Sequence[str]) -> None:
        if options.markdown:
            text = f"| {' | '.join(cells)} |"
        else:
            rest = "".join(f"{cell:>13}" for cell in cells[1:])
            text = f"{cells[0]:{width}}{rest}"
        print(text, flush=True)

    line(_HEAD)
    if options.markdown:
        line(["---"] * len(_HEAD))
    rows = []
    for recording in recordings(places, options.only):
        solvers = provers(options.prove)
        row = measure(recording, options.effort, options.seed, solvers)
        if row is not None:
            rows.append(row)
            line(row.cells())
    sys.stdout.write("\n" + means(rows))


if __name__ == "__main__":
    main()
