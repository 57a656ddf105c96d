"""Our scheduler on a recording, and where it parts from XLA's.

Every recording is scheduled twice, since there are two ways of choosing:

    pair by pair       with a log of decisions (`latency_hiding/pairs.py`)
    all at once        without one, as a user schedules (`latency_hiding/scan.py`)

Compared are: the order of every computation both ways, every comparison line by line,
XLA's statistics before and after, the memory pressure peaks. The first comparison that
differs is shown with its step, since everything after it follows from it. The checker
looks at both schedules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import hlo_passes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.result import (
    ComputationSchedule,
    ScheduleResult,
)
from hlo_passes.scheduler.latency_hiding.statistics import latency_us, node_cost_us
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from tests.scheduler.conformance.recordings import Recording, Statistics
from tests.scheduler.conformance.setting import Setting, setting_of

Row = tuple[str, str, str]
#: XLA prints six digits, of sums of what it printed with six.
TOLERANCE = 1e-3
#: Relative error of a sum of such.
_LOG_ERROR = 1e-6
_PEAK = "memory pressure peak (bytes)"
#: How many rows of a step are shown.
_MOST_ROWS = 12


@dataclass(frozen=True)
class Difference:
    """One thing that is not as XLA had it.

    Attributes:
        part: `order` (without a log), `logged order`, `decision`, `statistic`, `peak`,
            `computations` or `legality`.
        computation: where.
        text: what, ours and XLA's.
        is_explained: the digits that XLA's log leaves out account for it.
    """

    part: str
    computation: str
    text: str
    is_explained: bool = False

    def __str__(self) -> str:
        return f"{self.part} of {self.computation}: {self.text}"


@dataclass
class Verdict:
    """How our scheduler did on one recording.

    Attributes:
        name: of the recording.
        estimator_name: of the estimator used.
        scheduled: computations that XLA's scheduler looked at.
        in_order: of them, those in XLA's order without a log.
        logged_in_order: of them, those in XLA's order with a log.
        decisions: comparisons that XLA made.
        equal_decisions: of them, those before the first difference of a computation.
        differences: all that nothing explains, first things first.
        explained: those that the rounding of XLA's log explains.
        seconds: of our scheduler, without a log.
        logged_seconds: with one.
    """

    name: str
    estimator_name: str
    scheduled: int = 0
    in_order: int = 0
    logged_in_order: int = 0
    decisions: int = 0
    equal_decisions: int = 0
    differences: list[Difference] = field(default_factory=list)
    explained: list[Difference] = field(default_factory=list)
    seconds: float = 0.0
    logged_seconds: float = 0.0


def judge(
    recording: Recording, *, estimator_name: str = "", figures: bool = True
) -> Verdict:
    """Schedule what XLA scheduled, both ways, and compare.

    Args:
        recording: of XLA.
        estimator_name: as for `setting_of`.
        figures: compare statistics and peaks (of no use with other costs than XLA's).
    """
    setting = setting_of(recording, estimator_name=estimator_name)
    given = {c: c.instructions for c in setting.module.computations}
    verdict = Verdict(recording.name, setting.estimator_name)
    verdict.scheduled = sum(name in _scheduled(recording) for name in recording.orders)
    result, verdict.logged_seconds = _timed(setting, log_decisions=True)
    _compare_decisions(recording, result, verdict)
    verdict.logged_in_order = _compare_orders(
        recording, setting.module, verdict, "logged order"
    )
    _check(recording, setting, verdict)
    for computation, order in given.items():
        computation.set_order(order)
    result, verdict.seconds = _timed(setting, log_decisions=False)
    verdict.in_order = _compare_orders(recording, setting.module, verdict, "order")
    _check(recording, setting, verdict)
    if figures:
        _compare_figures(recording, setting, result, verdict)
    return verdict


def _timed(setting: Setting, *, log_decisions: bool) -> tuple[ScheduleResult, float]:
    begun = time.perf_counter()
    result = schedule_module(
        setting.module,
        setting.estimator,
        setting.settings,
        log_decisions=log_decisions,
    )
    return result, time.perf_counter() - begun


def _scheduled(recording: Recording) -> Statistics:
    """Computations that XLA's scheduler looked at, with its statistics before."""
    return recording.statistics["before"]


#: What the checker asks as the scheduler was asked it.
_CHECKED = (
    "parallel_collective_overlap_limit",
    "parallel_async_compute_limit",
    "enable_collective_multi_streaming",
)


def _check(recording: Recording, setting: Setting, verdict: Verdict) -> None:
    before = hlo_passes.parse(recording.before, filename=recording.name)
    limits = {name: getattr(setting.settings, name) for name in _CHECKED}
    for finding in check_schedule(setting.module, before, **limits):
        entry = setting.module.entry.name
        verdict.differences.append(Difference("legality", entry, finding.render()))


def _compare_orders(
    recording: Recording, module: Module, verdict: Verdict, part: str
) -> int:
    """Note orders that differ; returns how many scheduled ones are XLA's."""
    in_order = 0
    for computation in module.computations:
        wanted = recording.orders.get(computation.name)
        if wanted is None:
            continue
        # XLA's text of jax 0.12 may leave elements of tuples to their users.
        listed = frozenset(wanted)
        names = [i.name for i in computation.instructions if i.name in listed]
        if computation.name in _scheduled(recording):
            in_order += names == wanted
        if names != wanted:
            at = next(k for k, n in enumerate(names) if n != wanted[k])
            text = f"at {at} of {len(names)}: ours {names[at]}, XLA's {wanted[at]}"
            verdict.differences.append(Difference(part, computation.name, text))
    return in_order


def _compare_decisions(
    recording: Recording, result: ScheduleResult, verdict: Verdict
) -> None:
    if recording.decisions is None:
        return
    verdict.decisions = len(recording.decisions)
    home = {
        instruction.name: computation.name
        for computation in result.module.computations
        for instruction in computation.instructions
    }
    # By computation: XLA's order of those that do not call one another follows from
    # the compilation's history, which no text has, and nothing decided depends on it.
    theirs: dict[str, list[Row]] = {}
    for row in recording.decisions:
        theirs.setdefault(home[row[0]], []).append(row)
    ours = {
        c.computation.name: [tuple(d) for d in c.decisions]
        for c in result.computations
        if c.decisions
    }
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours or name not in theirs:
            text = f"decided in by {'XLA' if name in theirs else 'ours'} alone"
            verdict.differences.append(Difference("computations", name, text))
            continue
        at = first_difference(ours[name], theirs[name])
        if at is None:
            verdict.equal_decisions += len(theirs[name])
        else:
            verdict.equal_decisions += at
            text = _shown_step(ours[name], theirs[name], at)
            verdict.differences.append(Difference("decision", name, text))


def first_difference(
    ours: Sequence[tuple[str, ...]], theirs: Sequence[Row]
) -> int | None:
    """Index of the first row that differs; None where all are equal."""
    for at, (own, other) in enumerate(zip_longest(ours, theirs)):
        if own != other:
            return at
    return None


def _shown_step(ours: Sequence[tuple[str, ...]], theirs: Sequence[Row], at: int) -> str:
    """The step of row `at` on both sides, from its first candidate on."""
    begin = at
    while begin > 0 and (begin >= len(theirs) or theirs[begin][1]):
        begin -= 1
    step = theirs[begin : at + 1]
    lines = [f"row {at} of {len(theirs)}, after {_placed(theirs, begin)}"]
    lines += (f"    both   {_row(r)}" for r in step[:-1][-_MOST_ROWS:])
    lines.append(f"    XLA    {_row(theirs[at]) if at < len(theirs) else 'ends'}")
    lines.append(f"    ours   {_row(ours[at]) if at < len(ours) else 'ends'}")
    return "\n".join(lines)


def _placed(rows: Sequence[Row], begin: int) -> str:
    return f"{rows[begin - 1][0]} was placed" if begin else "the start"


def _row(row: Iterable[str]) -> str:
    chosen, other, reason = row
    return f"{chosen} over {other or 'nothing'}: {reason}"


def _compare_figures(
    recording: Recording, setting: Setting, result: ScheduleResult, verdict: Verdict
) -> None:
    scheduled = {c.computation.name: c for c in result.computations}
    tracker = make_tracker(setting.settings)
    for phase, table in recording.statistics.items():
        for name, wanted in table.items():
            own = scheduled.get(name)
            if own is None:
                text = f"{phase}: XLA has statistics, ours was not scheduled"
                verdict.differences.append(Difference("statistic", name, text))
                continue
            slack = float(own_starts_at_whole_us(own, setting.estimator, tracker))
            found = [*_figures(own, phase, wanted, slack)]
            verdict.differences += (d for d in found if not d.is_explained)
            verdict.explained += (d for d in found if d.is_explained)


def _figures(
    own: ComputationSchedule, phase: str, wanted: dict[str, float], slack_us: float
) -> Iterable[Difference]:
    figures = (own.before if phase == "before" else own.after).to_json()
    for key, value in wanted.items():
        found = figures.get(key, math.nan)
        is_peak = key == _PEAK
        if found == value or (not is_peak and _is_close(found, value)):
            continue
        part = "peak" if is_peak else "statistic"
        text = f"{key} {phase}: ours {found}, XLA's {value}"
        whole = abs(found - value) <= slack_us + TOLERANCE * max(1.0, value)
        explained = not is_peak and phase == "after" and whole
        yield Difference(part, own.computation.name, text, is_explained=explained)


def _is_close(found: float, value: float) -> bool:
    return math.isclose(found, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def own_starts_at_whole_us(
    own: ComputationSchedule, estimator: Estimator, tracker: AsyncTracker
) -> int:
    """How many starts begin at a whole microsecond, within what the log rounds off.

    XLA truncates the time of a start. Its log has six digits of a cost: 351.000 may be
    350.9998, and a start that is at 1365.0 here was at 1364 there: a microsecond less.
    """
    now, count = 0.0, 0
    begun: dict[Instruction, int] = {}
    for instruction in own.order:
        now += node_cost_us(estimator, instruction)
        if tracker.is_supported_start(instruction):
            begun[instruction] = int(now)
            count += abs(now - round(now)) <= _LOG_ERROR * max(now, 1.0)
        elif tracker.is_supported_done(instruction):
            start = instruction.operands[0]
            if start in begun:
                latency = latency_us(estimator, start, instruction)
                now += max(0.0, latency - (now - begun[start]))
    return count
