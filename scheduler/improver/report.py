"""The report of an improvement: what became of each computation, and which pair moved.

hidden: %all-gather-start.3 306 of 306 us in %region_2.18 (before: 114): its start moved
    14 up, its done 3 down
exposed more: %all-reduce-start.1 40 of 90 us in %main.7 (before: 12)
proven: no order of %region_4 is faster
kept: %region_5: nothing is exposed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.passes.framework.base import Report
from hlo_passes.scheduler.improver.search import Improvement
from hlo_passes.scheduler.improver.whole_module import ModuleImprovement
from hlo_passes.scheduler.sums import sequential_sum

#: Pairs that remarks name: those with the greatest differences.
_MOST_NAMED: Final = 10
#: A smaller difference is none, us.
_LEAST_US: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair in two orders.

    Attributes:
        start, done: nodes of the problem.
        latency_us: of the pair.
        before_us, after_us: how long its done waits.
        up, down: instructions by which its start came earlier and its done later.
    """

    start: int
    done: int
    latency_us: float
    before_us: float
    after_us: float
    up: int
    down: int


def pairs_of(found: Improvement) -> list[Pair]:
    """All pairs of a computation, in the order given."""
    problem = found.problem
    given = range(len(problem))
    place = {n: k for k, n in enumerate(found.order)}
    before, after = _waits(found, given), _waits(found, found.order)
    return [
        Pair(
            start=problem.partner[n],
            done=n,
            latency_us=problem.latency_us[problem.partner[n]],
            before_us=before[n],
            after_us=after[n],
            up=problem.partner[n] - place[problem.partner[n]],
            down=place[n] - n,
        )
        for n in given
        if problem.is_done[n]
    ]


def _waits(found: Improvement, order: Any) -> dict[int, float]:
    """How long each done waits in an order."""
    problem = found.problem
    now = 0.0
    free: dict[int, float] = {}
    ends: dict[int, float] = {}
    waits: dict[int, float] = {}
    for n in order:
        if problem.is_start[n]:
            begin = max(now, free.get(problem.stream[n], 0.0))
            ends[n] = free[problem.stream[n]] = begin + problem.latency_us[n]
        elif problem.is_done[n]:
            waits[n] = max(0.0, ends[problem.partner[n]] - now)
            now += waits[n]
        now += problem.cost_us[n]
    return waits


def fill_report(report: Report, result: ModuleImprovement, explain: str = "") -> None:
    """Put a result into a pass's report."""
    changed = [f for f in result.computations if _has_changed(f, result)]
    report.count("computations-improved", len(changed))
    report.details["improvement"] = {
        "step_us": result.after_us,
        "step_before_us": result.before_us,
        "peak_bytes": result.peak_after_bytes,
        "peak_before_bytes": result.peak_before_bytes,
        "cap_bytes": result.cap_bytes,
        "kept": result.kept or None,
        "moves_tried": result.budget.tried,
        "moves_taken": result.budget.taken,
        "seconds": round(result.seconds, 3),
        "computations": {
            f.problem.computation.name: _details(f, result) for f in result.computations
        },
    }
    if result.budget.is_over:
        report.remark("the time was over: another run may end with another order")
    if result.kept:
        report.remark(f"kept: all orders: {result.kept}")
    else:
        gain = 1 - result.after_us / result.before_us
        report.remark(
            f"step: {result.before_us:.6g} us before, {result.after_us:.6g} us after "
            f"({gain:.2%} less); memory: {result.peak_before_bytes:,} bytes at the "
            f"peak before, {result.peak_after_bytes:,} after"
        )
    for found in result.computations:
        name = found.problem.computation.name
        if found.kept:
            report.remark(f"kept: %{name}: {found.kept}")
        elif why := result.put_back.get(name):
            if not result.kept:
                report.remark(f"kept: %{name}: {why}")
        elif found.is_proven:
            report.remark(f"proven: no order of %{name} is faster: {found.bound.why}")
    for text in _moved(changed):
        report.remark(text)
    if explain:
        for found in result.computations:
            if text := explanation(found, explain, result.put_back):
                report.explain(text)


def _has_changed(found: Improvement, result: ModuleImprovement) -> bool:
    return found.is_better and found.problem.computation.name not in result.put_back


def _details(found: Improvement, result: ModuleImprovement) -> Mapping[str, Any]:
    changed = _has_changed(found, result)
    pairs = pairs_of(found)
    return {
        "instructions": len(found.problem),
        "atoms": found.atoms,
        "step_before_us": found.before_us,
        "step_us": found.after_us if changed else found.before_us,
        "bound_us": found.bound.us,
        "bound_by": found.bound.by,
        "bound_why": found.bound.why,
        "exposed_before_us": sequential_sum(p.before_us for p in pairs),
        "exposed_us": sequential_sum(
            p.after_us if changed else p.before_us for p in pairs
        ),
        "moves_tried": found.tried,
        "moves_taken": found.taken,
        "rounds": found.rounds,
        "start": found.start,
        "under_wrong_costs": found.robustness,
        "kept": found.kept
        or result.put_back.get(found.problem.computation.name)
        or None,
    }


def _moved(changed: list[Improvement]) -> list[str]:
    """What pairs gained and lost, the greatest differences first."""
    found: list[tuple[float, str]] = []
    for each in changed:
        problem = each.problem
        for pair in pairs_of(each):
            difference = pair.before_us - pair.after_us
            if abs(difference) < _LEAST_US:
                continue
            gained = difference > 0
            shown = pair.latency_us - pair.after_us if gained else pair.after_us
            then = pair.latency_us - pair.before_us if gained else pair.before_us
            text = (
                f"{'hidden' if gained else 'exposed more'}: "
                f"%{problem.name(pair.start)} {max(0.0, shown):.6g} of "
                f"{pair.latency_us:.6g} us in %{problem.computation.name} (before: "
                f"{max(0.0, then):.6g})"
            )
            if where := _where(pair):
                text += f": {where}"
            found.append((-abs(difference), text))
    found.sort(key=lambda each: each[0])
    return [text for _, text in found[:_MOST_NAMED]]


def _where(pair: Pair) -> str:
    """Which way the halves of a pair went."""
    parts = []
    if pair.up:
        parts.append(f"its start {abs(pair.up)} {'up' if pair.up > 0 else 'down'}")
    if pair.down:
        parts.append(f"its done {abs(pair.down)} {'down' if pair.down > 0 else 'up'}")
    return ", ".join(parts)


def explanation(found: Improvement, name: str, put_back: Mapping[str, str]) -> str:
    """Where an instruction is, where it was, and what that is worth."""
    problem = found.problem
    node = next((n for n in range(len(problem)) if problem.name(n) == name), None)
    if node is None:
        return ""
    inside = problem.computation.name
    why = found.kept or put_back.get(inside)
    if why:
        return f"%{name} stays where it was: %{inside} keeps its order, since {why}"
    place = found.order.index(node)
    text = f"%{name} is at place {place + 1} of %{inside} (before: {node + 1})"
    mine = {node, problem.partner[node]}
    for pair in pairs_of(found):
        if pair.done not in mine:
            continue
        for label, order, wait in (
            ("before", range(len(problem)), pair.before_us),
            ("after", found.order, pair.after_us),
        ):
            order = list(order)
            window = order[order.index(pair.start) + 1 : order.index(pair.done)]
            work = [n for n in window if problem.cost_us[n] > 0.0]
            total = sequential_sum(problem.cost_us[n] for n in work)
            listed = ", ".join(f"%{problem.name(n)}" for n in work[:_MOST_NAMED])
            more = f" and {len(work) - _MOST_NAMED} more"
            text += (
                f"\n  {label}: {total:.6g} us of work in its window, {wait:.6g} of "
                f"{pair.latency_us:.6g} us exposed"
            )
            text += f": {listed}{more * (len(work) > _MOST_NAMED)}" if work else ""
    return text
