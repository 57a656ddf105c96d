"""Ways to decide whether a pass did harm: a run, a script, or a crash of the pass.

RunOracle      both modules on emulated devices, results compared bit for bit
ScriptOracle   SCRIPT AFTER BEFORE: exit code 0 good, 125 unknown, otherwise bad
CrashOracle    no further check: only a pass that fails is bad

What takes long is not what never ends. Both oracles that run something first measure
how long the untouched module takes. They call a result endless if it takes many times
as long, and, where the machine may be busy, only after the untouched module has been
measured again.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from hlo_passes import workers
from hlo_passes.errors import UsageError
from hlo_passes.files import require_file
from hlo_passes.ir.module import Module
from hlo_passes.runtime import deadlock
from hlo_passes.runtime.bisect.judgment import (
    GOOD,
    Judgment,
    TimeIsUpError,
    bad,
    untried,
)
from hlo_passes.runtime.work import cpu_seconds_at_least

#: Exit code of a script that cannot tell, as for `git bisect run`.
_CANNOT_TELL: Final = 125
#: The mark of the worker's answers among anything else on its stdout.
ANSWER: Final = "judgment "
#: The parent's word after which the worker runs the result of the passes.
GO_ON: Final = "go on"
#: Time in which a worker starts JAX.
_START_SECONDS: Final = 120.0
#: The result of passes may take this many times as long as the untouched module, but
#: not less than so many seconds.
_TIMES_AS_LONG: Final = 10.0
_LEAST_SECONDS: Final = 5.0
#: A result is endless if it took this many times as long as the untouched module, which
#: was measured again after it.
_SURELY: Final = 3.0
#: How often a result is tried before the machine counts as too busy to tell.
_ATTEMPTS: Final = 3
#: How often something that takes long is reported.
_TICK_SECONDS: Final = 1.0
#: Devices of a slow program may wait long for each other. A deadlock, too, is then
#: found by the limit of the trial.
_RENDEZVOUS_SECONDS: Final = 7 * 24 * 3600

#: Called about once a second with what is going on.
Waiting = Callable[[str], None]


class Oracle(Protocol):
    """Judges a module and the result of passes for it."""

    def judge(self, before: Module, after: Module, left_seconds: float) -> Judgment:
        """Whether `after` is as good as `before`.

        Raises TimeIsUpError if `left_seconds` pass first.
        """
        ...

    def close(self) -> None:
        """End any process that was started."""
        ...


class CrashOracle:
    """Accepts every result of a pass."""

    def judge(self, before: Module, after: Module, left_seconds: float) -> Judgment:
        """Accept it."""
        del before, after, left_seconds
        return GOOD

    def close(self) -> None:
        """Do nothing: no process was started."""


class ScriptOracle:
    """A program that receives the files AFTER and BEFORE."""

    def __init__(
        self,
        script: str,
        timeout_seconds: float | None = None,
        *,
        least_seconds: float = _LEAST_SECONDS,
        waiting: Waiting = lambda text: None,
    ) -> None:
        """See `RunOracle` for the limits; `script` is a path.

        Raises UsageError U001 if there is no such file.
        """
        require_file(script)
        self._script = str(pathlib.Path(script).resolve())
        self._timeout_seconds = timeout_seconds
        self._least_seconds = least_seconds
        self._waiting = waiting
        #: Seconds of the first call, which was for an untouched module.
        self._untouched: float | None = None

    def judge(self, before: Module, after: Module, left_seconds: float) -> Judgment:
        """The judgment of the script's exit code.

        The first call is preceded by one with the untouched module in both places.

        Raises:
            UsageError: U001, the script cannot be run; U040, it refuses the untouched
                module.
            TimeIsUpError: `left_seconds` passed first.
        """
        until = time.monotonic() + left_seconds
        with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
            files = _written(pathlib.Path(folder), after=after, before=before)
            if self._untouched is None:
                refused = self._measure(files[1], until)
                if refused is not None:
                    return refused
            assert self._untouched is not None
            enough = _enough(self._untouched, self._least_seconds)
            limit = self._timeout_seconds or enough
            start = time.monotonic()
            code = self._call(files, limit, until, "the script runs")
        if code is None:
            detail = f"not in {limit:.1f} s; the first call took {self._untouched:.1f}"
            if time.monotonic() - start < enough:
                return untried("the script is too slow to tell", detail)
            return bad("the script does not end", detail)
        if code == 0:
            return GOOD
        if code == _CANNOT_TELL:
            return untried("the script cannot tell")
        return bad("the script refuses it")

    def _measure(self, file: str, until: float) -> Judgment | None:
        """Call the script for an untouched module; the judgment if that settles it."""
        start = time.monotonic()
        limit = self._timeout_seconds or float("inf")
        code = self._call([file, file], limit, until, "the script runs, untouched")
        if code is None:
            return untried("the script does not end for the untouched module")
        if code not in (0, _CANNOT_TELL):
            raise UsageError(
                f"the script refuses the untouched module, too (exit code {code})",
                code="U040",
                hint="it is called with the files AFTER BEFORE; here both are the same",
            )
        self._untouched = time.monotonic() - start
        return None

    def _call(
        self, files: list[str], limit: float, until: float, what: str
    ) -> int | None:
        """The exit code of a call; None if it takes longer than its limit."""
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                [self._script, *files], stdout=subprocess.DEVNULL
            )
        except OSError as problem:
            raise UsageError(
                f"{self._script} cannot be run: {problem.strerror}", code="U001"
            ) from problem
        with workers.ended(process):
            while True:
                now = time.monotonic()
                if now >= until:
                    raise TimeIsUpError
                if now - start >= limit:
                    return None
                tick = min(_TICK_SECONDS, until - now, start + limit - now)
                try:
                    return process.wait(tick)
                except subprocess.TimeoutExpired:
                    self._waiting(f"{what}, {time.monotonic() - start:.0f} s")

    def close(self) -> None:
        """Do nothing: the script leaves nothing behind."""


class RunOracle:
    """Runs both modules in a separate process, which is reused for most trials."""

    def __init__(
        self,
        devices: int,
        seed: int,
        timeout_seconds: float | None = None,
        *,
        least_seconds: float = _LEAST_SECONDS,
        waiting: Waiting = lambda text: None,
    ) -> None:
        """Start nothing yet.

        Args:
            devices: emulated ones.
            seed: of the inputs.
            timeout_seconds: limit for one run of one module, compilation included;
                None: an untouched module may take as long as it needs, the result of
                passes ten times as long.
            least_seconds: the shortest limit for the result of passes.
            waiting: called about once a second while a module runs.
        """
        self._devices = devices
        self._seed = seed
        self._timeout_seconds = timeout_seconds
        self._least_seconds = least_seconds
        self._waiting = waiting
        self._worker: subprocess.Popen[bytes] | None = None
        self._read = b""
        #: Seconds of the first untouched module that ran: the others are parts of it.
        self._first_untouched: float | None = None

    def judge(self, before: Module, after: Module, left_seconds: float) -> Judgment:
        """Whether both give the same bits.

        Raises TimeIsUpError if `left_seconds` pass first.
        """
        until = time.monotonic() + left_seconds
        allowed = self._timeout_seconds or left_seconds
        needed = cpu_seconds_at_least(before, self._devices)
        if needed > allowed:
            return untried(
                "it is too large for this CPU",
                f"{needed:.0f} s at least, {allowed:.0f} are left",
            )
        # Of a result that did not end in time, try once more: the machine may be busy.
        exceeded: float | None = None
        for _ in range(_ATTEMPTS):
            outcome = self._attempt(before, after, exceeded, until)
            if isinstance(outcome, Judgment):
                return outcome
            exceeded = outcome
        return untried("this machine is too busy to tell whether it ends")

    def _attempt(
        self, before: Module, after: Module, exceeded: float | None, until: float
    ) -> Judgment | float:
        """One run of both; a limit in seconds where the second exceeded it.

        `exceeded` is the limit of the attempt before this one.
        """
        with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
            files = _written(pathlib.Path(folder), after=after, before=before)
            self._start(until)
            # Run the untouched module and measure it.
            self._send(json.dumps(files))
            answer = self._answer(
                self._limit_of_untouched(), until, "the untouched module runs"
            )
            if answer is None:
                dead = self._is_dead()
                self.close()
                return untried(
                    "the untouched module ends the process that runs it"
                    if dead
                    else "the untouched module does not end in time"
                )
            if "seconds" not in answer:
                return Judgment(**answer)
            untouched: float = answer["seconds"]
            if self._first_untouched is None:
                self._first_untouched = untouched
            if exceeded is not None and untouched * _SURELY <= exceeded:
                self.close()
                return _endless(exceeded, untouched)
            # Run the result of the passes for a multiple of that time.
            enough = _enough(untouched, self._least_seconds)
            limit = self._timeout_seconds or enough
            self._send(GO_ON)
            answer = self._answer(limit, until, "the result of the passes runs")
            if answer is not None and "seconds" in answer:
                # The results differ: the worker runs the first module again.
                answer = self._answer(limit, until, "the untouched module runs again")
                if answer is None:
                    self.close()
                    return untried("the untouched module takes longer the second time")
            if answer is not None:
                return Judgment(**answer)
            dead = self._is_dead()
            self.close()
            if dead:
                return bad("it ends the process that runs it")
            if limit < enough:
                return untried(
                    "the result takes longer than the limit, as a slow program may",
                    f"limit {limit:.0f} s; the untouched module takes {untouched:.1f} "
                    f"s, {enough:.0f} s would tell",
                )
            return limit

    def _limit_of_untouched(self) -> float:
        """Seconds that an untouched module may take."""
        limit = self._timeout_seconds or float("inf")
        if self._first_untouched is None:
            return limit
        # Reduction may make a loop of the untouched module endless.
        enough = _enough(self._first_untouched, self._least_seconds)
        return min(limit, enough)

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        self._read = b""
        if worker is not None:
            workers.end(worker)

    def _start(self, until: float) -> None:
        if self._worker is not None and self._worker.poll() is None:
            return
        self.close()
        flags = os.environ.get("XLA_FLAGS", "")
        self._worker = subprocess.Popen(
            [
                sys.executable, "-m", "hlo_passes.runtime.bisect.worker",
                str(self._devices), str(self._seed),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=workers.environment(
                XLA_FLAGS=f"{flags} {deadlock.flags(_RENDEZVOUS_SECONDS)}".strip()
            ),
        )  # fmt: skip
        if self._answer(_START_SECONDS, until, "JAX starts") is None:
            self.close()
            raise UsageError("the process that runs modules did not start")

    def _send(self, line: str) -> None:
        """Write a line to the worker; whether it still reads shows in its answer."""
        assert self._worker is not None
        assert self._worker.stdin is not None
        try:
            self._worker.stdin.write(line.encode() + b"\n")
            self._worker.stdin.flush()
        except BrokenPipeError:
            pass

    def _answer(self, limit: float, until: float, what: str) -> dict[str, Any] | None:
        """The worker's next answer; None if it died or took too long."""
        assert self._worker is not None
        assert self._worker.stdout is not None
        start = time.monotonic()
        while True:
            *lines, self._read = self._read.split(b"\n")
            for number, line in enumerate(lines):
                if line.startswith(ANSWER.encode()):
                    self._read = b"\n".join([*lines[number + 1 :], self._read])
                    return json.loads(line.removeprefix(ANSWER.encode()))
            now = time.monotonic()
            if now >= until:
                self.close()
                raise TimeIsUpError
            if now - start >= limit:
                return None
            tick = min(_TICK_SECONDS, until - now, start + limit - now)
            if select.select([self._worker.stdout], [], [], tick)[0]:
                read = os.read(self._worker.stdout.fileno(), 1 << 16)
                if not read:
                    return None
                self._read += read
            else:
                self._waiting(f"{what}, {time.monotonic() - start:.0f} s")

    def _is_dead(self) -> bool:
        """Whether the worker has ended by itself; it closes its streams first."""
        assert self._worker is not None
        try:
            self._worker.wait(0.5)
        except subprocess.TimeoutExpired:
            return False
        return True


def _enough(untouched_seconds: float, least_seconds: float) -> float:
    """After this many seconds a module counts as endless."""
    return max(least_seconds, _TIMES_AS_LONG * untouched_seconds)


def _endless(limit: float, untouched: float) -> Judgment:
    return bad(
        "it does not end",
        f"not in {limit:.0f} s; the untouched module takes {untouched:.1f} s",
    )


def _written(folder: pathlib.Path, *, after: Module, before: Module) -> list[str]:
    """Writes files of both modules: after, before."""
    files = []
    for name, module in (("after", after), ("before", before)):
        file = folder / f"{name}.hlo"
        file.write_text(module.to_text())
        files.append(str(file))
    return files
