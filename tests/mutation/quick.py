"""The quickest tests that execute a mutant's line, before all others.

They run in a fork of a process that has collected them, so that nothing is imported
again for a mutant inside a function; other mutants meet the same tests in a process of
their own. A test that fails with a mutant is run without it, too, once, in the same way:
one that needs what other tests prepare says nothing here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

from tests.mutation.mutants import Mutant
from tests.mutation.nearest import nearest_tests
from tests.mutation.traces import Traces
from tests.mutation.trees import Outcome, Tree, environment, without_plug_in

#: Seconds of processor time, as traced, of the tests that a mutant meets first.
MOST_SECONDS = 10.0
#: A mutant may loop without end: so many times as long, and so many seconds more.
_PATIENCE, _MORE = 4, 10
_tracing = threading.Lock()


class Quick:
    """The first round of the mutants of one tree; a context that ends its process."""

    def __init__(self, tree: Tree, traces: Traces) -> None:
        self._tree, self._traces = tree, traces
        self._tests: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: IO[str]
        self._answers: IO[str]

    def __enter__(self) -> Quick:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def judge(self, mutant: Mutant) -> Outcome | None:
        """What the first tests say; None where there are none.

        The tree is left as it was.
        """
        tests = nearest_tests(mutant.file)
        with _tracing:
            self._traces.trace(tests, without_plug_in(tests))
        chosen = self._traces.first_tests(mutant, tests, MOST_SECONDS)
        forked = not self._traces.executes_outside(mutant)
        while chosen:
            names = [name for name, _ in chosen]
            cpu = sum(seconds for _, seconds in chosen) * _PATIENCE + _MORE
            if forked:
                self._start(tests)  # before the mutant is there to be imported
            self._tree.write(mutant.file, mutant.source)
            try:
                found = self._ask(names, cpu, mutant) if forked else None
                if found is None:
                    forked = False
                    found = self._tree.run(names, 20 * cpu)
            finally:
                self._tree.restore(mutant.file)
            if not found.first or self._is_sound(names, found.first, forked, cpu):
                return found
            chosen = [one for one in chosen if one[0] != found.first]
        return None

    def _is_sound(
        self, names: Sequence[str], failed: str, forked: bool, cpu: float
    ) -> bool:
        """Whether the test passes without the mutant after the tests before it."""
        if failed not in names or self._traces.passes(failed):
            return True
        before = names[: names.index(failed) + 1]
        found = self._ask(before, cpu) if forked else self._tree.run(before, 20 * cpu)
        if found is None or found.verdict != "passed":
            return False
        self._traces.note_pass(failed)
        return True

    def _ask(
        self, names: Sequence[str], cpu: float, mutant: Mutant | None = None
    ) -> Outcome | None:
        """The server's answer; None where the mutant cannot be put into it."""
        request: dict[str, Any] = {"tests": names, "cpu": cpu}
        if mutant:
            request |= {
                "file": mutant.file, "source": mutant.source, "line": mutant.line,
            }  # fmt: skip
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        answer = json.loads(self._answers.readline())
        if answer["verdict"] == "not here":
            return None
        return Outcome(answer["verdict"], answer["first"], 0.0, "")

    def _start(self, tests: tuple[str, ...]) -> None:
        if tests == self._tests:
            return
        self._end()
        (asked, asking), (told, telling) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.mutation.server", str(asked), str(telling),
                f"--basetemp={self._tree.root.parent / 'basetemp'}",
                *without_plug_in(tests), *tests,
            ],
            cwd=self._tree.root, env=environment(self._tree.root), pass_fds=(asked, telling),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(asked)
        os.close(telling)
        self._requests, self._answers = open(asking, "w"), open(told)  # noqa: SIM115
        if not self._answers.readline():
            raise SystemExit(f"{' '.join(tests)}: cannot be collected")
        self._tests = tests

    def _end(self) -> None:
        if self._process is not None:
            self._requests.close()
            self._process.wait()
            self._answers.close()
            self._process = None
            self._tests = ()
