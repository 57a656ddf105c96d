"""Every example runs as written, and prints what it promises."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.modules import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
#: Lines that must be among those printed, by file.
KEY_LINES = {
    "01_rewrite_and_run.py": [
        "collective-permute-combiner: changed=True "
        "{'batches-combined': 1, 'collectives-combined': 2}",
        "collective-permute: (f32[8,4]{1,0}, s32[8]{0})",
        "bitwise equal on 8 devices: True",
    ],
    "02_write_a_pass.py": [
        "  ROOT %n = f32[8]{0} negate(%p)",
        "{'reshapes-removed': 1}",
    ],
    "03_in_the_compiler.py": [
        "fired 1, changed 1 of 1",
        "bitwise equal: True",
        "permutes with passes: 1",
        "permutes without: 2",
    ],
    "04_two_processes.py": [
        "process 0: 1 module changed, all agree",
        "process 1: 1 module changed, all agree",
    ],
    # Prints times where the plug-in is, and what is missing where it is not.
    "05_schedule_for_an_absent_gpu.py": [],
}


def test_every_example_has_key_lines() -> None:
    assert [file.name for file in EXAMPLES] == sorted(KEY_LINES)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example(file: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{file.name}"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for line in KEY_LINES[file.name]:
        assert line in printed
