"""Every pass on a made-up module of up to a million instructions.

    python -m benchmarks.bench_passes [--passes=hlo-cse,...] [--markdown]
        [--sizes=10000,100000,1000000] [--limit-seconds=600] [--limit-gb=12]
        [--results=FILE]

In the module (benchmarks/family_modules.py) most passes over collectives and loops find
work in every block. What needs a schedule, or pairs of start and done, is run after the
passes that make them, which are not counted. A module is read once; each pass runs on
it in a process of its own, of which the user's seconds count. Reading, verifying and
printing are not counted. The last two figures: the time per instruction of the largest
size by that of the size before, 1 is linear; and the most memory of that process at the
largest size, the module included.

The limits are seconds of the processor and gigabytes of address space of one such
process: neither depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import pathlib
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import hlo_passes
from benchmarks.family_modules import family_text
from hlo_passes.errors import HloError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.passes.framework.registry import pass_targets

#: Seconds and gigabytes of one process.
Limits = tuple[float, float]

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


@dataclass(frozen=True, slots=True)
class Cell:
    """One pass on one module.

    Attributes:
        text: microseconds per instruction, or why there are none.
        changed: `yes`, `no`, or the code with which it refused the module.
        gigabytes: the most that its process held.
    """

    text: str
    changed: str = ""
    gigabytes: float = 0.0

    @property
    def is_number(self) -> bool:
        """Whether the pass was measured."""
        return self.text.replace(".", "", 1).isdigit()


Table = dict[str, dict[int, Cell]]


def _run(text: str, module: hlo_passes.Module) -> bool:
    """Run a pipeline without verifying; returns whether it changed the module."""
    pipeline = Pipeline.parse(text)
    context = pipeline.settled(module)
    ran = [each.run(module, context, Report()) for each in pipeline.passes]
    return any(ran)


def _limit(seconds: float, gigabytes: float) -> None:
    """Let the system end this process at so much of the processor or of memory."""
    most = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _seconds(
    name: str, module: hlo_passes.Module, limits: Limits, answer: Connection
) -> None:
    """Send the user's seconds of one run, whether it changed the module, and memory.

    Seconds of the system are those of copying the parent's pages.
    """
    _limit(*limits)
    started = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        changed = "yes" if _run(name, module) else "no"
    except HloError as problem:
        # A checker has done its work when it refuses a module.
        changed = f"error {problem.code}"
    except MemoryError:
        answer.send((-1.0, f"> {limits[1]:g} GB", 0))
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime - started
    answer.send((seconds, changed, used.ru_maxrss))


def measured(name: str, size: int, module: hlo_passes.Module, limits: Limits) -> Cell:
    """What one pass takes on one module.

    The pass runs in a fork of this process, which has read the module.
    """
    Pipeline.parse(name)  # imports the pass, which does not count
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_seconds, args=(name, module, limits, send))
    child.start()
    send.close()
    try:
        seconds, changed, kilobytes = receive.recv()
    except EOFError:
        child.join()
        is_late = child.exitcode == -signal.SIGXCPU
        return Cell(f"> {limits[0]:g} s" if is_late else "died")
    child.join()
    if seconds < 0:
        return Cell(changed)
    return Cell(f"{seconds / size * 1e6:.2f}", changed, kilobytes / 1e6)


def measure_all(
    names: Sequence[str],
    sizes: Sequence[int],
    limits: Limits,
    known: Table,
    keep: Callable[[str, int, Cell], None],
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
                and all(c.is_number for s, c in known[name].items() if s < size)
            ]
            if not mine:
                continue
            with garbage_collection_paused():
                module = hlo_passes.parse(family_text(size))
                if before:
                    _run(before, module)
                for name in mine:
                    keep(name, size, measured(name, size, module, limits))


def _growth(found: dict[int, Cell], sizes: Sequence[int]) -> str:
    """Time per instruction: the largest size by the one before."""
    try:
        last, before = (float(found[size].text) for size in (sizes[-1], sizes[-2]))
    except (KeyError, ValueError, IndexError):
        return ""
    return f"{last / before:.2f}" if before else ""


def _row(name: str, found: dict[int, Cell], sizes: Sequence[int]) -> list[str]:
    cells = [found.get(size, Cell("")) for size in sizes]
    changed = next((cell.changed for cell in reversed(cells) if cell.changed), "")
    most = cells[-1].gigabytes
    memory = f"{most:.2f}" if most else ""
    return [name, changed, *(c.text for c in cells), _growth(found, sizes), memory]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passes", default="")
    parser.add_argument("--sizes", default=",".join(map(str, _SIZES)))
    parser.add_argument("--limit-seconds", type=float, default=600.0)
    parser.add_argument("--limit-gb", type=float, default=12.0)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    sizes = tuple(int(size) for size in given.sizes.split(","))
    names = given.passes.split(",") if given.passes else list(pass_targets())
    known: Table = {name: {} for name in names}
    if given.results is not None and given.results.exists():
        for line in given.results.read_text("utf-8").splitlines():
            name, size, *cell = json.loads(line)
            known.setdefault(name, {})[size] = Cell(*cell)

    def keep(name: str, size: int, cell: Cell) -> None:
        known[name][size] = cell
        sys.stderr.write(f"{name} {size:,}: {cell.text} {cell.gigabytes:.2f}\n")
        if given.results is not None:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, size, *dataclasses.astuple(cell)]) + "\n")

    measure_all(names, sizes, (given.limit_seconds, given.limit_gb), known, keep)
    head = ["pass", "changes it", *(f"{size:,}" for size in sizes), "growth", "GB"]
    rows = [_row(name, known[name], sizes) for name in names]
    if not given.markdown:
        print("\n".join("  ".join(row) for row in (head, *rows)))
        return
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
