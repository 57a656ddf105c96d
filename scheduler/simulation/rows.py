"""The table of collectives: one row for each collective, send and receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.program_places import ProgramPlaces
from hlo_passes.ir.async_form import done_of, half
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency.collectives import (
    kernel_collective,
    leaf_bytes,
    wrapped_collective,
)
from hlo_passes.scheduler.simulation.accounts import Accounts
from hlo_passes.scheduler.simulation.causes import Cause, Causes
from hlo_passes.scheduler.simulation.engine import Run
from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.program import Work
from hlo_passes.scheduler.simulation.spans import lane_of
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, overlap_class
from hlo_passes.scheduler.sums import sequential_sum

_GROUPS: Final = ("replica_groups", "source_target_pairs")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a computation contributes to a whole step.

    Attributes:
        runs: its runs, and how often each occurs on the compute lane.
        executions: how often it runs, loops multiplied.
        device: whose clock is read.
    """

    runs: Mapping[Run, float]
    executions: float
    device: int

    def exposed_us(self, work: Work) -> float:
        """Exposure of a work in the step."""
        return sequential_sum(self._exposed_us(run, work) for run in self.runs)

    def worst_run(self, work: Work, other: Run) -> Run:
        """The run in which a work costs the step most; `other` if it costs the same."""
        return max((other, *self.runs), key=lambda run: self._exposed_us(run, work))

    def _exposed_us(self, run: Run, work: Work) -> float:
        waits = run.waits.get(work.number)
        times = self.runs.get(run, 0.0)
        return 0.0 if waits is None else waits[self.device] * times


class _Explained:
    """Causes of the works of one computation, from the run in which they cost most."""

    def __init__(self, placement: Placement, totals: Totals) -> None:
        self._totals = totals
        self._shown = placement
        self._causes = {placement.run: Causes(placement.run, placement)}

    def of(self, work: Work, latency_us: float) -> Cause:
        run = self._totals.worst_run(work, self._shown.run)
        if run not in self._causes:
            placement = Placement(run, self._shown.device)
            self._causes[run] = Causes(run, placement)
        cause = self._causes[run].of(work, latency_us)
        if run is self._shown.run:
            return cause
        often, all_times = self._totals.runs[run], self._totals.executions
        return Cause(cause.kind, f"{cause.text}, {often:g} times of {all_times:g}")


def rows_of(
    placement: Placement,
    accounts: Accounts,
    lanes: Mapping[int, str],
    totals: Totals,
    places: ProgramPlaces,
) -> list[CollectiveRow]:
    """Rows of one run, in scheduled order."""
    explained = _Explained(placement, totals)
    return [
        _row(work, placement, accounts, explained, lanes, totals, places)
        for work in placement.run.program.works
        if work.kind in ("collective", "transfer")
        and work.number in placement.run.tickets
    ]


def _row(
    work: Work,
    placement: Placement,
    accounts: Accounts,
    explained: _Explained,
    lanes: Mapping[int, str],
    totals: Totals,
    places: ProgramPlaces,
) -> CollectiveRow:
    start = work.instruction
    latency = accounts.duration_us(placement.run, work)
    exposed = placement.wait_us(work)
    cause = explained.of(work, latency)
    return CollectiveRow(
        computation=start.computation.name,
        name=start.name,
        done=work.done.name if work.done is not None else "",
        opcode=work.opcode,
        stream=None if work.stream is None else work.stream.number,
        lane=lanes.get(work.number, lane_of(work)),
        bytes=message_bytes(start, done_of(start) if half(start) else None),
        operands=tuple(f"{o.shape.text} %{o.name}" for o in start.operands),
        groups=groups_text(start),
        latency_us=latency,
        exposed_us=exposed,
        start_us=placement.issue_us(work),
        begin_us=placement.begin_us(work),
        end_us=placement.finish_us(work),
        done_us=placement.asked_us(work),
        executions=totals.executions,
        total_exposed_us=totals.exposed_us(work),
        overlap=overlap_class(latency, exposed),
        cause_kind=cause.kind,
        cause=cause.text,
        model=work.price.model,
        reason=work.price.reason,
        place=places.of(start),
    )


def message_bytes(start: Instruction, done: Instruction | None) -> int:
    """Bytes that a device gives or gets in all, whichever is more.

    The gathered result of an all-gather, the input of a reduce-scatter, the array of
    anything else, as `calibrate` and NCCL's tests have it.
    """
    if start.opcode == "recv":
        return leaf_bytes(start.shape.elements[0])
    if start.opcode == "fusion":
        # Its results may hold more than those of its collective.
        start = kernel_collective(start) or start
    given = sum(leaf_bytes(operand.shape) for operand in start.operands)
    got = leaf_bytes((done or start).shape)
    if done is None and half(start) == "start":
        got -= given  # a start holds its operands beside its results
    return max(given, got)


def groups_text(start: Instruction) -> str:
    """Groups or pairs as XLA writes them, of the start or of what it wraps."""
    wrapped = kernel_collective(start)
    if wrapped is None and start.opcode == "async-start":
        wrapped = wrapped_collective(start)
    for holder in (start, wrapped):
        for name in _GROUPS:
            text = holder.spelling_of(name) if holder is not None else None
            if text is not None:
                return text
    return ""
