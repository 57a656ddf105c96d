"""Starts the worker process of `hlo-passes run`, and reads how it ended.

A rendezvous that never takes place ends the worker (XLA has no gentler way); it is then
started again with the log of XLA's collectives, to learn which devices are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hlo_passes import workers
from hlo_passes.errors import HloError
from hlo_passes.progress import Status, show_progress, tell
from hlo_passes.runtime import deadlock
from hlo_passes.runtime.devices import (
    RuntimeHostError,
    device_count_flag,
    without_device_count,
)
from hlo_passes.runtime.plain.stand_ins import Collective
from hlo_passes.runtime.run_request import Request, stage_file

#: After this much silence on stderr, print a line that says what is going on.
_PROGRESS_AFTER_SECONDS: Final = 1.0

#: What a shell adds to the number of the signal that ended a process.
_SIGNAL_EXIT_BASE: Final = 128

#: A second run is known to hang: a short wait shows where.
_TRACED_TIMEOUT_SECONDS: Final = 5


class DeadlockError(RuntimeHostError):
    """Devices wait for each other."""

    default_code = "R005"


class WorkerError(RuntimeHostError):
    """The process that ran the module ended badly, or not in time."""

    default_code = "R006"


class WorkerAnswerError(HloError):
    """An error that the worker has rendered already."""

    def __init__(self, rendered: str, exit_code: int) -> None:
        """Keep the text unchanged."""
        super().__init__(rendered)
        self.exit_code = exit_code

    def render(self) -> str:
        """The worker's own words."""
        return self.message


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """In this context SIGTERM unwinds the process, which ends worker and folder."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(_SIGNAL_EXIT_BASE + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(
    request: Request,
    collectives: Sequence[Collective],
    *,
    timeout_seconds: int,
    time_limit_seconds: int,
) -> dict[str, Any]:
    """Run a request in a separate process.

    Args:
        request: `answer` and the other files must be in a folder of their own.
        collectives: of the modules, for messages.
        timeout_seconds: how long a device waits for others in a collective.
        time_limit_seconds: for everything.

    Raises:
        DeadlockError: R005, with the collective and the missing devices.
        WorkerError: R006, the time is over or the process failed.
        HloError: an error that the worker reports.
    """
    code, log = _start(request, timeout_seconds, time_limit_seconds, {})
    answer = pathlib.Path(request.answer)
    if answer.exists():
        fields = json.loads(answer.read_text())
        if "error" in fields:
            raise WorkerAnswerError(fields["error"], code)
        return fields
    if deadlock.is_deadlock(log):
        tell(
            f"{request.name} hangs in a collective; running it once more to find the "
            "missing devices ...\n"
        )
        _, log = _start(
            request,
            min(timeout_seconds, _TRACED_TIMEOUT_SECONDS),
            time_limit_seconds,
            deadlock.LOG_ENVIRONMENT,
        )
        raise DeadlockError(
            deadlock.describe(deadlock.stuck(log), collectives),
            hint="every device of a group must reach its collectives in one order; "
            "look for a conditional or a loop that devices leave differently",
        )
    raise WorkerError(_last_words(code, log))


def _start(
    request: Request,
    timeout_seconds: int,
    time_limit_seconds: int,
    log_environment: dict[str, str],
) -> tuple[int, str]:
    folder = pathlib.Path(request.answer).parent
    request_path = folder / "request.json"
    request_path.write_text(json.dumps(dataclasses.asdict(request)))
    flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
    count = request.topology[0] * request.topology[1]
    xla_flags = f"{flags} {device_count_flag(count)} {deadlock.flags(timeout_seconds)}"
    log_path = folder / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hlo_passes.runtime.run_worker", str(request_path)],
            env=workers.environment(
                **log_environment, XLA_FLAGS=xla_flags.strip(), JAX_PLATFORMS="cpu"
            ),
            # Nothing is ever written: its end tells the worker that we are gone.
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        with workers.ended(process):
            code = _wait(process, request, time_limit_seconds)
    return code, log_path.read_text(errors="replace")


def _wait(
    process: subprocess.Popen[bytes], request: Request, limit_seconds: int
) -> int:
    start = time.monotonic()
    status = Status()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_PROGRESS_AFTER_SECONDS)
        count = request.topology[0] * request.topology[1]
        status.line(f"running {request.name} on {count} emulated devices ...")
        while (waited := time.monotonic() - start) < limit_seconds:
            left = limit_seconds - waited
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(_PROGRESS_AFTER_SECONDS, left))
            status.status(
                f"{request.name}: {_stage(request)}, {waited:.0f} s of at most "
                f"{limit_seconds} s"
            )
    finally:
        show_progress("")
    raise WorkerError(
        f"{request.name} did not end in {limit_seconds} seconds; it was "
        f"{_stage(request)}",
        hint="--time-limit-seconds allows more time; a loop may never end",
    )


def _stage(request: Request) -> str:
    """What the worker said last that it does."""
    try:
        return pathlib.Path(stage_file(request)).read_text() or "starting"
    except OSError:
        return "starting"


def _last_words(code: int, log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line[:1] == "F" or "Error" in line]
    last = (errors or lines or ["it printed nothing"])[-1].strip()
    how = workers.how_it_ended(code)
    return f"the process that ran the module {how}: {last[:300]}"
