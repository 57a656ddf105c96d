"""Our estimates against XLA's: `python -m tests.scheduler.costs_conformance [PLACE...]`.

    XLA   costs.json of a recording: node costs, and latencies from a start to its done
    ours  `scheduler.estimate`, as `hlo-passes estimate --json` prints it

A PLACE is a folder, at any depth above recordings, or an archive. Without one: the
recordings of this repository, and ../shared/golden where it is there. An estimate is
right within `RELATIVE` of XLA's or `ABSOLUTE_US`; every one that is not is printed, and
the exit status is 1. Recordings with the same module and costs are judged once.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import hlo_passes
from hlo_passes import scheduler
from tests.modules import CORPUS, SHARED
from tests.scheduler.conformance.recordings import Recording, find_recordings

PLACES = (
    CORPUS / "schedules",
    CORPUS / "costs",
    CORPUS / "golden",
    SHARED / "golden",
)
#: What every input of the corpus is compiled for.
MACHINES = (
    ("h100_sxm", "1x1x8"),
    ("h100_sxm", "1x2x8"),
    ("h200", "1x1x8"),
    ("b200", "1x1x8"),
)
RELATIVE, ABSOLUTE_US = 0.01, 0.002
_DIGITS = 6


@dataclass(frozen=True)
class Miss:
    """One estimate that is not XLA's.

    Attributes:
        recording: its name.
        instruction: its name.
        part: `node` or `latency`.
        found_us: ours; None where the instruction has none.
        wanted_us: XLA's.
        model: who answered here.
    """

    recording: str
    instruction: str
    part: str
    found_us: float | None
    wanted_us: float
    model: str

    def __str__(self) -> str:
        return (
            f"{self.recording}: {self.part} of %{self.instruction}: ours "
            f"{self.found_us} us ({self.model}), XLA's {self.wanted_us} us"
        )


@dataclass
class Tally:
    """Counts of one kind of estimate."""

    compared: int = 0
    close: int = 0
    equal: int = 0

    def __str__(self) -> str:
        return (
            f"{self.compared} compared, {self.close} within 1% or {ABSOLUTE_US} us, "
            f"{self.equal} equal to {_DIGITS} digits"
        )


@dataclass
class CostVerdict:
    """How our estimates did on one recording.

    Attributes:
        name: of the recording.
        machine: target and topology.
        tallies: by part.
        misses: the estimates that are not XLA's.
        not_printed: tuple elements that XLA priced and its text of jax 0.12 leaves out.
    """

    name: str
    machine: tuple[str, str]
    tallies: dict[str, Tally] = field(
        default_factory=lambda: {"node": Tally(), "latency": Tally()}
    )
    misses: list[Miss] = field(default_factory=list)
    not_printed: int = 0


def judge_costs(recording: Recording) -> CostVerdict:
    """Price what XLA priced and compare."""
    verdict = CostVerdict(recording.name, (recording.target, recording.topology))
    report = scheduler.estimate(
        hlo_passes.parse(recording.before, filename=recording.name),
        target=recording.target,
        topology=recording.topology,
        xla=recording.release,
    )
    rows = {row.name: row for row in report.rows}
    costs = json.loads(recording.texts["costs.json"])
    latencies = costs["latency_us"] | costs.get("latency_fallback", {})
    for part, wanted in (("node", costs["node_cost_us"]), ("latency", latencies)):
        for name, value in wanted.items():
            row = rows.get(name)
            if row is None and recording.leaves_out_elements:
                # An element that XLA's text spells at its users alone: `%t#0`.
                verdict.not_printed += 1
                continue
            found = None
            if row is not None:
                found = row.node_cost_us if part == "node" else row.latency_us
            tally = verdict.tallies[part]
            tally.compared += 1
            if found is not None and _is_close(found, value):
                tally.close += 1
                tally.equal += _digits(found) == _digits(value)
                continue
            model = row.model if row else "not priced"
            miss = Miss(recording.name, name, part, found, value, model)
            verdict.misses.append(miss)
    return verdict


def _is_close(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= max(RELATIVE * abs(wanted), ABSOLUTE_US)


def _digits(value: float) -> str:
    """As XLA's log prints it."""
    return f"{value:.{_DIGITS}g}"


def input_name(recording: Recording) -> str:
    """The corpus input that a recording is of: a function or a handwritten module."""
    source = str(recording.oracle.get("source", ""))
    return source.rpartition(":")[2].removesuffix(".gz").removesuffix(".hlo")


def corpus_inputs() -> list[str]:
    """Every program and handwritten module of the corpus, by name."""
    names = [file.stem for file in (CORPUS / "handwritten").glob("*.hlo")]
    for folder in ("programs", "held_out"):
        for file in (CORPUS / folder).glob("*.py"):
            names += (
                node.name
                for node in ast.parse(file.read_text()).body
                if isinstance(node, ast.FunctionDef)
                and [a.arg for a in node.args.args] == ["devices"]
                and not node.name.startswith("_")
            )
    return sorted(names)


@functools.cache
def reasons_without_recording() -> dict[str, dict[str, str]]:
    """Jax release -> '<input>/<target>.<topology>' -> why XLA priced nothing."""
    return json.loads((CORPUS / "costs" / "left_out.json").read_text())


def without_recording(recordings: Iterable[Recording]) -> Iterator[str]:
    """Inputs of the corpus that are recorded for a machine in no setting, and why."""
    seen = {(r.release, input_name(r), r.target, r.topology) for r in recordings}
    for release, reasons in sorted(reasons_without_recording().items()):
        for name in corpus_inputs():
            for target, topology in MACHINES:
                if (release, name, target, topology) not in seen:
                    place = f"{name}/{target}.{topology}"
                    reason = reasons.get(place, "not recorded")
                    yield f"jax {release}: {place}: {reason}"


def distinct(recordings: Iterable[Recording]) -> Iterator[Recording]:
    """Those that XLA priced, of equal ones the first."""
    seen = set()
    for recording in recordings:
        if not recording.is_priced:
            continue
        machine = (recording.release, recording.target, recording.topology)
        key = (machine, recording.before, recording.texts["costs.json"])
        if key not in seen:
            seen.add(key)
            yield recording


def summary(verdicts: list[CostVerdict]) -> str:
    """Counts by machine and over all."""
    lines = []
    for machine in sorted({v.machine for v in verdicts}):
        own = [v for v in verdicts if v.machine == machine]
        lines.append(f"{' '.join(machine)}: {len(own)} recordings")
        lines += (f"  {part}: {total(own, part)}" for part in ("node", "latency"))
    lines.append(f"all: {len(verdicts)} recordings")
    lines += (f"  {part}: {total(verdicts, part)}" for part in ("node", "latency"))
    left = sum(v.not_printed for v in verdicts)
    if left:
        lines.append(
            f"  {left} tuple elements left aside: XLA's text has no line of them"
        )
    return "\n".join(lines)


def total(verdicts: Iterable[CostVerdict], part: str) -> Tally:
    """The sum of the tallies."""
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        tally = verdict.tallies[part]
        counts.update(compared=tally.compared, close=tally.close, equal=tally.equal)
    return Tally(counts["compared"], counts["close"], counts["equal"])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scheduler.costs_conformance", description=__doc__
    )
    parser.add_argument("places", nargs="*", type=pathlib.Path, metavar="PLACE")
    parser.add_argument("--only", default="", metavar="REGEX", help="of names")
    options = parser.parse_args()
    places = options.places or [p for p in PLACES if p.is_dir()]
    named = [r for r in find_recordings(*places) if re.search(options.only, r.name)]
    verdicts = []
    for recording in distinct(named):
        verdicts.append(judge_costs(recording))
        for miss in verdicts[-1].misses:
            print(f"MISS {miss}", flush=True)
    print(summary(verdicts))
    if not options.places and not options.only:
        for line in without_recording(named):
            print(f"no recording: {line}")
    if not verdicts:
        print("nothing to judge: no recording there has costs")
        return 1
    return 1 if any(v.misses for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
