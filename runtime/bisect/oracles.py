"""Ways to decide whether a pass did harm: a run, a script, or a crash of the pass.

RunOracle      both modules on emulated devices, results compared bit for bit
ScriptOracle   SCRIPT AFTER BEFORE: exit code 0 good, 125 unknown, otherwise bad
CrashOracle    no further check: only a pass that fails is bad
"""

from __future__ import annotations

import json
import pathlib
import select
import subprocess
import sys
import tempfile
from typing import Any, Protocol

from hlo_passes.errors import UsageError
from hlo_passes.files import require_file
from hlo_passes.ir.module import Module
from hlo_passes.runtime import workers
from hlo_passes.runtime.bisect.judgment import GOOD, Judgment, bad, untried

#: Exit code of a script that cannot tell, as for `git bisect run`.
_CANNOT_TELL = 125
#: The mark of the worker's answers among anything else on its stdout.
ANSWER = "judgment "
#: Time in which a worker starts JAX.
_START_SECONDS = 120.0


class Oracle(Protocol):
    """Judges a module and the result of passes for it."""

    def judge(self, before: Module, after: Module) -> Judgment:
        """Whether `after` is as good as `before`."""
        ...

    def close(self) -> None:
        """End any process that was started."""
        ...


class CrashOracle:
    """Accepts every result of a pass."""

    def judge(self, before: Module, after: Module) -> Judgment:
        """Accept it."""
        del before, after
        return GOOD

    def close(self) -> None:
        """Do nothing: no process was started."""


class ScriptOracle:
    """A program that receives the files AFTER and BEFORE."""

    def __init__(self, script: str, timeout_seconds: float) -> None:
        """`script`: a path.

        Raises UsageError U001 if there is no such file.
        """
        require_file(script)
        self._script = str(pathlib.Path(script).resolve())
        self._timeout_seconds = timeout_seconds

    def judge(self, before: Module, after: Module) -> Judgment:
        """The judgment of the script's exit code."""
        with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
            files = _written(pathlib.Path(folder), after=after, before=before)
            try:
                done = subprocess.run(
                    [self._script, *files],
                    check=False,
                    timeout=self._timeout_seconds,
                    stdout=subprocess.DEVNULL,
                )
            except subprocess.TimeoutExpired:
                return bad("the script does not end")
            except OSError as problem:
                raise UsageError(
                    f"{self._script} cannot be run: {problem.strerror}", code="U001"
                ) from problem
        if done.returncode == 0:
            return GOOD
        if done.returncode == _CANNOT_TELL:
            return untried("the script cannot tell")
        return bad("the script refuses it")

    def close(self) -> None:
        """Do nothing: the script leaves nothing behind."""


class RunOracle:
    """Runs both modules in a separate process, which is reused for most trials."""

    def __init__(self, devices: int, seed: int, timeout_seconds: float) -> None:
        """`timeout_seconds` is the limit for one trial, including compilation."""
        self._devices = devices
        self._seed = seed
        self._timeout_seconds = timeout_seconds
        self._worker: subprocess.Popen[str] | None = None

    def judge(self, before: Module, after: Module) -> Judgment:
        """Whether both give the same bits."""
        with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
            files = _written(pathlib.Path(folder), after=after, before=before)
            worker = self._started()
            assert worker.stdin is not None
            try:
                worker.stdin.write(json.dumps(files) + "\n")
                worker.stdin.flush()
            except BrokenPipeError:
                return self._ended()
            answer = self._answer(worker, self._timeout_seconds)
        if answer is None:
            return self._ended()
        return Judgment(**answer)

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            workers.end(worker)

    def _started(self) -> subprocess.Popen[str]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                [
                    sys.executable, "-m", "hlo_passes.runtime.bisect.worker",
                    str(self._devices), str(self._seed),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=workers.environment(),
            )  # fmt: skip
            if self._answer(self._worker, _START_SECONDS) is None:
                self.close()
                raise UsageError("the process that runs modules did not start")
        return self._worker

    def _answer(
        self, worker: subprocess.Popen[str], seconds: float
    ) -> dict[str, Any] | None:
        """The worker's next answer; None if it died or took too long."""
        assert worker.stdout is not None
        while True:
            ready, _, _ = select.select([worker.stdout], [], [], seconds)
            line = worker.stdout.readline() if ready else ""
            if not line:
                return None
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))

    def _ended(self) -> Judgment:
        """The judgment for a worker that died or does not answer."""
        worker = self._worker
        hung = worker is not None and worker.poll() is None
        self.close()
        return bad("it does not end" if hung else "it ends the process that runs it")


def _written(folder: pathlib.Path, *, after: Module, before: Module) -> list[str]:
    """Writes files of both modules: after, before."""
    files = []
    for name, module in (("after", after), ("before", before)):
        file = folder / f"{name}.hlo"
        file.write_text(module.to_text())
        files.append(str(file))
    return files
