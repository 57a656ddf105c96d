"""Mutants of critical code, each before the tests nearest to it.

    python -m tests.mutation [--mutants=400] [--seed=1] [--jobs=2] [--least=PERCENT]
        [--results=FILE] [--again=FILE] [--narrow] [--quick] [--limit=SECONDS]
        [--traces=FOLDER] [FILE|FOLDER ...]

Needs cosmic-ray (`pip install -e '.[test,mutation]'`). A line per mutant:

    killed    scheduler/checker/overlap.py:46  4 -> 5  tests/...::test_x, 3.2 s
    SURVIVED  ...
    equal     ...  the reason why nothing can tell it from the program

Those of the last kind are listed in `equivalent.jsonl`; they are not run, and do not
count as survivors. A mutant first meets the quickest tests that execute its line; for
this the nearest tests are traced once for each state of the tree, which is kept under
`--traces`. A survivor meets all of the nearest tests, then the wider ones too: `--narrow`
leaves out those, `--quick` both.
`--results` adds a line of JSON per mutant and leaves out those that it holds already,
so that a run that was ended goes on; `--again` runs the survivors of such a file once
more. Tests are timed without a mutant first, so that endless ones are ended; `--limit`
says how long instead. Exit code 1 when fewer than `--least` percent fall.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from tests.modules import REPOSITORY
from tests.mutation.equivalent import reason_of
from tests.mutation.mutants import Mutant, draw, remade
from tests.mutation.nearest import CRITICAL, WIDER, nearest_tests
from tests.mutation.quick import Quick
from tests.mutation.traces import Traces
from tests.mutation.trees import Tree

#: A mutant may loop without end: so many times as long as the untouched tests, and so
#: many seconds more.
_PATIENCE, _MORE = 4, 20
#: Where traces are kept from run to run.
_TRACES = pathlib.Path.home() / ".cache" / "hlo-passes-mutation"


def main() -> int:
    """Draw, run, count."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", default=CRITICAL, metavar="FILE|FOLDER")
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=95.0, metavar="PERCENT")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--again", type=pathlib.Path)
    parser.add_argument("--narrow", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--limit", type=float, metavar="SECONDS")
    parser.add_argument("--traces", type=pathlib.Path, default=_TRACES)
    options = parser.parse_args()
    if options.again:
        chosen = survivors(options.again)
    else:
        known = results(options.results)
        drawn = islice(
            draw(REPOSITORY, files(options.places), options.seed), options.mutants
        )
        chosen = [m for m in drawn if m.key not in known]
    rows = run(chosen, options)
    if options.results and not options.again:
        rows = [*results(options.results).values()]
    return summary(rows, options.least)


def files(places: Sequence[str]) -> list[str]:
    """Python files of the places, from the top of the repository."""
    found: list[str] = []
    for place in places:
        path = REPOSITORY / place
        inside = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not inside:
            raise SystemExit(f"{place}: no Python file there")
        found += [str(p.relative_to(REPOSITORY)) for p in inside]
    return found


def results(file: pathlib.Path | None) -> dict[str, dict[str, object]]:
    """Key -> row of a file of results."""
    if file is None or not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {str(row["key"]): row for row in rows}


def survivors(file: pathlib.Path) -> list[Mutant]:
    """The mutants of a file of results that no test noticed, if they can still be made."""
    found = []
    for row in results(file).values():
        if row["verdict"] == "SURVIVED":
            mutant = remade(
                REPOSITORY, str(row["key"]), str(row["before"]), str(row["after"])
            )
            if mutant is None:
                print(f"changed   {row['key']}: the file is another one now")
            else:
                found.append(mutant)
    return found


def run(
    mutants: Sequence[Mutant], options: argparse.Namespace
) -> list[dict[str, object]]:
    """Each mutant in one of so many trees; rows in the order in which they end.

    Raises:
        SystemExit: tests fail without a mutant.
    """
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    # Mutants with the same tests follow each other: those are collected once.
    for mutant in sorted(mutants, key=lambda m: nearest_tests(m.file)):
        waiting.put(mutant)
    ended: queue.SimpleQueue[dict[str, object] | SystemExit | None]
    ended = queue.SimpleQueue()
    limits = Limits(options.limit)
    jobs: int = options.jobs
    rounds = 0 if options.quick else 1 if options.narrow else 2

    def work() -> None:
        try:
            with Tree(REPOSITORY) as tree:
                traces = Traces(options.traces, tree.root, files(CRITICAL))
                with Quick(tree, traces) as quick:
                    for mutant in _drain(waiting):
                        ended.put(judge(tree, mutant, limits, quick, rounds))
        except SystemExit as failure:
            ended.put(failure)  # it would end this thread alone
        finally:
            ended.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    rows: list[dict[str, object]] = []
    while jobs:
        row = ended.get()
        if isinstance(row, SystemExit):
            raise row
        if row is None:
            jobs -= 1
            continue
        rows.append(row)
        print(
            f"{row['verdict']!s:<9} {row['file']}:{row['line']}  {row['before']}  ->  "
            f"{row['after']}  {row['test']}, {row['seconds']} s",
            flush=True,
        )
        if options.results:
            with options.results.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
    return rows


def _drain(waiting: queue.SimpleQueue[Mutant]) -> Iterator[Mutant]:
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


class Limits:
    """How long tests may take, from how long they take without a mutant."""

    def __init__(self, fixed: float | None = None) -> None:
        """Nothing was timed yet.

        Args:
            fixed: the limit of all tests, so that none is timed.
        """
        self._fixed = fixed
        self._seconds: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def of(self, tree: Tree, tests: tuple[str, ...]) -> float:
        """Seconds. The tree must be as the repository is.

        Raises:
            SystemExit: the tests fail without a mutant.
        """
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            if tests not in self._seconds:
                outcome = tree.run(tests, 3600.0)
                if outcome.verdict != "passed":
                    sys.stderr.write(outcome.output)
                    raise SystemExit(f"{' '.join(tests)}: fails without a mutant")
                self._seconds[tests] = outcome.seconds
            return self._seconds[tests] * _PATIENCE + _MORE


def judge(
    tree: Tree, mutant: Mutant, limits: Limits, quick: Quick, rounds: int
) -> dict[str, object]:
    """One mutant before its tests, as a row of the results.

    Args:
        tree: as the repository is.
        mutant: of the tree.
        limits: of the tests that run as a whole.
        quick: asks the first tests.
        rounds: how many of the nearest tests and the wider ones follow.
    """
    began = time.monotonic()
    reason = reason_of(mutant)
    if reason:
        return _row(mutant, "equal", reason, wider=False, began=began)
    outcome, wider = quick.judge(mutant), False
    for tests in (nearest_tests(mutant.file), WIDER)[:rounds]:
        if outcome is not None and outcome.verdict != "passed":
            break
        limit = limits.of(tree, tests)
        tree.write(mutant.file, mutant.source)
        outcome = tree.run(tests, limit)
        tree.restore(mutant.file)
        wider = tests is WIDER and outcome.verdict != "passed"
    passed = outcome is None or outcome.verdict == "passed"
    return _row(
        mutant,
        "SURVIVED" if passed else "killed",
        "" if outcome is None else outcome.first or outcome.verdict,
        wider=wider,
        began=began,
    )


def _row(
    mutant: Mutant, verdict: str, test: str, *, wider: bool, began: float
) -> dict[str, object]:
    return {
        "key": mutant.key,
        "verdict": verdict,
        "file": mutant.file,
        "line": mutant.line,
        "before": mutant.before,
        "after": mutant.after,
        "test": test,
        "wider": wider,
        "seconds": round(time.monotonic() - began, 1),
    }


def summary(rows: Sequence[dict[str, object]], least: float) -> int:
    """Print the counts; the exit code."""
    killed = [r for r in rows if r["verdict"] == "killed"]
    equal = sum(r["verdict"] == "equal" for r in rows)
    count = len(rows) - equal
    share = 100.0 * len(killed) / count if count else 100.0
    wider = sum(bool(r["wider"]) for r in killed)
    print(
        f"{count} mutants, {len(killed)} killed ({share:.1f}%, {wider} of them by "
        f"the wider tests), {count - len(killed)} survived; {equal} more change no "
        "behaviour"
    )
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())
