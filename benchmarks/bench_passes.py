"""Every pass on a made-up module of up to a million instructions.

    python -m benchmarks.bench_passes [--passes=hlo-cse,...] [--markdown]
        [--sizes=10000,100000,1000000] [--limit-seconds=600] [--results=FILE]

In the module (benchmarks/family_modules.py) most passes over collectives and loops find
work in every block. What needs a schedule, or pairs of start and done, is run after the
passes that make them, which are not counted. Each pass runs in a process of its own;
reading, verifying and printing are not counted. The last figure is the time per
instruction of the largest size by that of the size before: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import sys
import time
from multiprocessing.connection import Connection
from typing import Final

import hlo_passes
from benchmarks.family_modules import family_text
from hlo_passes.errors import HloError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.passes.framework.registry import pass_targets

_SIZES: Final = (10_000, 100_000, 1_000_000)
_PAIRS: Final = "async-collective-creator,async-collective-annotator"
_ORDER: Final = f"{_PAIRS},hlo-memory-scheduler"
#: Pass -> what runs before it, outside of the measured time.
_BEFORE: Final = {
    "convert-async-collectives-to-sync": _ORDER,
    "execution-stream-assignment": _ORDER,
    "gpu-convert-async-collectives-to-sync": _ORDER,
    "latency-hiding-scheduler": _ORDER,
    "schedule-checker": _ORDER,
    "scheduler-memory-fencing": _ORDER,
    "hlo-memory-scheduler": _PAIRS,
    "async-collective-annotator": "async-collective-creator",
}


def seconds_of(name: str, instructions: int) -> tuple[float, bool]:
    """Processor seconds of one run, and whether it changed the module."""
    with garbage_collection_paused():
        module = hlo_passes.parse(family_text(instructions))
        for text in filter(None, (_BEFORE.get(name),)):
            _run(text, module)
        started = time.process_time()
        changed = _run(name, module)
        return time.process_time() - started, changed


def _run(text: str, module: hlo_passes.Module) -> bool:
    """Run a pipeline without verifying; returns whether it changed the module."""
    pipeline = Pipeline.parse(text)
    context = pipeline.settled(module)
    ran = [each.run(module, context, Report()) for each in pipeline.passes]
    return any(ran)


def _measure(name: str, sizes: tuple[int, ...], answer: Connection) -> None:
    for size in sizes:
        try:
            answer.send((size, *seconds_of(name, size)))
        except HloError as problem:
            answer.send((size, -1.0, problem.code))
            break
    answer.close()


def measured(name: str, sizes: tuple[int, ...], limit_seconds: float) -> dict[int, str]:
    """Size -> microseconds per instruction, as a text; `changed` under size 0."""
    context = multiprocessing.get_context("fork")
    found: dict[int, str] = {}
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(name, sizes, send))
    child.start()
    send.close()
    for size in sizes:
        if not receive.poll(limit_seconds):
            child.kill()
            found[size] = f"> {limit_seconds:.0f} s"
            break
        try:
            _, seconds, changed = receive.recv()
        except EOFError:
            found[size] = "died"
            break
        if seconds < 0:
            found[size] = f"error {changed}"
            break
        found[0] = "yes" if changed else "no"
        found[size] = f"{seconds / size * 1e6:.2f}"
    child.join()
    return found


def _growth(found: dict[int, str], sizes: tuple[int, ...]) -> str:
    """Time per instruction: the largest size by the one before."""
    try:
        last, before = (float(found[size]) for size in (sizes[-1], sizes[-2]))
    except (KeyError, ValueError, IndexError):
        return ""
    return f"{last / before:.2f}" if before else ""


def _row(name: str, found: dict[int, str], sizes: tuple[int, ...], bar: str) -> str:
    cells = [name, found.get(0, ""), *(found.get(size, "") for size in sizes)]
    return bar.join([*cells, _growth(found, sizes)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--passes", default="")
    parser.add_argument("--sizes", default=",".join(map(str, _SIZES)))
    parser.add_argument("--limit-seconds", type=float, default=600.0)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    sizes = tuple(int(size) for size in given.sizes.split(","))
    names = given.passes.split(",") if given.passes else list(pass_targets())
    known: dict[str, dict[int, str]] = {}
    if given.results is not None and given.results.exists():
        for line in given.results.read_text("utf-8").splitlines():
            name, found = json.loads(line)
            known[name] = {int(size): text for size, text in found.items()}
    head = ["pass", "changes it", *(f"{size:,}" for size in sizes), "growth"]
    if given.markdown:
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in names:
        if name not in known:
            known[name] = measured(name, sizes, given.limit_seconds)
            if given.results is not None:
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, known[name]]) + "\n")
        row = _row(name, known[name], sizes, " | " if given.markdown else "  ")
        print(f"| {row} |" if given.markdown else row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
