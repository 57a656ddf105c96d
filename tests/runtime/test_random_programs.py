"""A sample of the random JAX programs; `random_programs.py` runs many."""

from __future__ import annotations

import pathlib
import subprocess
import sys


def test_a_sample(tmp_path: pathlib.Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.runtime.random_programs", "--programs=5",
         "--seed=5", f"--failures={tmp_path}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not list(tmp_path.iterdir())
    assert "5 cases of random programs" in ran.stdout
    for stage in ("partitioned", "scheduled", "pre-scheduler", "post-scheduler"):
        assert stage in ran.stdout
