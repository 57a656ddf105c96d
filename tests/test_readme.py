"""The README's commands print what it shows, and its Python runs.

python -m tests.test_readme     writes what they print now into README.md
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.modules import REPOSITORY

README = REPOSITORY / "README.md"
#: What the README lowers, recorded with the oldest release of JAX that is promised.
RECORDED = {"step.hlo": "step.h100_sxm.hlo", "faster.hlo": "faster.h100_sxm.hlo"}
_RELEASE = "0.10."
_SIMULATED = re.compile(r"^\$ (hlo-passes simulate .*)\n((?:(?![$`]).*\n)*)", re.M)


def _printed(command: str, folder: pathlib.Path) -> str:
    """What a shell prints in a folder, with progress and warnings left out."""
    beside = pathlib.Path(sys.executable).parent
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{beside}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "COLUMNS": "88",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _played(folder: pathlib.Path) -> str:
    """The README with what its simulations print now, of the recorded modules."""
    for name, recorded in RECORDED.items():
        shutil.copy(REPOSITORY / "docs" / "tutorial" / recorded, folder / name)
    return _SIMULATED.sub(
        lambda found: f"$ {found[1]}\n{_printed(found[1], folder)}",
        README.read_text(encoding="utf-8"),
    )


def test_the_simulations_print_what_is_shown(tmp_path: pathlib.Path) -> None:
    """If not: `python -m tests.test_readme`, and read the diff."""
    shown = README.read_text(encoding="utf-8")
    assert len(_SIMULATED.findall(shown)) == 2
    assert _played(tmp_path) == shown


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None
    or not importlib.metadata.version("jax").startswith(_RELEASE),
    reason="needs XLA's GPU compiler of the release that made the recorded modules",
)
def test_the_recorded_modules_are_what_lower_gives(tmp_path: pathlib.Path) -> None:
    (block,) = re.findall(
        r"```console\n\$ (XLA_FLAGS=(?s:.*?))\n\$", README.read_text(encoding="utf-8")
    )
    first = re.findall(r"^\$ (hlo-passes lower .*)$", README.read_text("utf-8"), re.M)[
        0
    ]
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    _printed(f"unset XLA_FLAGS; {first}; {block}", tmp_path)
    path = re.compile(r'"[^"]*docs/tutorial/fsdp\.py"')
    for name, recorded in RECORDED.items():
        lowered = path.sub('"docs/tutorial/fsdp.py"', (tmp_path / name).read_text())
        kept = REPOSITORY / "docs" / "tutorial" / recorded
        assert lowered == kept.read_text(encoding="utf-8")


def test_the_python_runs() -> None:
    block = README.read_text(encoding="utf-8").split("```python\n", 1)[1]
    done = subprocess.run(
        [sys.executable, "-c", block.split("```", 1)[0]],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, *exposed = done.stdout.splitlines()
    assert first == "already in this order: True"
    assert [row.split()[0] for row in exposed] == [
        "all-gather-start",
        "all-gather-start.1",
    ]


def test_a_reader_sees_it_in_thirty_seconds() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 120
    (picture,) = [line for line in lines if line.startswith("![")]
    assert (REPOSITORY / re.findall(r"\((.*?)\)", picture)[0]).is_file()


def test_the_first_command_runs_the_main_job_and_the_second_what_ci_runs() -> None:
    commands = re.findall(r"^\$ (.*)$", README.read_text(encoding="utf-8"), re.M)
    assert commands[0].endswith("&& sh examples/main_job.sh")
    tests = commands[1].rsplit("&& .venv/bin/python ", 1)[1]
    assert tests in (REPOSITORY / ".ci/run").read_text(encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        README.write_text(_played(pathlib.Path(made)), encoding="utf-8")
