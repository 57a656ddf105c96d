"""The bars of a picture: what each lane runs, and when.

compute           fusion.1 | all-gather-done (wait) | fusion.2 | while.7 (loop)
communication 0            | all-gather-start                 |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.program import (
    Call,
    Compute,
    Done,
    OuterDone,
    Sync,
    Work,
)
from hlo_passes.scheduler.simulation.timeline_data import COMPUTE_LANE, Span, SpanKind

_CALL_KINDS: Final[dict[str, SpanKind]] = {
    "while": "loop",
    "call": "call",
    "conditional": "conditional",
}


def lane_of(work: Work) -> str:
    """The lane that a work is drawn on."""
    if work.stream is None:
        return COMPUTE_LANE
    name = "async compute" if work.stream.kind == "compute" else work.stream.kind
    return f"{name} {work.stream.number}"


def spans_of(placement: Placement, lanes: dict[int, str]) -> list[Span]:
    """All spans of a run that take time, by start; `lanes` is by number of a work."""
    found = list(_compute_lane(placement))
    computation = placement.run.program.computation.name
    for work in placement.run.program.works:
        if work.stream is None or work.number not in placement.run.tickets:
            continue
        begin, end = placement.begin_us(work), placement.finish_us(work)
        if end > begin:
            found.append(
                Span(
                    computation, work.instruction.name, work.instruction.opcode,
                    lanes[work.number], begin, end, work.kind,
                )
            )  # fmt: skip
    found.sort(key=lambda span: (span.start_us, span.lane != COMPUTE_LANE, span.lane))
    return found


def unqueued_lanes(placement: Placement) -> dict[int, str]:
    """Lanes for works that do not queue: as few as keep spans from overlapping."""
    works = [w for w in placement.run.program.works if w.stream is not None]
    works.sort(key=lambda work: (placement.begin_us(work), work.number))
    lanes: dict[int, str] = {}
    free: dict[str, list[float]] = {}
    for work in works:
        name = lane_of(work).rpartition(" ")[0]
        ends = free.setdefault(name, [])
        begin = placement.begin_us(work)
        number = next((n for n, end in enumerate(ends) if end <= begin), len(ends))
        if number == len(ends):
            ends.append(0.0)
        ends[number] = placement.finish_us(work)
        lanes[work.number] = f"{name} {number}"
    return lanes


def _compute_lane(placement: Placement) -> Iterator[Span]:
    program = placement.run.program
    computation, order = program.computation.name, program.order
    starts, ends = placement.starts_us, placement.ends_us

    def span(k: int, kind: SpanKind) -> Span:
        node = order[k]
        return Span(
            computation, node.name, node.opcode, COMPUTE_LANE, starts[k], ends[k], kind
        )

    for item in program.items:
        if isinstance(item, Compute):
            for k in range(item.first, item.last + 1):
                if ends[k] > starts[k]:
                    is_whole = k in program.whole
                    yield span(
                        k, _CALL_KINDS[order[k].opcode] if is_whole else "compute"
                    )
        elif isinstance(item, Call):
            if ends[item.position] > starts[item.position]:
                yield span(item.position, _CALL_KINDS[order[item.position].opcode])
        elif isinstance(item, Sync):
            if ends[item.work.position] > starts[item.work.position]:
                yield span(item.work.position, "collective")
        elif isinstance(item, Done | OuterDone) and (
            ends[item.position] > starts[item.position]
        ):
            yield span(item.position, "wait")
