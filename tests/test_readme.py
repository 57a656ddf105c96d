"""The README's first screen is what its command prints, and its Python runs."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from tests.modules import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def _without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d+ s\b", "N s", text)


def _printed(command: str) -> str:
    commands = pathlib.Path(sys.executable).parent
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return _without_seconds(done.stdout)


def test_the_first_screen() -> None:
    shown = README.split("main_job.sh\n", 1)[1].split("```", 1)[0]
    printed = _printed("sh examples/main_job.sh")
    (REPOSITORY / "combined.hlo").unlink()
    assert printed == _without_seconds(shown)


def test_the_simulated_step() -> None:
    command, shown = README.split("$ COLUMNS=80 ", 1)[1].split("\n", 1)
    printed = _printed("COLUMNS=80 " + command)
    assert printed == _without_seconds(shown.split("```", 1)[0])


def test_the_python_runs() -> None:
    block = README.split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=True
    )
    assert "collective-permute(%a, %b), channel_id=1" in done.stdout


def test_ci_runs_the_command_of_the_readme() -> None:
    command = re.search(r"&& \.venv/bin/(python -m pytest .*)", README)
    assert command is not None
    assert command[1].removeprefix("python ") in (REPOSITORY / ".ci/run").read_text()
