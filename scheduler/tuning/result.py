"""What a search found, as figures: which levers to set, to leave, and what each gives.

result.best, result.change          4.93 ms, -0.063
result.rows                         every lever that was tried alone, or why not
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from hlo_passes.plurals import counted
from hlo_passes.scheduler.tuning.combination import (
    Combination,
    compiler_options,
    setting_text,
    variables,
    xla_flags,
)
from hlo_passes.scheduler.tuning.flag_list import TriedList
from hlo_passes.scheduler.tuning.in_program import ProgramChange
from hlo_passes.scheduler.tuning.outcome import Outcome, share
from hlo_passes.scheduler.tuning.plugged_in import PluggedIn
from hlo_passes.scheduler.tuning.search import LEAST_GAIN, Search
from hlo_passes.xla_release import XlaRelease

#: What to do with a lever.
Verdict = Literal[
    "set",  # part of the best
    "helps alone",  # but not together with the best
    "no effect",  # the step stays
    "leave",  # the step gets longer
    "too much memory",
    "failed",
    "not priced",  # the step has operations without a price, which the baseline lacks
    "pointless",  # not tried: it cannot matter here
    "untried",  # not tried: the search ended before
]
#: Relative difference up to which two steps are the same: rounding.
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of one lever alone.

    Attributes:
        lever: its name.
        setting: '' where nothing was tried.
        outcome: None where nothing was tried.
        change: of the step, as a share of the baseline's; 0 without an outcome.
        verdict: what to do.
        why: of a lever that failed, cannot be priced or was not tried.
    """

    lever: str
    setting: str
    outcome: Outcome | None
    change: float
    verdict: Verdict
    why: str = ""

    @property
    def text(self) -> str:
        """'overlap limit 2'."""
        return setting_text(self.lever, self.setting)

    def to_json(self) -> dict[str, Any]:
        """The entry of `tune --json`."""
        found = self.outcome
        is_done = found is not None and found.is_done
        return {
            "name": self.lever,
            "setting": self.setting,
            "step_us": found.step_us if found and is_done else None,
            "peak_memory_bytes": found.memory_bytes if found and is_done else None,
            "verdict": self.verdict,
            "reason": self.why,
            "priced_from": None if found is None else found.source,
        }


@dataclass(frozen=True, slots=True)
class TuneResult:
    """Everything that the command tells.

    Attributes:
        name: what the user named.
        machine: what was priced on what, as in 'h100_sxm 2x1x8 (...), XLA 0.12'.
        model: what gave the prices.
        release: of XLA.
        search: that found it.
        dropped: why a lever was not tried, by lever.
        given_flags: XLA_FLAGS of the environment, which all compilations had.
        is_compiled: whether XLA compiled; else our own passes made every module.
        pipelines: by combination, the text that runs our passes; {} with XLA.
        compilations: that XLA ran; the others were known.
        seconds: that it took.
        alone: the best as XLA makes it from the flags that are printed, in a new
            process; None where nobody asked.
        improved: the best in an order of ours; None where that is no better.
        lists: of flags that the user gave, each tried as it is.
        in_program: what only the program can change.
        plugged_in: the best with passes of ours inside XLA's compilation.
        installs: whether this release lets passes run in its compilation.
        remarks: what limits all of these numbers.
    """

    name: str
    machine: str
    model: str
    release: XlaRelease
    search: Search
    dropped: Mapping[str, str]
    given_flags: str
    is_compiled: bool
    pipelines: Mapping[Combination, str]
    compilations: int
    seconds: float
    alone: Outcome | None = None
    improved: Outcome | None = None
    lists: tuple[TriedList, ...] = ()
    in_program: tuple[ProgramChange, ...] = ()
    plugged_in: tuple[PluggedIn, ...] = ()
    installs: bool = False
    remarks: tuple[str, ...] = ()

    # -- the best --------------------------------------------------------------

    @property
    def baseline(self) -> Outcome:
        """What all is compared with."""
        return self.search.tried[self.search.baseline]

    @property
    def best(self) -> Outcome:
        """The best step."""
        return self.search.tried[self.search.best]

    @property
    def change(self) -> float:
        """Of the step, as a share of the baseline's."""
        return self.best.change_from(self.baseline)

    @property
    def changes(self) -> tuple[float, ...]:
        """The same in every setting of the range."""
        return self.best.changes_from(self.baseline)

    @property
    def holds(self) -> int:
        """Settings in which the best is faster."""
        return sum(change < -_SAME for change in self.changes)

    @property
    def is_sure(self) -> bool:
        """Whether the best is faster in all settings."""
        return self.holds == len(self.changes)

    @property
    def doubts(self) -> list[str]:
        """Why it is not sure that the best is faster, as sentences."""
        if self.is_sure or not self.search.best:
            return []
        return [
            f"not sure: faster in {self.holds} of {len(self.changes)} settings of the "
            "range"
        ]

    def beats_the_best(self, given: Outcome) -> bool:
        """Whether a given list fits and is faster than what the search found.

        A step with operations that have no price is compared with nothing.
        """
        gains = given.change_from(self.best) <= -LEAST_GAIN
        return self.search.compares(given) and gains and self.search.fits(given)

    @property
    def flags(self) -> str:
        """XLA_FLAGS for the best, those of the environment first."""
        own = xla_flags(self.search.best, self.release)
        return " ".join(filter(None, (self.given_flags, own)))

    @property
    def flags_variable(self) -> str:
        """The variable of the environment that takes the flags."""
        return "XLA_FLAGS"

    @property
    def variables(self) -> dict[str, str]:
        """What else to set in the environment."""
        return variables(self.search.best, self.release)

    @property
    def options(self) -> dict[str, bool | int | str]:
        """`compiler_options` for the best."""
        return compiler_options(self.search.best, self.release)

    # -- the levers ------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        """Every lever alone, in the order of the table, then what was not tried."""
        known = {**self.search.own, **self.search.tried}
        singles = {
            chosen.settings[0]: outcome
            for chosen, outcome in known.items()
            if len(chosen.settings) == 1
        }
        rows = [
            self._row(lever, setting, singles.get((lever, setting)))
            for lever, settings in self.search.choices.items()
            for setting in settings
            if (lever, setting) in singles or self.search.best.get(lever) == setting
        ]
        told = {row.lever for row in rows}
        rows += [
            Row(lever, "", None, 0.0, "untried", why)
            for lever in self.search.choices
            if lever not in told and (why := self._why_untried(lever))
        ]
        return rows + [
            Row(lever, "", None, 0.0, "pointless", why)
            for lever, why in self.dropped.items()
        ]

    def _why_untried(self, lever: str) -> str:
        """Why the search never set a lever alone; '' for one that needs another."""
        search = self.search
        known = (*search.own, *search.tried)
        is_tried = any(lever in chosen.levers for chosen in known)
        if is_tried and search.levers[lever].only_with:
            return ""
        why = f"the search ended after {len(search.tried)} of --budget={search.budget}"
        return f"alone: {why}" if is_tried else why

    def _row(self, lever: str, setting: str, outcome: Outcome | None) -> Row:
        is_set = self.search.best.get(lever) == setting
        if outcome is None:
            return Row(lever, setting, None, 0.0, "set")
        if not outcome.is_done:
            return Row(lever, setting, outcome, 0.0, "failed", outcome.problem)
        if not self.search.compares(outcome):
            return Row(
                lever,
                setting,
                outcome,
                0.0,
                "not priced",
                unpriced_text(outcome, self.baseline),
            )
        change = share(outcome.step_us, self._against(outcome).step_us)
        verdict: Verdict = "no effect"
        if is_set:
            verdict = "set"
        elif not self.search.fits(outcome) and self.search.fits(self.baseline):
            verdict = "too much memory"
        elif change <= -LEAST_GAIN:
            verdict = "helps alone"
        elif change >= LEAST_GAIN:
            verdict = "leave"
        return Row(lever, setting, outcome, change, verdict)

    def _against(self, outcome: Outcome) -> Outcome:
        """The baseline from the same source."""
        if outcome.source == self.baseline.source:
            return self.baseline
        return self.search.own.get(self.search.baseline, self.baseline)

    def without(self, lever: str) -> float | None:
        """What the best loses without a lever, as a share; None if nobody tried."""
        found = self.search.tried.get(self.search.best.without(lever))
        if found is None or not found.is_done:
            return None
        return found.change_from(self.best)

    # -- JSON ------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """What `tune --json` prints."""
        best, baseline = self.best, self.baseline
        steps = best.steps_us or (best.step_us,)
        return {
            "baseline_step_us": baseline.step_us,
            "best_step_us": best.step_us,
            "range_us": [min(steps), max(steps)],
            "peak_memory_bytes": best.memory_bytes,
            "xla_flags": self.flags,
            "compiler_options": self.options,
            "environment": self.variables,
            "levers": [row.to_json() for row in self.rows],
            "evaluations": len(self.search.tried),
            "seconds": self.seconds,
            "compilations": self.compilations,
            "budget": self.search.budget,
            "interrupted": self.search.interrupted,
            "machine": self.machine,
            "model": self.model,
            "compiled_by_xla": self.is_compiled,
            "pipeline": self.pipelines.get(self.search.best, ""),
            "best": dict(self.search.best.settings),
            "memory_limit_bytes": self.search.memory_bytes,
            "fits": self.search.fits(best),
            "baseline_exposed_us": baseline.exposed_us,
            "best_exposed_us": best.exposed_us,
            "baseline_peak_memory_bytes": baseline.memory_bytes,
            "lower_bound_any_structure_us": baseline.bound_us,
            "bound_by": baseline.bound_by,
            "change_share": list(_range(self.changes)) if self.changes else None,
            "holds": self.holds,
            "settings": len(self.changes),
            "without": {name: self.without(name) for name in self.search.best.levers},
            "recompiled_step_us": self.alone.step_us
            if self.alone is not None and self.alone.is_done
            else None,
            "own_order_step_us": self.improved.step_us if self.improved else None,
            "given_lists": [self._list_json(each) for each in self.lists],
            "in_program": [each.to_json() for each in self.in_program],
            "plugged_in": [each.to_json(best) for each in self.plugged_in],
            "tried": [
                {"levers": dict(chosen.settings), **outcome.to_json()}
                for chosen, outcome in self.search.tried.items()
            ],
            "remarks": list(self.remarks),
        }

    def _list_json(self, tried: TriedList) -> dict[str, Any]:
        """One of `given_lists`; without a step to compare the change is null."""
        outcome = tried.outcome
        compares = self.search.compares(outcome)
        return {
            "name": tried.given.name,
            "xla_flags": tried.flags,
            "unknown": list(tried.unknown),
            "kernel_choices": list(tried.given.kernel_choices()),
            "change": outcome.change_from(self.baseline) if compares else None,
            **outcome.to_json(),
        }


def unpriced_text(found: Outcome, baseline: Outcome) -> str:
    """Why a step is not compared with the baseline's: what only it has."""
    parts = []
    if found.unpriced > baseline.unpriced:
        parts.append(f"{counted(found.unpriced, 'operation')} without a price")
    if found.overcounted > baseline.overcounted:
        parts.append(
            f"{counted(found.overcounted, 'matrix product')} that XLA's table counts "
            "several times (--extended does once)"
        )
    if found.neglects_more_than(baseline):
        parts.append("kernels whose bytes have no price (--extended has one)")
    return ", ".join(parts)


def _range(values: tuple[float, ...]) -> tuple[float, float]:
    return min(values), max(values)
