"""The improver on what XLA scheduled: never worse, whoever judges.

    python -m tests.scheduler.improver.recordings [--effort=0.05] [--rounds=2]
        [--every=1] [--from=0] [--seconds=N] [--only=REGEX] [PLACE...]

A PLACE is as for `tests.scheduler.conformance`. XLA's order of every recording is
improved under its own costs and limits. Compared are the step that `simulate` reports,
XLA's statistic of every computation, the peak that the schedule checker counts, what
the checker finds, and the module, which must be the same but for its order. The digest
at the end is of all orders: it must be the same on every Python.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import pathlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics
from hlo_passes.scheduler.simulation.simulate import simulate
from tests.scheduler.conformance.__main__ import PLACES
from tests.scheduler.conformance.recordings import Recording, find_recordings
from tests.scheduler.conformance.setting import pricing_of, setting_of
from tests.scheduler.improver.modules import order_text

#: Sums of the same numbers in another order differ by less.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """One recording.

    Attributes:
        name: of the recording.
        ratio: the step after, as a share of the one before.
        why: why all orders were kept, '' if one has changed.
        orders: digest of all of them.
        worse: by what it is worse, or otherwise wrong.
    """

    name: str
    ratio: float
    why: str
    orders: str
    worse: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the judges say about a schedule.

    Attributes:
        step_us: of `simulate`.
        peak_bytes: as the checker counts.
        xla_us: XLA's statistic, by computation.
        findings: of the checker.
    """

    step_us: float
    peak_bytes: int
    xla_us: dict[str, float]
    findings: Counter[str]

    def worse_than(self, other: Figures) -> list[str]:
        """In which respects it is."""
        found = []
        if self.step_us > other.step_us:
            found.append(f"step {other.step_us!r} -> {self.step_us!r} us")
        if self.peak_bytes > other.peak_bytes:
            found.append(f"peak {other.peak_bytes} -> {self.peak_bytes} bytes")
        found += [
            f"XLA's statistic of {name} {other.xla_us[name]!r} -> {us!r} us"
            for name, us in self.xla_us.items()
            if us > other.xla_us[name] * (1 + _ROUNDING)
        ]
        found += [f"checker: {text}" for text in self.findings - other.findings]
        return found


def improve_recording(
    recording: Recording, *, effort: float = 0.05, rounds: int = 2
) -> Outcome:
    """Improve XLA's order of a recording, and judge both."""
    module = hlo_passes.parse(recording.after, filename=recording.name)
    settings = setting_of(recording).settings
    improver = ScheduleImprover(
        parallel_collective_overlap_limit=settings.parallel_collective_overlap_limit,
        parallel_async_compute_limit=settings.parallel_async_compute_limit,
        enable_collective_multi_streaming=settings.enable_collective_multi_streaming,
        effort=effort,
        rounds=rounds,
    )
    given = sorted(module.to_canonical_text().splitlines())
    with pricing_of(recording) as pricing:
        context = PassContext(pricing)
        estimator = improver.conditions(module, context).xla_prices
        before = _figures(module, settings, estimator, pricing)
        report = Report()
        improver.run(module, context, report)
        found = report.details.get("improvement", {})
        after = _figures(module, settings, estimator, pricing)
    worse = after.worse_than(before)
    if sorted(module.to_canonical_text().splitlines()) != given:
        worse.append("more than the order has changed")
    origin = hlo_passes.parse(recording.after, filename=recording.name)
    broken = [f for f in check_schedule(module, origin) if f.code in ("C002", "C003")]
    worse += [f.render() for f in broken]
    if not found.get("kept") and found.get("step_us") != after.step_us:
        worse.append(f"reported {found.get('step_us')!r} us, not {after.step_us!r}")
    return Outcome(
        recording.name,
        after.step_us / before.step_us if before.step_us else 1.0,
        found.get("kept") or "" if found else "no schedule",
        hashlib.sha256(order_text(module).encode()).hexdigest(),
        tuple(worse),
    )


def _figures(
    module: Module,
    settings: SchedulerSettings,
    estimator: Estimator,
    pricing: Pricing,
) -> Figures:
    tracker = make_tracker(settings)
    findings = check_schedule(
        module,
        parallel_collective_overlap_limit=settings.parallel_collective_overlap_limit,
        parallel_async_compute_limit=settings.parallel_async_compute_limit,
        enable_collective_multi_streaming=settings.enable_collective_multi_streaming,
    )
    return Figures(
        simulate(module, pricing).step_time_us,
        peak_memory(module).size_bytes,
        {
            c.name: lhs_statistics(c, estimator, tracker).total_us
            for c in module.computations
        },
        Counter(f"{f.code} {f.message}" for f in findings),
    )


def main() -> int:
    """Judge all recordings; 1 if one is worse."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.scheduler.improver.recordings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", type=pathlib.Path, metavar="PLACE")
    parser.add_argument("--effort", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="one of so many")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--only", default="", metavar="REGEX", help="of names")
    options = parser.parse_args()
    places = options.places or [p for p in PLACES if p.is_dir()]
    wanted = (
        recording
        for recording in find_recordings(*places)
        if re.search(options.only, recording.name)
    )
    chosen = itertools.islice(wanted, options.first, None, options.every)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for recording in chosen:
        if time.monotonic() - began > options.seconds:
            break
        outcome = improve_recording(
            recording, effort=options.effort, rounds=options.rounds
        )
        outcomes.append(outcome)
        for text in outcome.worse:
            print(f"WORSE {outcome.name}: {text}", flush=True)
    print(summary(outcomes))
    return 1 if any(o.worse for o in outcomes) else 0


def summary(outcomes: Iterable[Outcome]) -> str:
    """Counts over all recordings, and a digest of their orders."""
    outcomes = list(outcomes)
    changed = [o for o in outcomes if not o.why]
    ratios = [o.ratio for o in changed]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    digest = hashlib.sha256("".join(o.orders for o in outcomes).encode()).hexdigest()
    lines = [
        f"{len(outcomes)} recordings, {sum(bool(o.worse) for o in outcomes)} worse; "
        f"{len(changed)} with another order, in the mean {mean:.4f} of XLA's step, "
        f"the least {min(ratios, default=1.0):.4f}",
        f"orders {digest[:16]}",
    ]
    reasons = Counter(re.sub(r"[\d.,]+%?", "N", o.why) for o in outcomes if o.why)
    lines += (f"{count:6} kept: {why}" for why, count in reasons.most_common())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
