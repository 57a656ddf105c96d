"""The report of a sweep: a table with its best line marked, and the best pipeline.

  overlap-limit  streams  step      exposed   gap       peak
  1              1        1.42 ms   0.31 ms   0.22 ms   1.2 GiB
* 4              2        1.21 ms   0.10 ms   0.01 ms   1.3 GiB
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_passes.analysis.module_state import ModuleState
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.scheduler.simulation.ranges import (
    Sensitivity,
    change_json,
    change_of,
)
from hlo_passes.scheduler.simulation.timeline_data import ComputationTimes
from hlo_passes.scheduler.simulation.units import bytes_text, time_text
from hlo_passes.scheduler.sweep.options import SweptOption
from hlo_passes.scheduler.sweep.run import SweepRow, best_of, fits

#: Relative difference up to which two steps take the same time.
_ROUNDING = 1e-9
_FIGURES = ("step", "exposed", "gap", "peak")


@dataclass(frozen=True, slots=True)
class SweepReport:
    """All combinations of a sweep.

    Attributes:
        state: what the swept module is.
        swept: the options that varied.
        rows: in the order of the combinations.
        given: the module as it was given, None if it is not scheduled.
        limit_bytes: of the peak memory, None without a limit.
        machine: what everything was priced on.
        remarks: what limits all of these numbers.
        counted_once: loops that nobody knows how often they run.
        given_ranges: the module as given in other settings; None where it is not known.
    """

    state: ModuleState
    swept: tuple[SweptOption, ...]
    rows: tuple[SweepRow, ...]
    given: ComputationTimes | None = None
    limit_bytes: int | None = None
    machine: str = ""
    remarks: tuple[str, ...] = ()
    counted_once: tuple[str, ...] = ()
    given_ranges: Sensitivity | None = None

    @property
    def best(self) -> SweepRow | None:
        """The fastest combination within the limit; None if none fits."""
        return best_of(self.rows, self.limit_bytes)

    def to_text(self) -> str:
        """The table, and the best combination."""
        best = self.best
        head = ["", *(each.label for each in self.swept), *_FIGURES]
        lines = [head]
        if self.given is not None:
            blanks = ["as given", *([""] * (len(self.swept) - 1))]
            lines.append(["", *blanks, *_figures(self.given)])
        for row in self.rows:
            mark = "*" if row is best else ""
            if row.times is None:
                lines.append([mark, *row.choice, row.problem])
                continue
            over = "" if fits(row.times, self.limit_bytes) else ", over the limit"
            *figures, peak = _figures(row.times)
            lines.append([mark, *row.choice, *figures, peak + over])
        text = _aligned(lines)
        # The pipeline schedules it, so that no cure is needed.
        told = beware((*self.remarks, *once_remark(self.counted_once)))
        head = f"module   {self.state.summary}{told}\n{self.machine}"
        return f"{head}\n{text}\n{self._verdict(best)}"

    def _verdict(self, best: SweepRow | None) -> str:
        within = ""
        if self.limit_bytes is not None:
            within = f" within {bytes_text(self.limit_bytes)}"
        if best is None:
            if all(not row.is_done for row in self.rows):
                return "best: none, every combination failed\n"
            return f"best: none, no combination stays{within}\n"
        choice = list(zip(self.swept, best.choice, strict=True))
        chosen = ", ".join(f"{each.label}={value}" for each, value in choice)
        settings = [each.xla_flag_setting(value) for each, value in choice]
        flags = " ".join(dict.fromkeys(s for s in settings if s))
        text = f'best{within}: {chosen}\n--passes="{best.pipeline}"\n'
        if (held := self._held(best)) is not None:
            text = f"{held}\n{text}" if self._is_unsure(best) else f"{text}{held}\n"
        if flags:
            text += f'XLA_FLAGS="{flags}"\n'
        if self.given_is_best:
            assert self.given is not None
            step = time_text(self.given.step_time_us)
            text += f"nothing beats the module as given ({step})\n"
        return text

    def best_holds(self) -> tuple[int, int] | None:
        """In how many settings no combination beats the best one, and how many are."""
        best = self.best
        if best is None or best.sensitivity is None:
            return None
        fitting = [
            [o.step_us for o in row.sensitivity.outcomes]
            for row in self.rows
            if row.times and row.sensitivity and fits(row.times, self.limit_bytes)
        ]
        if len({len(steps) for steps in fitting}) != 1:
            return None
        pairs = zip(best.sensitivity.outcomes, zip(*fitting, strict=True), strict=True)
        holds = [o.step_us <= min(steps) * (1 + _ROUNDING) for o, steps in pairs]
        return sum(holds), len(holds)

    def _is_unsure(self, best: SweepRow) -> bool:
        change = change_of(self.given_ranges, best.sensitivity)
        return change is not None and change.flips

    def _held(self, best: SweepRow) -> str | None:
        """How sure the best one is: among the others, and against the module given."""
        holds = self.best_holds()
        if holds is None:
            return None
        text = f"range: no other is faster in {holds[0]} of {holds[1]} settings"
        change = change_of(self.given_ranges, best.sensitivity)
        return text if change is None else f"{text}; than as given, {change.to_text()}"

    @property
    def given_is_best(self) -> bool:
        """Whether no combination is faster than the module as it was given."""
        if self.given is None or not fits(self.given, self.limit_bytes):
            return False
        best = self.best
        if best is None or best.times is None:
            return True
        return self.given.step_time_us <= best.times.step_time_us

    def to_json(self) -> dict[str, Any]:
        """Keys: options, memory_limit_bytes, given, combinations, best (index), ..."""
        best, holds = self.best, self.best_holds()
        return {
            **self.state.to_json(),
            "options": [
                {
                    "passes": each.passes,
                    "option": each.option,
                    "values": each.values,
                    "label": each.label,
                    "xla_flags": [each.xla_flag_setting(v) for v in each.values],
                }
                for each in self.swept
            ],
            "machine": self.machine,
            "remarks": list(self.remarks),
            "memory_limit_bytes": self.limit_bytes,
            "counted_once": list(self.counted_once),
            "given": self.given.to_json() if self.given else None,
            "combinations": [
                {
                    "values": row.choice,
                    "pipeline": row.pipeline,
                    **(row.times.to_json() if row.times else {"problem": row.problem}),
                }
                for row in self.rows
            ],
            "best": None if best is None else self.rows.index(best),
            "given_is_best": self.given_is_best,
            "best_holds": holds and holds[0],
            "settings": holds and holds[1],
            **change_json(
                change_of(self.given_ranges, best.sensitivity) if best else None
            ),
        }


def _figures(times: ComputationTimes) -> list[str]:
    return [
        time_text(times.step_time_us),
        time_text(times.exposed_us),
        time_text(times.gap_us),
        bytes_text(times.peak_memory_bytes),
    ]


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns of equal width; the last one of a line keeps its own width."""
    widths: dict[int, int] = {}
    for line in lines:
        for k, cell in enumerate(line[:-1]):
            widths[k] = max(widths.get(k, 1), len(cell))
    padded = (
        "  ".join([c.ljust(widths[k]) for k, c in enumerate(line[:-1])] + [line[-1]])
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)
