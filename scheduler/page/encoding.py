"""A timeline as the columns that the page draws from.

The columns hold text and numbers only, each written once: per computation the names
of its spans, and their times in whole nanoseconds, a start as the distance from the
end of the span before it in its row. The script `data/model.js` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.page.lanes import lane_label, lanes_of
from hlo_passes.scheduler.simulation import units
from hlo_passes.scheduler.simulation.timeline_data import (
    CollectiveRow,
    MemoryPoint,
    Span,
    TimelineData,
)

#: The kinds that the page shows in different colors; its numbers are indices here.
KINDS: Final = ("compute", "loop", "copy", "hidden", "partial", "exposed", "wait")
_KIND_OF_SPAN: Final = {
    "compute": "compute",
    "async": "compute",
    "loop": "loop",
    "call": "loop",
    "conditional": "loop",
    "copy": "copy",
    "transfer": "copy",
    "collective": "exposed",
    "wait": "wait",
}
#: Written instead of a span's number where there is none.
NO_SPAN: Final = -1
_NS_PER_US: Final = 1000
_MICROSECONDS: Final = re.compile(r"(\d) us\b")


@dataclass(frozen=True, slots=True)
class Side:
    """A timeline and what the page calls it.

    Attributes:
        timeline: what is drawn.
        label: 'before', 'after'; '' if there is only one side.
        source: where it came from, usually a file name.
        module: what was simulated; it says what loops run and where collectives come
            from in the user's program. The page also works without it.
    """

    timeline: TimelineData
    label: str = ""
    source: str = ""
    module: Module | None = None


class Opcodes:
    """Numbers for opcodes, shared by all sides."""

    def __init__(self) -> None:
        """Start with none."""
        self.numbers: dict[str, int] = {}

    def number(self, opcode: str) -> int:
        """The number of an opcode, a new one if it has none."""
        return self.numbers.setdefault(opcode, len(self.numbers))


def encode_side(side: Side, opcodes: Opcodes) -> dict[str, Any]:
    """Everything that the page needs from one side."""
    timeline = side.timeline
    spans: dict[str, list[Span]] = {name: [] for name in timeline.computations}
    for span in timeline.spans:
        spans[span.computation].append(span)
    memory: dict[str, list[MemoryPoint]] = {name: [] for name in timeline.computations}
    for point in timeline.memory:
        memory[point.computation].append(point)
    rows: dict[str, list[CollectiveRow]] = {name: [] for name in timeline.computations}
    for row in timeline.collectives:
        rows[row.computation].append(row)
    # The entry comes first, then the computations that cost a step most.
    order = sorted(
        timeline.computations.values(),
        key=lambda t: (t.name != timeline.entry, -t.step_time_us * t.executions),
    )
    return {
        "label": side.label,
        "source": side.source,
        "facts": _facts(side, timeline.entry),
        "memory": timeline.footprint.to_json(),
        "any_structure": asdict(timeline.any_structure),
        "computations": [
            _computation(
                side, t.name, spans[t.name], rows[t.name], memory[t.name], opcodes
            )
            for t in order
            if spans[t.name] or rows[t.name] or t.name == timeline.entry
        ],
    }


def _facts(side: Side, name: str) -> dict[str, Any]:
    times = side.timeline.computations[name]
    computation = side.module.computation(name) if side.module else None
    return {
        **times.to_json(),
        "is_entry": name == side.timeline.entry,
        "instruction_count": len(computation.instructions) if computation else None,
    }


def _computation(
    side: Side,
    name: str,
    spans: Sequence[Span],
    collectives: Sequence[CollectiveRow],
    memory: Sequence[MemoryPoint],
    opcodes: Opcodes,
) -> dict[str, Any]:
    # Lay the spans out in lanes and rows, in which order the page reads them.
    by_name = {row.name: row for row in collectives}
    lanes = lanes_of(side.timeline, spans)
    placed = [span for lane in lanes for row in lane.rows for span in row]
    kinds = [
        KINDS.index("wait" if lane.role == "wait" else _kind(span, by_name))
        for lane in lanes
        for row in lane.rows
        for span in row
    ]
    # Times are stored as gaps and durations, which are small numbers.
    gaps, durations = _times(row for lane in lanes for row in lane.rows)
    # Collectives refer to spans by number.
    number = {s.name: k for k, s in enumerate(placed) if KINDS[kinds[k]] != "wait"}
    waits = _waits(spans)
    computation = side.module.computation(name) if side.module else None
    return {
        "name": name,
        "facts": _facts(side, name),
        "lanes": [
            {
                "label": lane.label,
                "role": lane.role,
                "rows": [len(r) for r in lane.rows],
            }
            for lane in lanes
        ],
        "names": [span.name for span in placed],
        "opcodes": [opcodes.number(span.opcode) for span in placed],
        "kinds": kinds,
        "gaps_ns": gaps,
        "durations_ns": durations,
        "callees": _callees(computation, side.timeline),
        "collectives": [
            {
                **_collective(row, side.timeline),
                # An instruction that takes no time has no span; the table still lists
                # it.
                "span": number.get(row.name, NO_SPAN),
                "waits_us": waits.get(row.done, []),
            }
            for row in collectives
        ],
        "memory": _memory(memory, side.timeline, name),
    }


def _kind(span: Span, collectives: Mapping[str, CollectiveRow]) -> str:
    row = collectives.get(span.name)
    return _KIND_OF_SPAN[span.kind] if row is None else row.overlap


def _times(rows: Iterable[Sequence[Span]]) -> tuple[list[int], list[int]]:
    """Gaps before the spans and their durations, in nanoseconds, row after row."""
    gaps: list[int] = []
    durations: list[int] = []
    for row in rows:
        at = 0
        for span in row:
            start = max(at, round(span.start_us * _NS_PER_US))
            end = max(start, round(span.end_us * _NS_PER_US))
            gaps.append(start - at)
            durations.append(end - start)
            at = end
    return gaps, durations


def _waits(spans: Iterable[Span]) -> dict[str, list[list[float]]]:
    """When the compute lane waits, by the instruction at which it waits."""
    waits: dict[str, list[list[float]]] = {}
    for span in spans:
        if span.kind == "wait":
            stretch = [_short(span.start_us), _short(span.end_us)]
            waits.setdefault(span.name, []).append(stretch)
    return waits


def _collective(row: CollectiveRow, timeline: TimelineData) -> dict[str, Any]:
    synchronous = row.stream is None
    lane = "none: synchronous" if synchronous else lane_label(row.lane, timeline)
    return {
        "name": row.name,
        "done": row.done,
        "opcode": row.opcode,
        "stream": lane,
        "bytes": row.bytes,
        "operands": list(row.operands),
        "groups": row.groups,
        "latency_us": _short(row.latency_us),
        "exposed_us": _short(row.exposed_us),
        "total_us": _short(row.total_exposed_us),
        "queued_us": _short(row.begin_us - row.start_us),
        "executions": row.executions,
        "class": row.overlap,
        "cause_kind": row.cause_kind,
        "cause": sentence(row.cause),
        "model": row.model,
        "label": row.place.label,
        "op_name": row.place.op_name,
        "parameter": row.place.parameter,
        "source": row.place.source,
        "members": [[each.label, each.source] for each in row.place.members],
        "advice": [readable(text) for text in timeline.advice_lines(row)],
    }


def sentence(text: str) -> str:
    """A clause as a sentence: capital, full stop, and times in suitable units."""
    shown = readable(text)
    return f"{shown[:1].upper()}{shown[1:]}." if shown else ""


def readable(text: str) -> str:
    """Replace times in plain microseconds ('35380.8 us') by suitable units."""
    return _MICROSECONDS.sub("\\1 \N{MICRO SIGN}s", units.readable(text))


def time_text(us: float) -> str:
    """A time for a sentence, in a suitable unit."""
    return readable(units.time_text(us))


def _short(us: float) -> float:
    """Round to the nanosecond: nothing smaller can be seen."""
    return round(us, 3)


def _callees(
    computation: Computation | None, timeline: TimelineData
) -> dict[str, dict[str, Any]]:
    """What control flow runs, by instruction: computations to open, trips, exposure.

    The most expensive computation comes first (for a loop the body, not the condition),
    and trips and exposure are those of this one. Nobody knows the trips of a loop that
    is not counted.
    """
    found: dict[str, dict[str, Any]] = {}
    times = timeline.computations
    for instruction in computation.instructions if computation else ():
        if not runs_callees(instruction):
            continue
        names = [c.name for c in instruction.called_computations if c.name in times]
        names.sort(key=lambda name: -times[name].step_time_us)
        if names:
            longest = times[names[0]]
            found[instruction.name] = {
                "names": names,
                "trips": longest.trip_count,
                "is_counted": instruction.name not in timeline.counted_once,
                "exposed_us": _short(longest.exposed_us),
                "run_us": _short(longest.step_time_us),
            }
    return found


def _memory(
    points: Sequence[MemoryPoint], timeline: TimelineData, name: str
) -> dict[str, Any] | None:
    if not points:
        return None
    # Parameters of the entry live from first to last, below everything else.
    found = timeline.footprint
    base = found.parameters_bytes
    peak = base + timeline.computations[name].peak_memory_bytes
    at, live = 0, -base
    steps_ns: list[int] = []
    steps_bytes: list[int] = []
    for point in points:
        time_ns = max(at, round(point.time_us * _NS_PER_US))
        steps_ns.append(time_ns - at)
        steps_bytes.append(point.bytes - live)
        at, live = time_ns, point.bytes
    return {
        "steps_ns": steps_ns,
        "steps_bytes": steps_bytes,
        "base_bytes": base,
        "peak_bytes": max(peak, found.peak_bytes) if name == timeline.entry else peak,
        "limit_bytes": found.available_bytes,
        "device_bytes": found.device_bytes,
    }
