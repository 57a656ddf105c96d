"""Commands where jax cannot be imported: one message, and no JAX no trouble."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.modules import REPOSITORY

#: What the package does when it is imported, and what the message says.
BROKEN = {
    "mismatched": ("jax", 'raise RuntimeError("jaxlib 0.12 does not fit jax 0.10")',
                   "jaxlib 0.12 does not fit jax 0.10"),
    "missing": ("jax", 'raise ModuleNotFoundError("No jaxlib", name="jaxlib")',
                "No jaxlib"),
    "broken": ("jaxlib", 'raise ImportError("libx.so: not found")', "libx.so: not found"),
}  # fmt: skip
MODULE = str(REPOSITORY / "docs" / "simulator.hlo")


def command(tmp_path, broken, *arguments):
    package, text, _ = BROKEN[broken]
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", *arguments],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("broken", BROKEN)
def test_error_a_command_that_needs_jax(tmp_path, broken):
    program = str(REPOSITORY / "docs" / "tutorial" / "fsdp.py")
    done = command(tmp_path, broken, "lower", f"{program}:step", "--target=h100_sxm")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        f"error[R013]: jax cannot be imported: {BROKEN[broken][2]}\n"
        "  help: jax and jaxlib must be of one release: pip install -U jax jaxlib\n"
    )


@pytest.mark.parametrize("broken", BROKEN)
def test_error_a_worker_that_needs_jax(tmp_path, broken):
    done = command(tmp_path, broken, "run", MODULE)
    assert done.returncode == 5
    assert "error[R006]: the process that ran the module ended with" in done.stderr
    assert BROKEN[broken][2] in done.stderr
    assert "Traceback" not in done.stderr


def test_error_a_reader_that_needs_jax(tmp_path):
    stablehlo = tmp_path / "m.mlir"
    stablehlo.write_text("module {}\n")
    done = command(tmp_path, "mismatched", "verify", str(stablehlo))
    assert done.returncode == 5
    assert "error[R013]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_without_jax_works(tmp_path):
    assert command(tmp_path, "mismatched", "simulate", MODULE).returncode == 0
