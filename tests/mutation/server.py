"""Tests collected once; each mutant runs its tests in a fork of the process.

    python -m tests.mutation.server REQUESTS ANSWERS OPTION|TEST...

The first two are file descriptors. A line of JSON asks: `file`, `source` and `line` of a
mutant (or no `file`), `tests` by id, and `cpu`, the processor time in seconds that they
may take. A line answers: `verdict` is `passed`, `failed`, `too long`, or `not here`
where the mutant is not inside a function or a test is not known; `first` is the test
that failed. The first answer comes when the tests are collected.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import resource
import select
import signal
import sys
import time
from typing import IO, Any

import pytest

from tests.mutation.quick_settings import QuickSettings
from tests.mutation.swap import Place, loaded, swap

#: Wall time that a second of processor time may take on a busy machine.
_WALL = 20.0


class Server:
    """A plug-in of pytest: answers instead of running all tests."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[Place, list[Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until there are no more requests."""
        self._items = {item.nodeid: item for item in session.items}
        self._functions = loaded(pathlib.Path.cwd())
        gc.collect()
        gc.freeze()
        self._answer({"verdict": "ready", "first": ""})
        for line in self._requests:
            self._answer(self._fork(json.loads(line)))
        return True

    def _answer(self, answer: dict[str, str]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def _fork(self, request: dict[str, Any]) -> dict[str, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                os.close(reading)
                cpu = int(request["cpu"]) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
                os.write(writing, json.dumps(self._run(request)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        until = time.monotonic() + _WALL * request["cpu"]
        told = b""
        while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(reading, 65536)
            if not part:
                break
            told += part
            if told.endswith(b"}"):
                break
        os.close(reading)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return json.loads(told) if told else {"verdict": "too long", "first": ""}

    def _run(self, request: dict[str, Any]) -> dict[str, str]:
        items = [self._items.get(name) for name in request["tests"]]
        known = [item for item in items if item is not None]
        if len(known) < len(items):
            return {"verdict": "not here", "first": ""}
        if request.get("file") and not swap(
            self._functions, request["file"], request["source"], request["line"]
        ):
            return {"verdict": "not here", "first": ""}
        for item, following in zip(known, [*known[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                return {"verdict": "failed", "first": item.nodeid}
        return {"verdict": "passed", "first": ""}


def main(requests: str, answers: str, *arguments: str) -> int:
    """Collect, answer; the exit code."""
    with open(int(requests)) as reading, open(int(answers), "w") as writing:
        return pytest.main(
            [
                "-q", "--no-header", "--tb=native", "-p", "no:cacheprovider",
                "--hypothesis-seed=0", *arguments,
            ],
            [Server(reading, writing), QuickSettings()],
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
