"""What we lower names the lines of the user's program and none of ours. Three seconds."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_passes
from hlo_passes import runtime, scheduler

PROGRAM = """import jax
import jax.numpy as jnp

def wave(devices):
    return jax.jit(lambda x: jnp.sin(x)), (jax.ShapeDtypeStruct((8,), jnp.float32),)
"""


def file_names(text: str) -> list[str]:
    table = text.partition("FileNames\n")[2].partition("\n\n")[0]
    return re.findall(r'^\d+ "(.*)"$', table, re.MULTILINE)


def test_a_lowered_function_names_no_file_of_ours(
    host_devices: Callable[[int], Sequence[Any]],
) -> None:
    host_devices(8)
    module = runtime.lower(jax.jit(lambda x: jnp.sin(x) + 1), np.float32(1))
    found = file_names(module.to_text())
    assert __file__ in found
    for package in (hlo_passes, scheduler, runtime):
        folder = f"{package.__path__[0]}/"
        assert not [name for name in found if name.startswith(folder)]


def test_the_command_names_the_program_alone(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, "-m", "hlo_passes", "lower", f"{program}:wave"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert file_names(done.stdout) == [str(program)]
