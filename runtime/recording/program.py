"""Starts a program whose every Python process records, and waits for its end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.runtime.devices import device_count_flag, without_device_count
from hlo_passes.runtime.recording import bootstrap

#: What a shell adds to the number of the signal that ended a process.
_SIGNAL_EXIT_BASE: Final = 128


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that has ended.

    Attributes:
        exit_code: as a shell reports it.
        journal: what its processes noted, in the order of each: (process, note).
    """

    exit_code: int
    journal: tuple[tuple[int, dict[str, Any]], ...]


def require(command: Sequence[str]) -> None:
    """UsageError U001 if there is no such program."""
    if shutil.which(command[0]) is None:
        raise _cannot_start(command[0], "no such program")


def _cannot_start(name: str, why: str | None) -> UsageError:
    return UsageError(
        f"cannot start {name}: {why}",
        code="U001",
        hint="the program comes after --: hlo-passes capture -- python train.py",
    )


def run(
    command: Sequence[str], settings: dict[str, Any], *, devices: int | None
) -> Ran:
    """Run a command that records, with the standard streams of this process.

    Args:
        command: the program and its arguments.
        settings: of the recorder.
        devices: emulated ones for the program; None for what it has without us.

    Raises UsageError U001 if it cannot be started.
    """
    with tempfile.TemporaryDirectory(
        prefix="hlo-passes-capture-", ignore_cleanup_errors=True
    ) as name:
        start, journal = pathlib.Path(name, "start"), pathlib.Path(name, "journal")
        start.mkdir()
        journal.mkdir()
        shutil.copy(bootstrap.__file__, start / "sitecustomize.py")
        environment = _environment(start, settings | {"journal": str(journal)}, devices)
        with _signals_go_to_it() as children:
            try:
                sys.stdout.flush()  # what we said comes before what it says
                child = subprocess.Popen(command, env=environment)
            except OSError as problem:
                raise _cannot_start(command[0], problem.strerror) from problem
            children.append(child)
            code = child.wait()
        return Ran(_SIGNAL_EXIT_BASE - code if code < 0 else code, _read(journal))


def _environment(
    start: pathlib.Path, settings: dict[str, Any], devices: int | None
) -> dict[str, str]:
    path = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": f"{start}{os.pathsep}{path}" if path else str(start),
        bootstrap.VARIABLE: json.dumps(settings),
    }
    if devices is not None:
        flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
        environment["XLA_FLAGS"] = f"{flags} {device_count_flag(devices)}".strip()
        environment["JAX_PLATFORMS"] = "cpu"
    return environment


@contextlib.contextmanager
def _signals_go_to_it() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Leave Ctrl-C, which a terminal sends to both, and SIGTERM to the program."""
    children: list[subprocess.Popen[bytes]] = []

    def leave(_number: int, _frame: object) -> None:
        pass

    def pass_on(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)

    # A handler, unlike SIG_IGN, is not inherited by the program.
    handlers = {signal.SIGINT: leave, signal.SIGTERM: pass_on}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    before = {number: signal.signal(number, h) for number, h in handlers.items()}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read(journal: pathlib.Path) -> tuple[tuple[int, dict[str, Any]], ...]:
    files = sorted(journal.glob("*.jsonl"), key=lambda f: (f.stat().st_mtime, f.name))
    notes = []
    for file in files:
        for line in file.read_text().splitlines():
            # A process that was ended may have left half a line.
            with contextlib.suppress(ValueError):
                notes.append((int(file.stem), json.loads(line)))
    return tuple(notes)
