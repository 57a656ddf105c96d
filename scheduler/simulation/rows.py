"""The table of collectives: one row for each collective, send and receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.instruction import Instruction
from scheduler.latency.collectives import leaf_bytes, wrapped_collective
from scheduler.simulation.accounts import Accounts
from scheduler.simulation.causes import Causes
from scheduler.simulation.placement import Placement
from scheduler.simulation.program import Work
from scheduler.simulation.spans import lane_of
from scheduler.simulation.timeline import CollectiveRow, overlap_class

_GROUPS: Final = ("replica_groups", "source_target_pairs")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a whole step makes of a computation.

    Attributes:
        executions: how often it runs, loops multiplied.
        exposed_us: by number of a work, its exposure in the step.
    """

    executions: float
    exposed_us: Mapping[int, float]


def rows_of(
    placement: Placement,
    accounts: Accounts,
    lanes: Mapping[int, str],
    totals: Totals,
) -> list[CollectiveRow]:
    """Rows of one run, in scheduled order."""
    causes = Causes(placement.run, placement)
    return [
        _row(work, placement, accounts, causes, lanes, totals)
        for work in placement.run.program.works
        if work.kind in ("collective", "transfer")
        and work.number in placement.run.tickets
    ]


def _row(
    work: Work,
    placement: Placement,
    accounts: Accounts,
    causes: Causes,
    lanes: Mapping[int, str],
    totals: Totals,
) -> CollectiveRow:
    start = work.instruction
    latency = accounts.duration_us(placement.run, work)
    exposed = placement.wait_us(work)
    cause = causes.of(work, latency)
    return CollectiveRow(
        computation=start.computation.name,
        name=start.name,
        done=work.done.name if work.done is not None else "",
        opcode=work.opcode,
        stream=None if work.stream is None else work.stream.number,
        lane=lanes.get(work.number, lane_of(work)),
        bytes=sum(leaf_bytes(operand.shape) for operand in start.operands),
        operands=tuple(f"{o.shape.text} %{o.name}" for o in start.operands),
        groups=_groups_text(start),
        latency_us=latency,
        exposed_us=exposed,
        start_us=placement.issue_us(work),
        begin_us=placement.begin_us(work),
        end_us=placement.finish_us(work),
        done_us=placement.asked_us(work),
        executions=totals.executions,
        total_exposed_us=totals.exposed_us.get(work.number, 0.0),
        overlap=overlap_class(latency, exposed),
        cause_kind=cause.kind,
        cause=cause.text,
        model=work.price.model,
        reason=work.price.reason,
    )


def _groups_text(start: Instruction) -> str:
    """Groups or pairs as written, at the start or at what it wraps."""
    wrapped = wrapped_collective(start) if start.opcode == "async-start" else None
    for holder in (start, wrapped):
        for name in _GROUPS:
            text = holder.attributes.get(name) if holder is not None else None
            if text is not None:
                return text
    return ""
