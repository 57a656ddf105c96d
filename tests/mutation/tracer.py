"""Which lines of critical files each test executes, and how long it takes.

    python -m tests.mutation.tracer DATABASE FILE,FILE... TEST...

Runs the tests in this process, under `coverage`, with a context per test. A test that
takes more processor time than `MOST_SECONDS`, or that starts a process, is ended there:
it is none of the quick ones. Fixtures belong to the test that asks first.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import coverage
import pytest

from tests.mutation.quick_settings import QuickSettings

#: Of processor time, with the tracing: what takes longer is no quick test.
MOST_SECONDS = 3.0
#: The context of what runs before the first test and between tests.
OUTSIDE = ""


class NotQuickError(BaseException):
    """Ends a test that is not quick; no test catches it as an error of the program."""


class Tracer:
    """A plug-in of pytest.

    Attributes:
        seconds: of processor time, by test.
        slow: the tests that were ended.
    """

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = {}
        self.slow: set[str] = set()
        self._now = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """A context per test."""
        self._now = item.nodeid
        self.measured.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - began
            self.measured.switch_context(OUTSIDE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[Any]:
        """End what takes too long, or starts a process."""
        started = subprocess.Popen.__init__
        signal.signal(signal.SIGPROF, self.end)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        subprocess.Popen.__init__ = self.end  # type: ignore[method-assign]
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            subprocess.Popen.__init__ = started  # type: ignore[method-assign]

    def end(self, *_: object, **__: object) -> NoReturn:
        """Note that it is slow, and leave it.

        Raises:
            NotQuickError: always.
        """
        self.slow.add(self._now)
        raise NotQuickError


def main(database: str, files: str, *tests: str) -> int:
    """Run, and write the tables `tests` and `lines`; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "coverage")
        measured = coverage.Coverage(
            data_file=data, include=files.split(","), config_file=False
        )
        measured.start()
        tracer = Tracer(measured)
        pytest.main(
            [
                "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider",
                "--hypothesis-seed=0", f"--basetemp={folder}/tests", *tests,
            ],
            [tracer, QuickSettings()],
        )  # fmt: skip
        measured.stop()
        measured.save()
        _write(database, data, tracer)
    return 0


def _write(database: str, data: str, tracer: Tracer) -> None:
    read = sqlite3.connect(data)
    rows = read.execute(
        "select context.context, file.path, line_bits.numbits from line_bits "
        "join context on context.id = line_bits.context_id "
        "join file on file.id = line_bits.file_id"
    ).fetchall()
    read.close()
    top = os.path.realpath(os.getcwd())
    with sqlite3.connect(database) as write:
        write.execute("create table tests (node text, seconds real, slow integer)")
        write.execute("create table lines (node text, file text, numbits blob)")
        write.executemany(
            "insert into tests values (?, ?, ?)",
            [(n, s, n in tracer.slow) for n, s in tracer.seconds.items()],
        )
        write.executemany(
            "insert into lines values (?, ?, ?)",
            [(node, os.path.relpath(path, top), bits) for node, path, bits in rows],
        )
    write.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
