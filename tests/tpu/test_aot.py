"""Compiling for TPUs that are not there; most of it needs `libtpu`, which users install."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import pytest

from hlo_passes import UsageError, runtime
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.tpu_aot import grid_to_compile_for
from hlo_passes.runtime.tpu_program import CompiledForTpu, flags_of
from tests.modules import REPOSITORY
from tests.tpu.judge import judged

HAS_LIBRARY = importlib.util.find_spec("libtpu") is not None
needs_library = pytest.mark.skipif(not HAS_LIBRARY, reason="libtpu is not installed")
PROGRAMS = REPOSITORY / "tests" / "tpu" / "programs.py"
PROGRAM = f"{PROGRAMS}:permutes_and_products"


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables},
    )


@pytest.mark.parametrize("name", ["compile", "tune"])
def test_the_help_knows_tpus(name: str) -> None:
    told = " ".join(command(name, "--help").stdout.split())
    assert "the GPU or TPU: " in told
    assert "for a TPU, chips in each dimension, as in 2x4" in told


def test_grids() -> None:
    assert grid_to_compile_for("v5e").name == "v5e:2x4"
    assert grid_to_compile_for("v5p").name == "v5p:2x2x2"
    assert grid_to_compile_for("v6e", "16x16", 2).slices == 2
    for target, topology in (
        ("v5e", "2x2x2"),
        ("v4", "2x4"),
        ("v5e", "two"),
        ("v5e", "0x4"),
        ("v5e", "2x4x"),
    ):
        with pytest.raises(UsageError, match="U252"):
            grid_to_compile_for(target, topology)


def test_flags() -> None:
    flags = ["xla_tpu_a=true", "--xla_tpu_b=-3", "xla_tpu_c=AUTO"]
    assert flags_of(flags) == {"xla_tpu_a": True, "xla_tpu_b": -3, "xla_tpu_c": "AUTO"}
    for flag, wrong in (("xla_tpu_a", "needs =VALUE"), ("a=1", "is not a flag")):
        with pytest.raises(UsageError, match=f"U251.*--flag={flag} {wrong}"):
            flags_of([flag])


def test_what_python_says_of_the_machine_must_fit_a_tpu() -> None:
    function = jax.jit(lambda x: x)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"topology": "2x1x8"}, "U252"),
        ({"topology": "2x2x2"}, "U252"),
        ({"hosts": 2}, "U026"),
        ({"gpus_per_host": 4}, "U026"),
    )
    for given, code in cases:
        with pytest.raises(UsageError, match=code):
            runtime.lower(function, 1.0, target="v5e", **given)
    with pytest.raises(UsageError, match="U021"):
        runtime.lower(abs, 1.0, target="v5e")
    with pytest.raises(UsageError, match="not of a compilation for TPUs"):
        runtime.lower(function, 1.0, target="v5e", stage="gpu-scheduled")


def test_a_program_without_a_schedule() -> None:
    grid = grid_to_compile_for("v5p")
    found = CompiledForTpu("step", grid, {}, {"tpu-final": ""}, "", 1.0)
    for ask in (lambda: found.module("tpu-scheduled"), found.costs):
        with pytest.raises(CompilationError, match="no operation is async") as refused:
            ask()
        assert "--stage=tpu-final without --write-costs" in refused.value.hint
        assert "synchronous by default on v4, v5p, v6e" in refused.value.hint


#: Lowers a function of emulated devices.
_IN_PYTHON = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from hlo_passes import UsageError, runtime
runtime.emulate(8)
rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d"))
x = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=rows)
f = jax.jit(lambda x: x @ x)
for stage, topology in ((None, "2x4"), ("partitioned", None)):
    module = runtime.lower(f, x, target="v6e", topology=topology, stage=stage)
    print(module.is_scheduled, module.attributes["num_partitions"])
try:
    runtime.lower(f, x, target="v6e", topology="4x4")
except UsageError as problem:
    print(problem)
"""


@needs_library
def test_lowering_in_python() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _IN_PYTHON],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    lines = run.stdout.splitlines()
    assert lines[:2] == ["True 8", "False 8"], run.stderr
    assert "error[U026]: the function is for 8 devices" in lines[2]


@needs_library
@pytest.mark.parametrize("variable", ["LIBTPU_INIT_ARGS", "XLA_FLAGS"])
def test_an_unknown_flag_in_the_environment(variable: str) -> None:
    words = ("lower", PROGRAM, "--target=v5e", "--topology=2x4")
    run = command(*words, **{variable: "--xla_tpu_nonsense=1"})
    assert run.returncode == 5
    assert f"error[R004]: XLA refuses the flags of {variable}: Unknown" in run.stderr
    assert "xla_tpu_nonsense" in run.stderr


@pytest.mark.skipif(HAS_LIBRARY, reason="the library is here")
def test_error_without_the_library() -> None:
    run = command("lower", PROGRAM, "--target=v5e", "--topology=2x4")
    assert run.returncode == 5
    assert (
        "error[R007]: the compiler for --target=v5e is missing: libtpu is not installed"
        in run.stderr
    )
    assert "tpu-aot" in run.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--target=h100_sxm", "--flag=xla_tpu_x=1"), "U026"),
        (("--target=v5e", "--hosts=2"), "U026"),
        (("--target=v5e", "--topology=1x1x8"), "U252"),
        (("--target=h100_sxm", "--stage=tpu-scheduled"), "U026"),
        (("--target=v5e", "--stage=partitioned", "--write-costs=c.json"), "U026"),
        (("--target=v5e", "--stage=partitioned", "--passes=cse"), "U026"),
        (("--topology=2x4",), "U026"),
    ],
)
def test_arguments_that_do_not_fit(words: tuple[str, ...], code: str) -> None:
    run = command("lower", PROGRAM, *words)
    assert run.returncode == 2
    assert f"error[{code}]" in run.stderr


@needs_library
@pytest.mark.parametrize(
    ("target", "topology"), [("v5e", "2x4"), ("v5p", "2x2x2"), ("v6e", "2x4")]
)
def test_orders_and_decisions_are_the_compilers(target: str, topology: str) -> None:
    verdict = judged(PROGRAM, target, topology)
    assert verdict.outcome == ""
    assert verdict.differences == []
    assert verdict.orders == verdict.rounds > 0
    assert verdict.equal_decisions == verdict.decisions > 0
    assert verdict.round_trips == verdict.modules == 3


@needs_library
def test_costs_are_written_and_read(tmp_path: pathlib.Path) -> None:
    costs, module = tmp_path / "costs.json", tmp_path / "m.hlo"
    words = ("--target=v5e", "--topology=2x4", "--stage=tpu-scheduled")
    run = command("lower", PROGRAM, *words, f"--write-costs={costs}", "-o", str(module))
    assert run.returncode == 0, run.stderr
    assert json.loads(costs.read_text())["chip"] == "v5e"
    run = command("simulate", str(module), f"--costs={costs}")
    assert run.returncode == 0, run.stderr
    assert "v5e" in run.stdout


@needs_library
def test_a_topology_that_does_not_exist() -> None:
    run = command("lower", PROGRAM, "--target=v6e", "--topology=3x5")
    assert run.returncode == 5
    assert "error[R007]: libtpu does not compile for v6e:3x5" in run.stderr
