"""The page of `hlo-passes tune`: what to set, what each lever does, before and after.

    page = tune_page(result, evaluator.module, on, rules)

The step as it was and with the best flags side by side, as `simulate --against` draws
two schedules, and above them every combination by step and peak memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side, readable
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.units import bytes_text, time_text
from hlo_passes.scheduler.tuning.combination import Combination, flags_of
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_schedule import rules_for
from hlo_passes.scheduler.tuning.result import Row, TuneResult


def tune_page(
    result: TuneResult,
    module_of: Callable[[Combination], Module],
    on: Pricing,
    rules: Rules,
) -> str:
    """The page of a search.

    Args:
        result: of the search.
        module_of: the scheduled module of a combination.
        on: as the search priced.
        rules: as the search simulated.
    """
    search = result.search
    best = _side(search.best, "after", module_of, on, rules)
    if search.best == search.baseline:
        return render_page(replace(best, label=""), tune=tune_data(result))
    baseline = _side(search.baseline, "before", module_of, on, rules)
    return render_page(best, baseline, tune=tune_data(result))


def _side(
    chosen: Combination,
    label: str,
    module_of: Callable[[Combination], Module],
    on: Pricing,
    rules: Rules,
) -> Side:
    module = module_of(chosen)
    timeline = simulate_on(module, on, rules_for(chosen, rules), with_range=True)
    return Side(timeline, label, chosen.to_text() if chosen else "as it is", module)


def tune_data(result: TuneResult) -> dict[str, Any]:
    """What the page draws of a search."""
    search = result.search
    tried = {c: o for c, o in search.tried.items() if o.is_done}
    front = _front(tried)
    best, baseline = result.best, result.baseline
    return {
        "set": _setting(result),
        "caption": _caption(result, len(tried)),
        "limit_bytes": search.memory_bytes,
        "points": [
            {
                "name": chosen.to_text() if chosen else "as it is",
                "step_us": outcome.step_us,
                "bytes": outcome.memory_bytes,
                "is_front": chosen in front,
                "role": _role(chosen, result),
            }
            for chosen, outcome in tried.items()
        ],
        "levers": [_lever(row, result) for row in result.rows],
        "told": readable(
            f"Step {time_text(baseline.step_us)} to {time_text(best.step_us)}, "
            f"memory {bytes_text(baseline.memory_bytes)} to "
            f"{bytes_text(best.memory_bytes)}."
        ),
    }


def _setting(result: TuneResult) -> str:
    others = " ".join(f"{n}={v}" for n, v in result.variables.items())
    flags = f'XLA_FLAGS="{result.flags}"' if result.flags else ""
    return " ".join(filter(None, (others, flags)))


def _caption(result: TuneResult, count: int) -> str:
    told = (
        f"{count} combinations, by predicted step and peak memory; the line joins "
        "those that no other beats in both"
    )
    if result.changes:
        told += (
            f"; the best is faster in {result.holds} of {len(result.changes)} settings "
            "of the range"
        )
    return f"{told}."


def _role(chosen: Combination, result: TuneResult) -> str:
    if chosen == result.search.best:
        return "best"
    return "baseline" if chosen == result.search.baseline else ""


def _front(tried: dict[Combination, Outcome]) -> set[Combination]:
    """Those that no other beats in step and memory."""
    found: set[Combination] = set()
    least = None
    ranked = sorted(
        tried.items(), key=lambda row: (row[1].step_us, row[1].memory_bytes)
    )
    for chosen, outcome in ranked:
        if least is None or outcome.memory_bytes < least:
            found.add(chosen)
            least = outcome.memory_bytes
    return found


def _lever(row: Row, result: TuneResult) -> dict[str, Any]:
    outcome = row.outcome if row.outcome is not None and row.outcome.is_done else None
    chosen = Combination.of({row.lever: row.setting}) if row.setting else Combination()
    return {
        "text": row.text,
        "what": LEVERS[row.lever].what if row.lever in LEVERS else "",
        "step_us": None if outcome is None else outcome.step_us,
        "bytes": None if outcome is None else outcome.memory_bytes,
        "change": row.change,
        "without": result.without(row.lever) if row.verdict == "set" else None,
        "verdict": row.verdict,
        "flag": " ".join(f.setting for f in flags_of(chosen, result.release)),
        "why": row.why,
    }
