"""The part of `hlo-passes diff` that shows schedule changes as moves, with their price.

schedule: step 140.0 us -> 100.0 us (40.0 us less), exposed 40.0 us -> 0.0 us
%main
  %all-gather-start (all-gather): start 3 -> 1, 40.0 us earlier; done 4 -> 4
    40.0 us less exposed: now overlaps %dot
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlo_passes.ir.module import Module
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    add_rows_argument,
)
from hlo_passes.scheduler.estimators.tpu_final import range_premise
from hlo_passes.scheduler.hardware.topology import device_count_of
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.schedule_moves import (
    SAME_US,
    TAKES_NO_TIME,
    Move,
    Simulated,
    schedule_moves,
)
from hlo_passes.scheduler.simulation.arguments import (
    add_rules_arguments,
    simulate_arguments,
)
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.scheduler.simulation.ranges import Change, change_json, change_of
from hlo_passes.scheduler.simulation.units import bytes_text, readable, time_text

if TYPE_CHECKING:
    from hlo_passes.scheduler.simulation.timeline_data import TimelineData

_DEFAULT_ROWS = 20
#: How the line begins that says what the step gained.
_SCHEDULE = "schedule:"


@dataclass(frozen=True, slots=True)
class ScheduleDiff:
    """The changes of a schedule as moves, those that matter most to the step first.

    `rows` is how many of them the text lists.
    """

    before: Simulated
    after: Simulated
    moves: tuple[Move, ...]
    rows: int

    def to_text(self, *, says_machine: bool = True) -> str:
        """Step and exposure, then the moves of each computation, for a reader.

        `says_machine`: whether the first line says what was priced on what.
        """
        old, new = self.before.timeline, self.after.timeline
        machine = f"; {new.priced_on}" if says_machine else ""
        lines = [
            f"{_SCHEDULE} step {_changed(old.step_time_us, new.step_time_us)}, "
            f"exposed {_changed(old.exposed_us, new.exposed_us)}{machine}"
        ]
        lines.append(f"memory: {_changed_bytes(old, new)}")
        timely = [move for move in self.moves if move.bought != TAKES_NO_TIME]
        shown = timely[: self.rows]
        for computation in dict.fromkeys(move.computation for move in shown):
            lines.append(f"%{computation}")
            for move in shown:
                if move.computation == computation:
                    lines += _move_lines(move)
        if more := len(timely) - len(shown):
            lines.append(f"... {more} more; --rows={len(timely)} shows them")
        if silent := len(self.moves) - len(timely):
            lines.append(f"{silent} that take no time moved too; --json lists them")
        change = self.change
        if change is not None:
            # A change whose sign is not sure says so first.
            told = change.to_text() + range_premise(new.estimator)
            lines.insert(0 if change.flips else 1, f"range: {told}")
        if says_machine:
            once = dict.fromkeys((*old.counted_once, *new.counted_once))
            schedule = next(k for k, x in enumerate(lines) if x.startswith(_SCHEDULE))
            lines[schedule] += beware((*self._unlike(), *once_remark(tuple(once))))
        return "".join(f"{line}\n" for line in lines)

    def _unlike(self) -> tuple[str, ...]:
        """Why the two should not be compared, if so."""
        old, new = (device_count_of(m.module) for m in (self.before, self.after))
        if old == new:
            return ()
        return (f"before is a module for {old} GPUs, after one for {new}",)

    def to_json(self) -> dict[str, Any]:
        """Keys: step_time_us, exposed_us, memory (before, after), moves."""
        old, new = self.before.timeline, self.after.timeline
        return {
            "step_time_us": {"before": old.step_time_us, "after": new.step_time_us},
            "exposed_us": {"before": old.exposed_us, "after": new.exposed_us},
            "memory": {
                "before": old.footprint.to_json(),
                "after": new.footprint.to_json(),
            },
            **change_json(self.change),
            "moves": [move.to_json() for move in self.moves],
        }

    @property
    def change(self) -> Change | None:
        """How sure the change of the step is; None if nobody asked."""
        return change_of(
            self.before.timeline.sensitivity, self.after.timeline.sensitivity
        )


def _changed(before: float, after: float) -> str:
    change = after - before
    if abs(change) < SAME_US:
        return f"{time_text(after)} as before"
    way = "less" if change < 0 else "more"
    return f"{time_text(before)} -> {time_text(after)} ({time_text(abs(change))} {way})"


def _changed_bytes(before: TimelineData, after: TimelineData) -> str:
    """What the schedule changed of the peak with parameters, and whether it fits."""
    old, new = before.footprint, after.footprint
    change = new.peak_bytes - old.peak_bytes
    text = f"{bytes_text(new.peak_bytes)} at the peak with parameters, as before"
    if change:
        way = "less" if change < 0 else "more"
        text = (
            f"{bytes_text(old.peak_bytes)} -> {bytes_text(new.peak_bytes)} at the "
            f"peak with parameters ({bytes_text(abs(change))} {way})"
        )
    if new.fits is False:
        text += f"; DOES NOT FIT: XLA's pool is {bytes_text(new.available_bytes)} of "
        text += f"{after.target}'s {bytes_text(new.device_bytes)}"
    return text


def _move_lines(move: Move) -> list[str]:
    what = "start" if move.done_before is not None else "place"
    earlier = move.starts_earlier_us
    if abs(earlier) < SAME_US:
        when = "at the same time"
    else:
        when = f"{time_text(abs(earlier))} {'earlier' if earlier > 0 else 'later'}"
    done = ""
    if move.done_before is not None:
        done = f"; done {move.done_before} -> {move.done_after}"
    return [
        f"  %{move.name} ({move.opcode}): {what} {move.position_before} -> "
        f"{move.position_after}, {when}{done}",
        f"    {readable(move.bought)}",
    ]


class _View:
    """The view that `hlo-passes diff` finds in `hlo_passes.schedule_views`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that say what instructions cost."""
        add_pricing_arguments(parser)
        add_rules_arguments(parser)
        add_rows_argument(parser, _DEFAULT_ROWS, "moves to list")

    def compare(
        self, before: Module, after: Module, arguments: argparse.Namespace
    ) -> ScheduleDiff:
        """Simulate both modules and compare."""
        old, new = (_simulated(module, arguments) for module in (before, after))
        return ScheduleDiff(old, new, schedule_moves(old, new), arguments.rows)


def _simulated(module: Module, arguments: argparse.Namespace) -> Simulated:
    return Simulated(module, simulate_arguments(arguments, module))


VIEW = _View()
