"""Starts the process that compiles, and starts another where it dies.

    with CompileProcess(program) as process:
        process.traced                             what JAX made of the program
        with process.answered(compiler_options(chosen, release), {...}) as found:
            ...                                    found.folder has XLA's files

XLA ends the process for some flags on some programs; that costs one evaluation.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Final

from hlo_passes import workers
from hlo_passes.errors import HloError
from hlo_passes.runtime.last_words import last_words
from hlo_passes.runtime.run_process import WorkerAnswerError, WorkerError
from hlo_passes.runtime.tuning.program import Traced, Tuned

#: Time in which a program is traced, and in which XLA compiles it.
DEFAULT_SECONDS: Final = 3600.0
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Answered:
    """What a process answered to a request to compile.

    Attributes:
        folder: with its files.
        fields: of its answer.
        problem: why there are no files, '' where there are.
        is_certain: whether the next attempt would end the same way; a process may have
            been killed, or too slow.
    """

    folder: str
    fields: dict[str, Any]
    problem: str = ""
    is_certain: bool = True


class CompileProcess:
    """A process with one traced program."""

    def __init__(
        self,
        program: Tuned,
        *,
        environment: Mapping[str, str] | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        """Start nothing yet.

        Args:
            program: to compile.
            environment: variables in addition to those of this process.
            seconds: the most that one answer may take.
        """
        self._program = program
        self._environment = dict(environment or {})
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._traced: Traced | None = None

    def __enter__(self) -> CompileProcess:
        """Itself; the process starts when it is needed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self.close()

    def close(self) -> None:
        """End the process, if one runs."""
        process, self._process = self._process, None
        if process is not None:
            workers.end(process)
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def traced(self) -> Traced:
        """What JAX made of the program.

        Raises:
            WorkerAnswerError: the program's own error, as the process words it.
            WorkerError: R006, the process died or took too long.
        """
        if self._traced is None:
            self._start()
        assert self._traced is not None, "a process that started has traced"
        return self._traced

    @contextlib.contextmanager
    def answered(
        self, options: Mapping[str, Any], more: Mapping[str, Any]
    ) -> Iterator[Answered]:
        """Compile; what the process left in the folder is there until the end.

        A process that dies has a problem, and no more.

        Args:
            options: flags by name.
            more: of the request.

        Raises the errors of `traced`.
        """
        if self._process is None:
            self._start()
        with tempfile.TemporaryDirectory(prefix="hlo-passes-tune-") as folder:
            request = {"options": dict(options), "folder": folder, **more}
            try:
                fields = self._ask(request)
            except WorkerError as problem:
                code = self._process.poll() if self._process is not None else None
                self.close()
                is_certain = code not in (None, -signal.SIGKILL, -signal.SIGTERM)
                yield Answered(folder, {}, problem.message, is_certain)
            else:
                problem = fields.get("message", "no message").splitlines()[0]
                yield Answered(folder, fields, problem if "error" in fields else "")

    def _start(self) -> None:
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._program.WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=workers.environment(**self._environment),
        )
        try:
            fields = self._ask(self._program.to_json())
            if "error" in fields:
                raise WorkerAnswerError(fields["error"], fields["code"])
        except HloError:
            self.close()
            raise
        self._traced = Traced(**fields)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a line and read one. Raises WorkerError R006."""
        process = self._process
        assert process is not None, "a process runs"
        assert process.stdin is not None, "its stdin is a pipe"
        # A process that has died does not read; its end is told below.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        return json.loads(self._line(process))

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None, "its stdout is a pipe"
        end = time.monotonic() + self._seconds
        found = b""
        while not found.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise WorkerError(
                    f"the process that compiles has not answered in "
                    f"{self._seconds:.0f} s"
                )
            part = os.read(process.stdout.fileno(), _CHUNK)
            if not part:
                raise WorkerError(
                    "XLA's process "
                    + workers.how_it_ended(process.wait())
                    + self._words()
                )
            found += part
        return found

    def _words(self) -> str:
        """What the process said last on stderr."""
        if self._log is None:
            return ""
        self._log.seek(0)
        last = last_words(self._log.read().decode(errors="replace"))
        return f": {last}" if last else ""


#: The process that compiles for this one, with its program.
_process: tuple[Tuned, CompileProcess] | None = None


def process_for(program: Tuned) -> CompileProcess:
    """This process's compiling process; one at a time."""
    global _process
    if _process is None or _process[0] != program:
        end_process()
        _process = program, CompileProcess(program)
    return _process[1]


def end_process() -> None:
    """End this process's compiling process."""
    global _process
    if _process is not None:
        _process[1].close()
        _process = None
