"""Worker processes find the package, and end when they are told to."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import hlo_passes
from hlo_passes import workers
from tests.modules import REPOSITORY

_SLEEP = (sys.executable, "-c", "input()")


def test_a_worker_finds_an_installed_package_and_nothing_inside_it(
    tmp_path: pathlib.Path,
) -> None:
    # As a wheel has them: folders of the package in place of links.
    shutil.copytree(REPOSITORY / "hlo_passes", tmp_path / "hlo_passes")
    asked = """if True:
        from hlo_passes import workers
        print(workers.environment()["PYTHONPATH"])
    """
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().split(os.pathsep)[0] == str(tmp_path)


def test_the_environment_is_this_one_and_what_is_added() -> None:
    found = workers.environment(XLA_FLAGS="--a")
    assert found["XLA_FLAGS"] == "--a"
    assert found["PATH"] == os.environ["PATH"]
    folder, *_ = found["PYTHONPATH"].split(os.pathsep)
    assert pathlib.Path(folder, "hlo_passes") == pathlib.Path(hlo_passes.__path__[0])


def test_a_worker_that_runs_is_killed_whatever_happens() -> None:
    process = subprocess.Popen(
        _SLEEP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with workers.ended(process):
            assert process.stdin is not None
            process.stdin.write("not read any more")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert process.returncode == -9
    assert process.stdin.closed
    assert workers.how_it_ended(process.returncode) == "was ended by signal 9"


def test_a_worker_that_has_ended_keeps_its_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    process.wait()
    workers.end(process)
    workers.end(process)
    assert workers.how_it_ended(process.returncode) == "ended with 3"


def test_a_lock_that_an_interrupt_left_taken_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a KeyboardInterrupt inside `Popen.poll` leaves it, for a moment's bad luck."""
    monkeypatch.setattr(workers, "_KILLED_SECONDS", 0.5)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    lock = process._waitpid_lock  # type: ignore[attr-defined]
    lock.acquire()
    workers.end(process)
    lock.release()
    assert process.wait() == -signal.SIGKILL
