"""Events of Chrome's trace format (JSON) and of the tables that `nsys stats` prints.

{"traceEvents": [{"ph": "X", "ts": 1.0, "dur": 3.5, "pid": 7, "tid": 2,
                  "args": {"hlo_op": "fusion.3", "hlo_module": "jit_step"}}]}

Start (ns),Duration (ns),...,Device,...,Name                 cuda_gpu_trace
Name,Projected Start (ns),Projected Duration (ns),...        nvtx_gpu_proj_trace
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

from hlo_passes.scheduler.measured.events import (
    DERIVED,
    HLO_MODULE,
    HLO_OP,
    Event,
    checked_duration,
    checked_us,
    refuse,
)

_US_PER_NS: Final = 1e-3
_STARTS: Final = ("Projected Start (ns)", "Start (ns)")
_TOOK: Final = ("Projected Duration (ns)", "Duration (ns)")


def chrome_events(text: str, path: str) -> list[Event]:
    """Complete events with an `hlo_op`. Raises UsageError U228."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise refuse(path, "it is not JSON that can be read") from problem
    rows = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise refuse(path, "there is no list of traceEvents")
    rows = [row for row in rows if isinstance(row, dict)]
    devices: dict[Any, str] = {}
    tracks: dict[Any, str] = {}
    for row in rows:
        named = row.get("args")
        if row.get("ph") != "M" or not isinstance(named, dict):
            continue
        if row.get("name") == "process_name":
            devices[str(row.get("pid"))] = str(named.get("name", ""))
        elif row.get("name") == "thread_name":
            track = str(row.get("pid")), str(row.get("tid"))
            tracks[track] = str(named.get("name", ""))
    found = []
    for row in rows:
        stats = row.get("args")
        if row.get("ph") != "X" or not isinstance(stats, dict):
            continue
        pid = str(row.get("pid"))
        if "hlo_op" not in stats or tracks.get((pid, str(row.get("tid")))) in DERIVED:
            continue
        ordinal = stats.get("device_ordinal", "")
        found.append(
            Event(
                device=f"{devices.get(pid, pid)} {ordinal}".strip(),
                module=str(stats.get("hlo_module", "")),
                name=str(stats["hlo_op"]),
                run=str(stats.get("run_id", "")),
                begin_us=checked_us(path, row.get("ts")),
                us=checked_duration(path, row.get("dur", 0.0)),
                kernel=str(row.get("name", "")),
            )
        )
    return found


def nsys_rows(text: str, path: str) -> list[Event]:
    """Rows of `nsys stats --format=csv`. Raises UsageError U228."""
    lines = text.splitlines()
    first = next((k for k, line in enumerate(lines) if _is_head(line)), None)
    if first is None:
        raise refuse(path, "no line names the columns Name, Start (ns), Duration (ns)")
    found = []
    try:
        for row in csv.DictReader(io.StringIO("\n".join(lines[first:]))):
            name = row.get("Name") or ""
            begin = next((row[c] for c in _STARTS if row.get(c)), None)
            took = next((row[c] for c in _TOOK if row.get(c)), None)
            if not name or begin is None or took is None:
                continue
            found.append(
                named_event(
                    name,
                    row.get("Device") or "",
                    checked_us(path, begin, _US_PER_NS),
                    checked_duration(path, took, _US_PER_NS),
                )
            )
    except csv.Error as problem:
        raise refuse(path, str(problem)) from problem
    return [event for event in found if event is not None]


def _is_head(line: str) -> bool:
    columns = next(csv.reader([line]), [])
    return "Name" in columns and any(column in columns for column in _TOOK)


def is_nsys_table(text: str) -> bool:
    """Whether a line of the beginning names the columns of such a table."""
    return any(map(_is_head, text[:4096].splitlines()[:20]))


def named_event(name: str, device: str, begin_us: float, us: float) -> Event | None:
    """The event of an NVTX range of XLA, or of a kernel; None for any other range."""
    operation = HLO_OP.search(name)
    if operation is None:
        if name.startswith((":", "TSL:")) or "XlaModule:" in name:
            return None
        return Event(device, "", name, "", begin_us, us, is_kernel=True)
    module = HLO_MODULE.search(name)
    return Event(device, module[1] if module else "", operation[1], "", begin_us, us)
