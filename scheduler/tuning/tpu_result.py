"""What a search for TPUs found: `TuneResult` with both statistics and libtpu's flags.

result.change, result.simulated_change      -0.021 by the compiler, -0.019 simulated
result.flags                                '--xla_tpu_...=true', for LIBTPU_INIT_ARGS
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hlo_passes.scheduler.tuning.combination import compiler_options
from hlo_passes.scheduler.tuning.outcome import Outcome, share
from hlo_passes.scheduler.tuning.report import change_text
from hlo_passes.scheduler.tuning.result import Row, TuneResult
from hlo_passes.scheduler.tuning.search import LEAST_GAIN
from hlo_passes.scheduler.tuning.tpu_outcome import STATISTICS


@dataclass(frozen=True, slots=True)
class Recompiled:
    """The best once more, from its flags alone in a process of its own.

    Attributes:
        outcome: of a compilation as far as the schedule.
        problem: why the compilation to the end failed, '' where it did not.
        equal: computations whose statistic in that one is the search's.
        computations: that have one there.
        needed_bytes: of a device by the executable; 0 unknown.
        final_work_us: what is computed, by the estimates that the compiler leaves in
            its last module; 0 unknown.
        baseline_final_work_us: the same without levers.
        seconds: that it took.
    """

    outcome: Outcome
    problem: str
    equal: int
    computations: int
    needed_bytes: int
    final_work_us: float
    baseline_final_work_us: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The entry `recompiled` of `tune --json`."""
        return {
            "step_us": self.outcome.step_us if self.outcome.is_done else None,
            "problem": self.outcome.problem or self.problem,
            "equal_computations": self.equal,
            "computations": self.computations,
            "needed_bytes": self.needed_bytes or None,
            "final_work_us": self.final_work_us or None,
            "baseline_final_work_us": self.baseline_final_work_us or None,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class TpuTuneResult(TuneResult):
    """Everything that the command tells for a TPU.

    Attributes:
        libtpu: its release.
        chip_bytes: memory of one device.
        given_options: flags that all compilations had, for `compiler_options`.
        recompiled: the best from scratch; None where nobody asked.
    """

    libtpu: str = ""
    chip_bytes: int = 0
    given_options: Mapping[str, Any] = field(default_factory=dict)
    recompiled: Recompiled | None = None

    @property
    def flags_variable(self) -> str:
        """XLA_FLAGS does not know the flags of XLA:TPU."""
        return "LIBTPU_INIT_ARGS"

    @property
    def options(self) -> dict[str, bool | int | str]:
        """`compiler_options` for the best."""
        own = compiler_options(self.search.best, self.release)
        return {**self.given_options, **own}

    @property
    def simulated_change(self) -> float:
        """Of the simulated step, as a share of the baseline's."""
        return simulated_change(self.best, self.baseline)

    @property
    def work_change(self) -> float:
        """Of what is not exposed, by the compiler's statistic, as a share of the step.

        Other fusions are priced anew, and no two of the compiler's prices were compared
        with a clock.
        """
        best, baseline = self.best, self.baseline
        work = best.step_us - best.exposed_us
        before = baseline.step_us - baseline.exposed_us
        return (work - before) / baseline.step_us if baseline.step_us else 0.0

    @property
    def final_change(self) -> float | None:
        """Of the step, with work by the estimates of the compiler's last modules.

        What is exposed is the statistic's. None where these were not made.
        """
        again = self.recompiled
        if again is None or not (again.final_work_us and again.baseline_final_work_us):
            return None
        after = again.final_work_us + self.best.exposed_us
        before = again.baseline_final_work_us + self.baseline.exposed_us
        return share(after, before)

    @property
    def doubts(self) -> list[str]:
        """Two statistics, and the last module's estimates, may each say otherwise."""
        found = []
        if self.search.best and not self.is_sure:
            found.append("not sure: the two statistics disagree")
        if self.final_change is not None and self.final_change >= -LEAST_GAIN:
            found.append(f"not sure: {self.final_text}")
        return found

    @property
    def final_text(self) -> str:
        """What `final_change` says; '' for None."""
        if self.final_change is None:
            return ""
        return (
            "with work by the estimates of the compiler's last module, the step "
            f"changes by {change_text(self.final_change)}"
        )

    def simulated_row(self, row: Row) -> float:
        """The change of a lever alone in the simulated step; 0 without an outcome."""
        if row.outcome is None or not row.outcome.is_done:
            return 0.0
        return simulated_change(row.outcome, self.baseline)

    def to_json(self) -> dict[str, Any]:
        """What `tune --json` prints: the keys for GPUs, and both statistics."""
        best, baseline = self.best, self.baseline
        view = TuneResult.to_json(self)
        view["xla_flags"] = ""
        for row, entry in zip(self.rows, view["levers"], strict=True):
            found = row.outcome
            done = found is not None and found.is_done
            entry["simulated_step_us"] = found.steps_us[-1] if found and done else None
        return view | {
            "libtpu_init_args": self.flags,
            "chosen_by": STATISTICS[0],
            "statistics": list(STATISTICS),
            "baseline_simulated_step_us": baseline.steps_us[-1],
            "best_simulated_step_us": best.steps_us[-1],
            "work_change_share": self.work_change,
            "final_change_share": self.final_change,
            "libtpu": self.libtpu,
            "recompiled": None
            if self.recompiled is None
            else self.recompiled.to_json(),
        }


def simulated_change(found: Outcome, before: Outcome) -> float:
    """By how much the simulated step changed, as a share."""
    return share(found.steps_us[-1], before.steps_us[-1])
