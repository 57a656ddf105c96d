"""Choose the sample of recordings: `python -m tests.scheduler.conformance.choose`.

Every recording is judged while the interpreter reports which branches of the scheduler
and of its memory model are taken. The sample is chosen greedily, most new branches per
second first, until each branch that any recording takes is taken by as many recordings
of the sample as `--times` says, or by all that take it. What decided a comparison and
what a recording was compiled with count as branches do. Needs Python 3.12
(`sys.monitoring`).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from tests.modules import CORPUS, REPOSITORY
from tests.scheduler.conformance.judge import judge
from tests.scheduler.conformance.recordings import Recording, find_recordings

#: The names of the chosen recordings, one a line.
SAMPLE = pathlib.Path(__file__).with_name("sample.txt")
PLACES = (CORPUS / "golden", CORPUS / "schedules")
_WATCHED = ("scheduler/latency_hiding/", "scheduler/memory/")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scheduler.conformance.choose", description=__doc__
    )
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--measured", type=pathlib.Path, help="keep what was measured in this file"
    )
    options = parser.parse_args()
    kept: pathlib.Path | None = options.measured
    if kept is not None and kept.exists():
        measured = json.loads(kept.read_text())
    else:
        measured = measure(sys.monitoring)  # type: ignore[attr-defined]
        if kept is not None:
            kept.write_text(json.dumps(measured))
    chosen = choose(measured, options.times)
    SAMPLE.write_text("".join(f"{name}\n" for name in chosen))
    reached = {f for row in measured.values() for f in row["taken"]}
    seconds = sum(measured[name]["seconds"] for name in chosen)
    print(
        f"{len(chosen)} of {len(measured)} recordings take all {len(reached)} branches, "
        f"{seconds:.1f} s"
    )


def measure(monitoring: Any) -> dict[str, Any]:
    """Name -> what a recording takes, and the seconds to judge it."""
    found: dict[str, Any] = {}
    with branches(monitoring) as taken:
        for place in PLACES:
            for recording in find_recordings(place):
                if recording.leaves_out_elements:
                    continue
                taken.clear()
                monitoring.restart_events()
                begun = time.process_time()
                verdict = judge(recording)
                seconds = time.process_time() - begun
                assert not verdict.differences, recording.name
                name = f"{place.name}/{recording.name}"
                features = sorted({*taken, *circumstances(recording)})
                found[name] = {"seconds": seconds, "taken": features}
    return found


def circumstances(recording: Recording) -> Iterator[str]:
    """What else a sample should have: reasons, flags, releases."""
    for _, _, reason in recording.decisions or ():
        yield f"decided by {reason}"
    for flag, value in recording.flags.items():
        yield f"{flag}={pathlib.PurePath(value).name}"
    yield f"release {recording.release}"


@contextmanager
def branches(monitoring: Any) -> Iterator[set[str]]:
    """The set of branches taken since it was last cleared, of the watched folders.

    A branch that was taken both ways is not reported until `restart_events`.
    """
    taken: set[str] = set()
    names: dict[CodeType, str | None] = {}
    tool, events = monitoring.COVERAGE_ID, monitoring.events

    def name_of(code: CodeType) -> str | None:
        if code not in names:
            path = pathlib.Path(code.co_filename).resolve()
            inside = path.is_relative_to(REPOSITORY)
            place = str(path.relative_to(REPOSITORY)) if inside else ""
            watched = place.startswith(_WATCHED)
            at = f"{place}:{code.co_qualname}:{code.co_firstlineno}"  # type: ignore[attr-defined]
            names[code] = at if watched else None
        return names[code]

    def begun(code: CodeType, offset: int) -> Any:
        name = name_of(code)
        if name is not None:
            monitoring.set_local_events(tool, code, events.BRANCH)
            taken.add(name)
        return monitoring.DISABLE

    ways: dict[tuple[CodeType, int], set[int]] = {}

    def branched(code: CodeType, offset: int, target: int) -> Any:
        known = ways.setdefault((code, offset), set())
        known.add(target)
        name = names[code]
        taken.add(f"{name}:{offset}:{target}")
        both = all(f"{name}:{offset}:{way}" in taken for way in known)
        return monitoring.DISABLE if both and len(known) > 1 else None

    monitoring.use_tool_id(tool, "choose")
    monitoring.register_callback(tool, events.PY_START, begun)
    monitoring.register_callback(tool, events.BRANCH, branched)
    monitoring.set_events(tool, events.PY_START)
    try:
        yield taken
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def choose(measured: dict[str, Any], times: int) -> list[str]:
    """Names, so that each feature is there so often, greedily by seconds."""
    counts = Counter(f for row in measured.values() for f in row["taken"])
    missing = {f: min(times, count) for f, count in counts.items()}
    left = {name: set(row["taken"]) for name, row in measured.items()}
    chosen: list[str] = []
    while missing:
        name = max(left, key=lambda n: _gain(left[n], missing, measured[n]["seconds"]))
        chosen.append(name)
        for feature in left.pop(name) & missing.keys():
            missing[feature] -= 1
            if not missing[feature]:
                del missing[feature]
    return chosen


def _gain(taken: set[str], missing: dict[str, int], seconds: float) -> float:
    return len(taken & missing.keys()) / (seconds + 0.02)


if __name__ == "__main__":
    main()
