"""How a command starts: an interrupt during its imports, and what it does not import."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

import pytest

from hlo_passes.cli.command import SUMMARIES, command_targets, load_command


def command(folder: pathlib.Path, *start: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *start],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("library", ["dataclasses", "absl"])
def test_an_interrupt_while_importing_is_not_a_traceback(
    library: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / f"{library}.py").write_text("raise KeyboardInterrupt\n")
    done = command(tmp_path, "-m", "hlo_passes", "--help")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    done = command(tmp_path, "-c", "import hlo_passes.cli.main")
    assert "KeyboardInterrupt" in done.stderr


def test_other_errors_while_importing_are_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dataclasses.py").write_text("raise ValueError('broken')\n")
    done = command(tmp_path, "-m", "hlo_passes", "--help")
    assert done.returncode == 1
    assert "ValueError: broken" in done.stderr


def test_the_overview_loads_no_command_and_no_jax(tmp_path: pathlib.Path) -> None:
    for name in ("jax", "jaxlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('loaded')\n")
    done = command(tmp_path, "-m", "hlo_passes", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, summary in SUMMARIES.items():
        assert f"  {name:12} {summary}\n" in done.stdout


def test_every_command_has_its_line() -> None:
    assert {n: load_command(t).help for n, t in command_targets().items()} == SUMMARIES
