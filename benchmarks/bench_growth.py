"""How every pass and every command grows: processor time for n, 2n, 4n.

    python -m benchmarks.bench_growth [--passes=hlo-cse,verify] [--graphs=chain,equal]
        [--seconds=0.1] [--results=FILE] [--markdown]

Each graph (benchmarks/growth_graphs.py) and command is measured in a process of its
own, with a time limit. n is doubled until 4n takes `--seconds`, or until the graph is
as large as it gets. Each figure is the time for 4n divided by that for 2n. What is
slower than the goal is measured again, three times as often, and marked if it still
is. Reading is left out of all but `read`.

`--results` names a file that keeps what was measured: a second run measures only what
is missing there.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
import multiprocessing
import multiprocessing.connection
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Final

import hlo_passes
from benchmarks.growth_graphs import GRAPHS
from hlo_passes.analysis.module_diff import diff_modules
from hlo_passes.errors import HloError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.passes.framework.registry import pass_targets
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimate_table import table_text
from hlo_passes.scheduler.module_costs import estimate
from hlo_passes.scheduler.schedule_moves import Simulated, schedule_moves
from hlo_passes.scheduler.simulation.report import DEFAULT_ROWS, report_text
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.verify.verifier import verify

#: Twice the size may take this many times as long.
GOAL: Final = 2.2
#: Below this many seconds for 4n a ratio says nothing.
_TOO_QUICK: Final = 0.02
_SMALLEST: Final = 8
_TIME_LIMIT_SECONDS: Final = 120
_MEMORY_LIMIT_BYTES: Final = 6 << 30
_COLUMNS: Final = 100

Work = Callable[[], object]
#: Prepares work on one module, given as text; the work alone is timed.
Command = Callable[[str], Work]

#: Options without which a pass would find nothing to do.
_OPTIONS: Final = {
    "collectives-schedule-linearizer": "{when=always}",
    "fixed-point": "(hlo-cse,tuple-simplifier,hlo-dce)",
    "scheduler-memory-fencing": "{scheduler-memory-fencing-threshold-bytes=1}",
}
#: Pipelines that users run as a whole, and a pass with another option.
_PIPELINES: Final = (
    "collective-permute-splitter,tuple-simplifier,convert-async-collectives-to-sync",
    "async-collective-creator,convert-async-collectives-to-sync",
    "gpu-all-reduce-combiner{threshold-count=2}",
    "windowed-einsum-handler{alltoall-windowed-einsum=true}",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One command on one graph.

    Attributes:
        graph: a key of GRAPHS.
        command: a key of `commands()`.
        size: n of the largest one measured, 0 if none was.
        seconds: of the last three sizes, each twice the one before.
        problem: why there is no figure; '' if there is one.
    """

    graph: str
    command: str
    size: int = 0
    seconds: tuple[float, ...] = ()
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """Seconds for the largest size by those for half of it; None if too quick."""
        if len(self.seconds) < 2 or self.seconds[-1] < _TOO_QUICK:
            return None
        return self.seconds[-1] / self.seconds[-2]

    @property
    def is_above_goal(self) -> bool:
        """Whether it grows faster than it may, or could not be measured in time."""
        ratio = self.ratio
        return self.problem == "time" or (ratio is not None and ratio > GOAL)

    def to_text(self) -> str:
        """`1.9 at 64k`; `!` marks what is above the goal."""
        mark = "!" if self.is_above_goal else ""
        if self.problem:
            return f"{self.problem}{mark}"
        ratio = self.ratio
        shown = "-" if ratio is None else f"{ratio:.1f}"
        return f"{shown}{mark} at {_short(self.size)}"


def _short(number: int) -> str:
    return str(number) if number < 1000 else f"{number / 1000:.3g}k"


@dataclass(frozen=True, slots=True)
class _Child:
    """A process that measures one cell, until a time of `time.monotonic`."""

    process: ForkProcess
    graph: str
    command: str
    until: float


# -- what is measured --------------------------------------------------------


def commands() -> dict[str, Command]:
    """Everything that is measured, by name."""
    passes = {
        name: _pipeline(f"{name}{_OPTIONS.get(name, '')}")
        for name in sorted({*pass_targets(), *_OPTIONS})
    }
    others: dict[str, Command] = {
        "read": lambda text: lambda: hlo_passes.parse(text),
        "print": _on_module(Module.to_canonical_text),
        "verify": _on_module(lambda module: verify(module, allow_unknown=True)),
        "estimate": _on_module(lambda m: table_text(estimate(m, on=Pricing()))),
        "simulate": _on_module(_simulate),
        "simulate --xla-statistic": _on_module(
            lambda module: simulate(module, xla_statistic=True).to_json()
        ),
        "simulate --html": _on_module(lambda m: simulate(m).to_html(m)),
        "diff": _diff,
    }
    return passes | {text: _pipeline(text) for text in _PIPELINES} | others


def _on_module(work: Callable[[Module], object]) -> Command:
    def command(text: str) -> Work:
        return functools.partial(work, hlo_passes.parse(text))

    return command


def _pipeline(text: str) -> Command:
    pipeline = Pipeline.parse(text)

    def run(module: Module) -> None:
        context = pipeline.settled(module)
        for each in pipeline.passes:
            each.run(module, context, Report())

    return _on_module(run)


def _simulate(module: Module) -> None:
    timeline = simulate(module)
    report_text(timeline, DEFAULT_ROWS, _COLUMNS)
    json.dumps(timeline.to_perfetto())


def _diff(text: str) -> Work:
    before, after = hlo_passes.parse(text), hlo_passes.parse(text)
    for computation in after.computations:
        computation.set_order(_reversed(computation.instructions))

    def work() -> None:
        diff_modules(before, after).to_text()
        old, new = (Simulated(m, simulate(m)) for m in (before, after))
        schedule_moves(old, new)

    return work


def _reversed(order: Sequence[Instruction]) -> list[Instruction]:
    """The order turned round as far as edges allow: last come, first served."""
    waiting = {
        i: len({*i.operands}) + len({*i.control_predecessors} - {*i.operands})
        for i in order
    }
    ready = [i for i in order if not waiting[i]]
    found: list[Instruction] = []
    while ready:
        current = ready.pop()
        found.append(current)
        for follower in dict.fromkeys((*current.users, *current.control_successors)):
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return found


# -- measuring ---------------------------------------------------------------


def seconds_of(command: Command, text: str, repeat: int = 1) -> float:
    """The least processor seconds of some runs, each on a module of its own."""
    best = float("inf")
    for _ in range(repeat):
        with garbage_collection_paused():
            work = command(text)
            started = time.process_time()
            work()
            best = min(best, time.process_time() - started)
    return best


def measure(graph: str, command: str, wanted_seconds: float) -> Cell:
    """Double the size until it takes that long; measure again what is above the goal.

    Prepared work and import are not counted.
    """
    work, family = commands()[command], GRAPHS[graph]
    seconds: dict[int, float] = {}
    size = _SMALLEST
    try:
        seconds_of(work, family.text(size))
        # Find the largest size; come near it in greater steps.
        while True:
            seconds[size] = seconds_of(work, family.text(size))
            step = 8 if seconds[size] < wanted_seconds / 40 else 2
            if seconds[size] >= wanted_seconds or size * 2 > family.largest:
                break
            size *= step if size * step <= family.largest else 2
        # Measure the two sizes before it, and all three again if they grow too fast.
        sizes = (size // 4, size // 2, size)
        for each in sizes:
            if each not in seconds:
                seconds[each] = seconds_of(work, family.text(each))
        cell = Cell(graph, command, size, tuple(seconds[each] for each in sizes))
        if cell.is_above_goal:
            again = (seconds_of(work, family.text(each), repeat=3) for each in sizes)
            cell = dataclasses.replace(cell, seconds=tuple(again))
    except HloError as problem:
        return Cell(graph, command, problem=f"error {problem.code}")
    return cell


def _measure_here(graph: str, command: str, seconds: float, answer: Connection) -> None:
    """`measure`, in the child; whatever it raises is its answer, too."""
    limit = (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, limit)
    try:
        cell = measure(graph, command, seconds)
    except Exception as problem:
        text = type(problem).__name__
        cell = Cell(graph, command, problem=text)
    answer.send(cell)


def _measured_apart(
    wanted: Iterable[tuple[str, str]], wanted_seconds: float, processes: int
) -> Iterator[Cell]:
    """Cells as they are ready, each measured in a process of its own."""
    context = multiprocessing.get_context("fork")
    waiting = collections.deque(wanted)
    running: dict[Connection, _Child] = {}
    while waiting or running:
        # Keep as many children at work as are wanted.
        while waiting and len(running) < processes:
            graph, command = waiting.popleft()
            answer, end = context.Pipe(duplex=False)
            process = context.Process(
                target=_measure_here, args=(graph, command, wanted_seconds, end)
            )
            process.start()
            end.close()
            until = time.monotonic() + _TIME_LIMIT_SECONDS
            running[answer] = _Child(process, graph, command, until)
        # Take what is ready, and end what takes too long.
        for answer in multiprocessing.connection.wait(list(running), timeout=1.0):
            child = running.pop(answer)  # type: ignore[arg-type]
            try:
                yield answer.recv()  # type: ignore[union-attr]
            except EOFError:
                yield Cell(child.graph, child.command, problem="died")
            child.process.join()
        for answer, child in list(running.items()):
            if time.monotonic() > child.until:
                del running[answer]
                child.process.kill()
                child.process.join()
                yield Cell(child.graph, child.command, problem="time")


def _cell_of(line: str) -> Cell:
    values = json.loads(line)
    return Cell(**{**values, "seconds": tuple(values["seconds"])})


def measure_all(
    wanted: Iterable[tuple[str, str]],
    wanted_seconds: float,
    results: pathlib.Path | None,
    processes: int,
) -> dict[tuple[str, str], Cell]:
    """All cells by graph and command; those in the file of results are not repeated."""
    known: dict[tuple[str, str], Cell] = {}
    if results is not None and results.exists():
        cells = map(_cell_of, results.read_text("utf-8").splitlines())
        known = {(cell.graph, cell.command): cell for cell in cells}
    wanted = list(wanted)
    missing = [cell for cell in wanted if cell not in known]
    for cell in _measured_apart(missing, wanted_seconds, processes):
        known[cell.graph, cell.command] = cell
        sys.stderr.write(f"{cell.graph:18} {cell.command:40.40} {cell.to_text()}\n")
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(cell)) + "\n")
    return {key: known[key] for key in wanted}


# -- the table ---------------------------------------------------------------


def table(cells: dict[tuple[str, str], Cell], *, markdown: bool) -> str:
    """A row for each command, a column for each graph."""
    graphs = list(dict.fromkeys(graph for graph, _ in cells))
    names = list(dict.fromkeys(command for _, command in cells))
    rows = [["command", *graphs]]
    if markdown:
        rows.append(["---"] * (len(graphs) + 1))
    rows += (
        [name, *(cells[graph, name].to_text() for graph in graphs)] for name in names
    )
    if markdown:
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True))
        + "\n"
        for row in rows
    )


def _chosen(text: str, known: Iterable[str], what: str) -> list[str]:
    """Names of a list with commas; all where it is empty."""
    known = list(known)
    if text in known:
        return [text]
    names = [name for name in text.split(",") if name] or known
    for name in names:
        if name not in known:
            raise SystemExit(f"no {what} {name}; there are: {', '.join(known)}")
    return names


def main() -> None:
    """Print the table, and how many figures are above the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", default="", help="passes and commands")
    parser.add_argument("--graphs", default="")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    names = _chosen(arguments.passes, commands(), "pass or command")
    graphs = _chosen(arguments.graphs, GRAPHS, "graph")
    cells = measure_all(
        ((graph, name) for name in names for graph in graphs),
        arguments.seconds,
        arguments.results,
        arguments.processes,
    )
    sys.stdout.write(table(cells, markdown=arguments.markdown))
    above = sum(cell.is_above_goal for cell in cells.values())
    sys.stdout.write(f"\n{above} of {len(cells)} grow by more than {GOAL}\n")


if __name__ == "__main__":
    main()
