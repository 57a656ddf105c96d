"""XLA's work on protos, in a process of its own.

    run_apart(TEXT, proto)           as `run_task` of proto_worker.py, but survives it

XLA checks a damaged proto with CHECKs here and there: one that fails ends the process
that reads the proto. One process is started for the first task, takes all others, and
ends with this one. After its death the next task starts another.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import threading
from typing import IO, Final

from hlo_passes import proto_worker, workers

_CHECK: Final = re.compile(r"Check failed: .*")


class XlaEndedError(Exception):
    """The process ended over a task; the text says why, as far as it did."""


class XlaRefusalError(Exception):
    """XLA's words about the data."""


class _Worker:
    """The process. Unbuffered streams: what is half-written must not wait for more."""

    def __init__(self) -> None:
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (it is closed in `end`)
        # Python finds jaxlib where this process does. Nothing else of its start is
        # needed (-S), and nothing may hide a module of the standard library (-P).
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", proto_worker.__file__],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def run(self, task: int, data: bytes) -> bytes:
        """The result; XlaEndedError, XlaRefusalError, ImportError."""
        # The process shares the place in the file: forget what it said before.
        self._words.seek(0)
        self._words.truncate()
        try:
            self._send(proto_worker.HEAD.pack(task, len(data)))
            self._send(data)
            kind, length = proto_worker.HEAD.unpack(
                self._receive(proto_worker.HEAD.size)
            )
            answer = self._receive(length)
        except (BrokenPipeError, EOFError) as problem:
            raise XlaEndedError(self._last_words()) from problem
        if kind == proto_worker.DONE:
            return answer
        said = answer.decode(errors="replace")
        raise (ImportError if kind == proto_worker.MISSING else XlaRefusalError)(said)

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._asked.write(rest) :]

    def _receive(self, length: int) -> bytes:
        answer = bytearray(length)
        place = memoryview(answer)
        while place:
            count = self._answers.readinto(place)  # type: ignore[attr-defined]
            if not count:
                raise EOFError
            place = place[count:]
        return bytes(answer)

    def _last_words(self) -> str:
        workers.end(self._process)
        self._words.seek(0)
        said = self._words.read().decode(errors="replace")
        failed = _CHECK.search(said)
        if failed:
            return failed[0]
        return f"XLA's process {workers.how_it_ended(self._process.returncode)}"

    def end(self) -> None:
        """End the process."""
        workers.end(self._process)
        self._words.close()

    def leave(self) -> None:
        """Close this side, where the process belongs to another."""
        self._asked.close()
        self._answers.close()
        self._words.close()


class _Apart:
    """The process of this one, if it has one, and whose turn it is."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.worker: _Worker | None = None

    def run(self, task: int, data: bytes) -> bytes:
        """As `run_apart`; the turn is the caller's."""
        worker = self.worker
        if worker is None or not worker.lives:
            self.end()
            worker = self.worker = _Worker()
        try:
            return worker.run(task, data)
        except (XlaRefusalError, ImportError):
            raise
        except BaseException:
            # It is dead; or its answer, after Ctrl-C, would come to whoever asks next.
            self.end()
            raise

    def end(self) -> None:
        """End the process."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end()

    def forget(self) -> None:
        """In a forked child: the process belongs to the parent."""
        worker, self.worker = self.worker, None
        self.turn = threading.Lock()
        if worker is not None:
            worker.leave()


_apart: Final = _Apart()
atexit.register(_apart.end)
os.register_at_fork(after_in_child=_apart.forget)


def run_apart(task: int, data: bytes) -> bytes:
    """Run one task of proto_worker.py in XLA's process.

    Raises:
        XlaEndedError: the process ended over it.
        XlaRefusalError: XLA refuses the data.
        ImportError: this jaxlib cannot do it.
    """
    with _apart.turn:
        return _apart.run(task, data)
