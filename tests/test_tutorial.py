"""The tutorial's commands run, and print what the tutorial shows.

python -m tests.test_tutorial     writes what they print now into docs/tutorial.md
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.modules import REPOSITORY

TUTORIAL = REPOSITORY / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: What depends on the machine: seconds, the last bits of sums, and progress.
_MACHINE = re.compile(r"\d+\.\d+ s$|(?<=sha256 )[0-9a-f]+", re.MULTILINE)
#: ... and what JAX logs where its CUDA plug-in finds no GPU.
_PROGRESS = re.compile(
    r"^(?:sweep: |running |lowering |WARNING: All log messages |[IWE]\d{4} ).*\n",
    re.MULTILINE,
)
#: Names of instructions are those of this release of JAX.
_RELEASE = "0.10."


def _commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def _run(command: str, folder: pathlib.Path) -> str:
    """What a command prints, progress left out."""
    shim = folder / "bin" / "hlo-passes"
    if not shim.exists():
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hlo_passes "$@"\n')
        shim.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{shim.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "COLUMNS": "88",
            "XLA_FLAGS": "",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return _PROGRESS.sub("", done.stdout)


def _played(folder: pathlib.Path) -> str:
    """The tutorial with what its commands print now."""
    shutil.copy(REPOSITORY / "docs" / "tutorial" / "fsdp.py", folder)

    def play(found: re.Match[str]) -> str:
        said = "".join(f"$ {c}\n{_run(c, folder)}" for c in _commands(found[1]))
        return f"```console\n{said}```"

    return _BLOCK.sub(play, TUTORIAL.read_text(encoding="utf-8"))


def test_the_commands_print_what_the_tutorial_shows(tmp_path) -> None:
    played = _played(tmp_path)
    if not importlib.metadata.version("jax").startswith(_RELEASE):
        pytest.skip("they run; what they print is that of another release of JAX")
    shown = TUTORIAL.read_text(encoding="utf-8")
    assert _MACHINE.sub("N", played) == _MACHINE.sub("N", shown)


def test_the_code_shown_is_the_code_run() -> None:
    shown = TUTORIAL.read_text(encoding="utf-8").split("```python\n", 1)[1]
    source = (REPOSITORY / "docs" / "tutorial" / "fsdp.py").read_text()
    assert shown.split("```", 1)[0] in source


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        TUTORIAL.write_text(_played(pathlib.Path(made)), encoding="utf-8")
