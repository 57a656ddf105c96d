"""A timeline as a trace that Perfetto and Chrome open.

    process 1 = the entry, process 2 .. = bodies and branches, each on its own clock
    thread "compute", thread "communication 0", ...    what runs there
    thread "in flight 0", ...                          start to done, one per collective
    counter "memory"                                   bytes in use
    flow arrows                                        from the start to the done

Slices of one track never overlap: collectives in flight at the same time are on
separate tracks. A slice is a pair of events, begin and end, on whole nanoseconds, so
that consecutive slices share their border in every reader.

Source of the form: Chrome's "Trace Event Format"; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    CollectiveRow,
    TimelineData,
)

_COMPUTE_THREAD: Final = 1
#: The thread of dones that do not wait.
_DONE_THREAD: Final = 2
#: Threads of collectives in flight come after those of lanes.
_FIRST_FLIGHT: Final = 1000

Event = dict[str, Any]


def trace_of(timeline: TimelineData) -> dict[str, Any]:
    """The JSON object."""
    names = [timeline.entry, *(n for n in timeline.computations if n != timeline.entry)]
    events: list[Event] = []
    flows = _Flows()
    for process, name in enumerate(names, 1):
        events += _process(timeline, name, process, flows)
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "module": timeline.module,
            "target": timeline.target,
            "topology": timeline.topology,
            "xla": timeline.xla,
            "estimator": timeline.estimator,
            "times": "estimates",
        },
        "traceEvents": events,
    }


class _Flows:
    """Numbers for arrows: each occurs once in a trace."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """A number not used before."""
        self.last += 1
        return self.last


def _process(
    timeline: TimelineData, name: str, process: int, flows: _Flows
) -> list[Event]:
    rows = timeline.collectives_of(name)
    threads = {
        lane: number
        for number, lane in enumerate(timeline.lanes(name), _DONE_THREAD + 1)
    } | {COMPUTE_LANE: _COMPUTE_THREAD}
    events = _names(timeline, name, process, threads)
    by_name = {row.name: row for row in rows}
    for span in timeline.spans_of(name):
        row = by_name.get(span.name)
        facts = _facts(row) if row is not None else {"opcode": span.opcode}
        place = (process, threads[span.lane])
        events += _slice(span.name, span.kind, place, span.start_us, span.end_us, facts)
    flights = _in_flight(rows, process)
    for events_of_row in flights.values():
        events += events_of_row
    events += _arrows(rows, process, flows, flights)
    events += [
        {
            "ph": "C", "name": "memory", "pid": process, "tid": 0,
            "ts": _whole_ns(point.time_us), "args": {"bytes": point.bytes},
        }
        for point in timeline.memory_of(name)
    ]  # fmt: skip
    return events


def _names(
    timeline: TimelineData, name: str, process: int, threads: Mapping[str, int]
) -> list[Event]:
    """The names of a process and its threads, and the process's place."""
    times = timeline.computations[name]
    often = f", {times.executions:g} times" if times.executions != 1.0 else ""
    called = {**threads, "dones that need not wait": _DONE_THREAD}
    return [
        _named("process_name", process, 0, f"%{name}{often}"),
        {
            "ph": "M", "name": "process_sort_index", "pid": process, "tid": 0,
            "args": {"sort_index": process},
        },
        *(
            _named("thread_name", process, thread, lane)
            for lane, thread in sorted(called.items(), key=lambda item: item[1])
        ),
    ]  # fmt: skip


def _whole_ns(us: float) -> float:
    return round(us, 3)


def _slice(
    name: str,
    category: str,
    place: tuple[int, int],
    start_us: float,
    end_us: float,
    facts: dict[str, Any],
) -> list[Event]:
    """Begin and end of a slice at (process, thread).

    Both carry the name and category: some readers match them by these.
    """
    process, thread = place
    start = _whole_ns(start_us)
    what = {"name": name, "cat": category, "pid": process, "tid": thread, "args": facts}
    return [
        {"ph": "B", "ts": start, **what},
        {"ph": "E", "ts": max(start, _whole_ns(end_us)), **what},
    ]


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {
        "ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name},
    }  # fmt: skip


def _facts(row: CollectiveRow) -> dict[str, Any]:
    return {
        "opcode": row.opcode,
        "bytes": row.bytes,
        "groups": row.groups,
        "latency_us": row.latency_us,
        "exposed_us": row.exposed_us,
        "overlap": row.overlap,
        "cause": row.cause,
        "executions": row.executions,
    }


def _in_flight(rows: list[CollectiveRow], process: int) -> dict[str, list[Event]]:
    """One slice per asynchronous collective, from its start to its done.

    They use as few tracks as possible without overlaps.
    """
    tracks: list[float] = []
    found: dict[str, list[Event]] = {}
    flying = [row for row in rows if row.stream is not None]
    for row in sorted(flying, key=lambda r: (r.start_us, r.name)):
        start, end = row.start_us, max(row.end_us, row.done_us)
        track = next((n for n, free in enumerate(tracks) if free <= start), len(tracks))
        events: list[Event] = []
        if track == len(tracks):
            tracks.append(0.0)
            thread = _FIRST_FLIGHT + track
            events.append(_named("thread_name", process, thread, f"in flight {track}"))
        tracks[track] = end
        facts = {"opcode": row.opcode, "overlap": row.overlap, "cause": row.cause}
        place = (process, _FIRST_FLIGHT + track)
        found[row.name] = [
            *events, *_slice(row.name, "in flight", place, start, end, facts)
        ]  # fmt: skip
    return found


def _arrows(
    rows: list[CollectiveRow],
    process: int,
    flows: _Flows,
    flights: dict[str, list[Event]],
) -> list[Event]:
    """Arrows from the start of a collective in flight to its done on the compute lane.

    An arrow needs a slice at both ends; a done that does not wait has a slice that
    takes no time.
    """
    events: list[Event] = []
    for row in rows:
        if not row.done or row.stream is None:
            continue
        begin = flights[row.name][-2]
        done = _whole_ns(row.done_us)
        if row.exposed_us <= 0.0:
            place = (process, _DONE_THREAD)
            events += _slice(
                row.done, "done", place, done, done, {"opcode": row.opcode}
            )
        number = flows.next()
        thread = _COMPUTE_THREAD if row.exposed_us > 0.0 else _DONE_THREAD
        common = {"name": row.opcode, "cat": "flow", "id": number, "pid": process}
        events += [
            {**common, "ph": "s", "tid": begin["tid"], "ts": begin["ts"]},
            {**common, "ph": "f", "bp": "e", "tid": thread, "ts": done},
        ]
    return events
