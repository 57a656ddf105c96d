"""Events of Nsight Systems' SQLite export: kernels, by the range that launched them.

A kernel belongs to the innermost NVTX range of XLA (`Thunk:#...,hlo_op=fusion.3#`) that
was open on its thread when the runtime launched it (same correlation id); a kernel
without one has its own name.

Source of tables and columns: Nsight Systems' "SQLite Export Schema Reference".
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from pathlib import Path
from typing import Any, Final

from hlo_passes.scheduler.measured.events import (
    HLO_MODULE,
    HLO_OP,
    Event,
    checked_duration,
    checked_us,
    refuse,
)

#: How a file of SQLite begins.
MAGIC: Final = b"SQLite format 3\0"
_US_PER_NS: Final = 1e-3
_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_LAUNCHES: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_STRINGS: Final = "StringIds"

#: Ranges that may have ended since an open one began.
_DEEPEST: Final = 64
#: Begin, end, instruction, module.
_Range = tuple[int, int, str, str]


def nsight_events(path: str) -> list[Event]:
    """Kernels of an export. Raises UsageError U228 if it lacks what is needed."""
    try:
        with sqlite3.connect(
            f"{Path(path).resolve().as_uri()}?mode=ro", uri=True
        ) as on:
            return _events(on, path)
    except (sqlite3.Error, TypeError, OverflowError) as problem:
        raise refuse(path, f"the export cannot be read: {problem}") from problem


def _events(on: sqlite3.Connection, path: str) -> list[Event]:
    tables = {row[0] for row in on.execute("SELECT name FROM sqlite_master")}
    if _KERNELS not in tables:
        raise refuse(path, f"the export has no table {_KERNELS}: no kernel was traced")
    strings: dict[Any, str] = {}
    if _STRINGS in tables:
        strings = dict(on.execute(f"SELECT id, value FROM {_STRINGS}"))
    # When, and on which thread, the host launched each kernel.
    launches: dict[int, tuple[int, int]] = {}
    if _LAUNCHES in tables:
        rows = on.execute(f"SELECT correlationId, globalTid, start FROM {_LAUNCHES}")
        launches = {k: (thread, at) for k, thread, at in rows}
    ranges = _ranges(on, strings) if _RANGES in tables else {}
    found = []
    rows = on.execute(
        f"SELECT start, end, deviceId, correlationId, shortName FROM {_KERNELS} "
        "ORDER BY start"
    )
    for start, end, device, correlation, name in rows:
        begin = checked_us(path, start, _US_PER_NS)
        took = checked_duration(path, end - start, _US_PER_NS)
        place = f"GPU {device}"
        thread, at = launches.get(correlation, (None, 0))
        known = _innermost(ranges.get(thread, []), at)
        if known is not None:
            found.append(Event(place, known[3], known[2], "", begin, took))
        else:
            kernel = str(strings.get(name, name))
            found.append(Event(place, "", kernel, "", begin, took, is_kernel=True))
    return found


def _ranges(
    on: sqlite3.Connection, strings: dict[Any, str]
) -> dict[int | None, list[_Range]]:
    """Ranges of instructions by thread, by begin."""
    columns = {row[1] for row in on.execute(f"PRAGMA table_info({_RANGES})")}
    text_id = "textId" if "textId" in columns else "NULL"
    found: dict[int | None, list[_Range]] = {}
    rows = on.execute(
        f"SELECT start, end, globalTid, text, {text_id} FROM {_RANGES} "
        "WHERE end IS NOT NULL ORDER BY start"
    )
    for start, end, thread, text, number in rows:
        text = text or strings.get(number, "")
        operation = HLO_OP.search(text)
        if operation is not None:
            module = HLO_MODULE.search(text)
            name = module[1] if module else ""
            found.setdefault(thread, []).append((start, end, operation[1], name))
    return found


def _innermost(ranges: list[_Range], at: int) -> _Range | None:
    """The last range to begin of those that are open."""
    last = bisect_right(ranges, at, key=lambda each: each[0]) - 1
    for k in range(last, max(-1, last - _DEEPEST), -1):
        if ranges[k][1] >= at:
            return ranges[k]
    return None
