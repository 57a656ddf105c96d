"""Judge recordings: `python -m tests.scheduler.conformance [PLACE...]`.

A PLACE is a folder, at any depth above recordings, or an archive. Without one: the
recordings of this repository, and ../shared/golden where it is there. Each is scheduled
both ways: without a log, and pair by pair with a log of decisions.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections import Counter

from tests.modules import CORPUS, SHARED
from tests.scheduler.conformance.judge import Verdict, judge
from tests.scheduler.conformance.recordings import find_recordings

PLACES = (CORPUS / "golden", CORPUS / "schedules", SHARED / "golden")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scheduler.conformance", description=__doc__
    )
    parser.add_argument("places", nargs="*", type=pathlib.Path, metavar="PLACE")
    parser.add_argument(
        "--estimator",
        default="",
        help="in place of XLA's costs, such as sol: how many orders stay XLA's",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="of names")
    parser.add_argument(
        "--most", type=int, default=2, help="differences shown of a recording"
    )
    options = parser.parse_args()
    places = options.places or [p for p in PLACES if p.is_dir()]
    verdicts = []
    without_order = 0
    for recording in find_recordings(*places):
        if not re.search(options.only, recording.name):
            continue
        if recording.leaves_out_elements:
            without_order += 1
            continue
        verdict = judge(
            recording,
            estimator_name=options.estimator,
            figures=not options.estimator,
        )
        verdicts.append(verdict)
        if verdict.differences:
            print(f"{verdict.name} ({verdict.estimator_name})")
            for difference in verdict.differences[: options.most]:
                print(f"  {difference}", flush=True)
    print(summary(verdicts))
    if without_order:
        print(f"{without_order} recordings left aside: their text lacks elements")
    return 1 if any(v.differences for v in verdicts) else 0


def summary(verdicts: list[Verdict]) -> str:
    """Counts over all verdicts."""
    parts = Counter(d.part for v in verdicts for d in v.differences)
    equal = sum(not v.differences for v in verdicts)
    scheduled = sum(v.scheduled for v in verdicts)
    lines = [
        f"{len(verdicts)} recordings, {equal} equal in all",
        f"{sum(v.in_order for v in verdicts)} of {scheduled} computations in XLA's order "
        "without a log",
        f"{sum(v.logged_in_order for v in verdicts)} of {scheduled} computations in "
        "XLA's order with a log",
        f"{sum(v.equal_decisions for v in verdicts)} of "
        f"{sum(v.decisions for v in verdicts)} decisions equal",
        f"{sum(v.seconds for v in verdicts):.1f} s of scheduling without a log, "
        f"{sum(v.logged_seconds for v in verdicts):.1f} s with one",
    ]
    explained = sum(len(v.explained) for v in verdicts)
    lines.append(f"{explained} figures differ by what XLA's log rounds off")
    lines += (f"{count} differences: {part}" for part, count in parts.most_common())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
