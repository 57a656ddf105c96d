"""Every pass on a made-up module of up to a million instructions.

    python -m benchmarks.bench_passes [--passes=hlo-cse,...] [--markdown]
        [--sizes=10000,100000,1000000] [--limit-seconds=600] [--results=FILE]

In the module (benchmarks/family_modules.py) most passes over collectives and loops find
work in every block. What needs a schedule, or pairs of start and done, is run after the
passes that make them, which are not counted. A module is read once; each pass runs on
it in a process of its own, of which the user's seconds count. Reading, verifying and
printing are not counted. The last figure is the time per instruction of the largest
size by that of the size before: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import resource
import sys
from collections.abc import Callable, Sequence
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


#: Pass -> size -> microseconds per instruction, as a text; `changed` under size 0.
Table = dict[str, dict[int, str]]


def _run(text: str, module: hlo_passes.Module) -> bool:
    """Run a pipeline without verifying; returns whether it changed the module."""
    pipeline = Pipeline.parse(text)
    context = pipeline.settled(module)
    ran = [each.run(module, context, Report()) for each in pipeline.passes]
    return any(ran)


def _seconds(name: str, module: hlo_passes.Module, answer: Connection) -> None:
    """Send the user's seconds of one run, and whether it changed the module.

    Seconds of the system are those of copying the parent's pages.
    """
    started = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        changed = _run(name, module)
    except HloError as problem:
        answer.send((-1.0, problem.code))
        return
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - started
    answer.send((seconds, "yes" if changed else "no"))


def measured(
    name: str, size: int, module: hlo_passes.Module, limit_seconds: float
) -> tuple[str, str]:
    """Microseconds per instruction, and `yes` if the pass changed the module.

    The pass runs in a fork of this process, which has read the module.
    """
    Pipeline.parse(name)  # imports the pass, which does not count
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_seconds, args=(name, module, send))
    child.start()
    send.close()
    if not receive.poll(limit_seconds):
        child.kill()
        child.join()
        return f"> {limit_seconds:.0f} s", ""
    try:
        seconds, changed = receive.recv()
    except EOFError:
        return "died", ""
    finally:
        child.join()
    if seconds < 0:
        return f"error {changed}", ""
    return f"{seconds / size * 1e6:.2f}", changed


def measure_all(
    names: Sequence[str],
    sizes: Sequence[int],
    limit_seconds: float,
    known: Table,
    keep: Callable[[str, int, str, str], None],
) -> None:
    """Measure what is not known; a pass that failed is not tried on larger modules."""
    prepared = sorted({_BEFORE.get(name, "") for name in names})
    for size in sizes:
        for before in prepared:
            mine = [
                name
                for name in names
                if _BEFORE.get(name, "") == before
                and size not in known.get(name, {})
                and all(_is_number(known[name].get(s, "0")) for s in sizes if s < size)
            ]
            if not mine:
                continue
            with garbage_collection_paused():
                module = hlo_passes.parse(family_text(size))
                if before:
                    _run(before, module)
                for name in mine:
                    keep(name, size, *measured(name, size, module, limit_seconds))


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()


def _growth(found: dict[int, str], sizes: Sequence[int]) -> str:
    """Time per instruction: the largest size by the one before."""
    try:
        last, before = (float(found[size]) for size in (sizes[-1], sizes[-2]))
    except (KeyError, ValueError, IndexError):
        return ""
    return f"{last / before:.2f}" if before else ""


def _row(name: str, found: dict[int, str], sizes: Sequence[int]) -> list[str]:
    cells = [name, found.get(0, ""), *(found.get(size, "") for size in sizes)]
    return [*cells, _growth(found, sizes)]


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
    known: Table = {name: {} for name in names}
    if given.results is not None and given.results.exists():
        for line in given.results.read_text("utf-8").splitlines():
            name, size, cell, changed = json.loads(line)
            known.setdefault(name, {}).update({size: cell, 0: changed})

    def keep(name: str, size: int, cell: str, changed: str) -> None:
        known[name] |= {size: cell} | ({0: changed} if changed else {})
        sys.stderr.write(f"{name} {size:,}: {cell}\n")
        if given.results is not None:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, size, cell, changed]) + "\n")

    measure_all(names, sizes, given.limit_seconds, known, keep)
    head = ["pass", "changes it", *(f"{size:,}" for size in sizes), "growth"]
    rows = [_row(name, known[name], sizes) for name in names]
    if not given.markdown:
        print("\n".join("  ".join(row) for row in (head, *rows)))
        return
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
