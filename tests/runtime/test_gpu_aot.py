"""Compiling for GPUs that are not there; most of it needs JAX's CUDA plug-in."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes import Pricing, UsageError
from hlo_passes.files import read_module
from hlo_passes.runtime.gpu_aot import emulated_devices, machine_to_compile_for
from tests.modules import CORPUS, REPOSITORY

HAS_PLUG_IN = importlib.util.find_spec("jax_cuda12_plugin") is not None
needs_plug_in = pytest.mark.skipif(not HAS_PLUG_IN, reason="no jax-cuda12-plugin")
PROGRAMS = CORPUS / "programs"
PROGRAM = f"{PROGRAMS / 'mixture_of_experts.py'}:moe"
#: XLA's flags that make two iterations of a loop one, in both spellings.
DOUBLE_BUFFERING = "--xla_gpu_enable_while_loop_double_buffering=true"
UNROLLING = "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"


def lower(
    *arguments: str, program: str = PROGRAM, flags: str = ""
) -> subprocess.CompletedProcess[str]:
    """`hlo-passes lower` in a process of its own: it sets JAX's platform."""
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", "lower", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=os.environ | {"XLA_FLAGS": flags},
    )


def script(text: str) -> str:
    """What a script prints."""
    run = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize(
    ("on", "devices", "machine"),
    [
        (Pricing(), 8, "1x1x8"),
        (Pricing(), 16, "2x1x8"),
        (Pricing(hosts=2), 8, "2x1x8"),
        (Pricing(devices=64), 8, "8x1x8"),
        (Pricing(topology="1x2x8"), 8, "1x2x8"),
        (Pricing(target="gb200"), 8, "1x2x4"),
        (Pricing(target="gb300", hosts=36), 8, "2x18x4"),
    ],
)
def test_the_machine_to_compile_for(on: Pricing, devices: int, machine: str) -> None:
    assert machine_to_compile_for(on, devices) == machine


@pytest.mark.parametrize(
    ("on", "count"),
    [
        (Pricing(), 8),
        (Pricing(hosts=2), 16),
        (Pricing(hosts=2, gpus_per_host=4), 8),
        (Pricing(topology="2x3x4"), 24),
        (Pricing(topology="1x1x64"), 64),
    ],
)
def test_emulated_hosts_have_any_size(on: Pricing, count: int) -> None:
    assert emulated_devices(on) == count


@pytest.mark.parametrize(
    ("on", "code"),
    [
        (Pricing(topology="8"), "U026"),
        (Pricing(topology="999999x999x8"), "U026"),
        (Pricing(hosts=999_999_999), "U026"),
        (Pricing(hosts=2, topology="1x1x8"), "U225"),
    ],
)
def test_machines_that_are_refused(on: Pricing, code: str) -> None:
    for use in (machine_to_compile_for, emulated_devices):
        with pytest.raises(UsageError) as refused:
            use(on)
        assert refused.value.code == code


@pytest.mark.skipif(HAS_PLUG_IN, reason="the plug-in is here")
def test_error_without_plug_in() -> None:
    run = lower("--target=h100_sxm")
    assert run.returncode == 5
    assert run.stderr.startswith(
        "error[R007]: the compiler for --target=h100_sxm is missing: "
        "jax-cuda12-plugin is not installed\n  help: pip install --no-deps "
    )


def test_error_unknown_target() -> None:
    run = lower("--target=h100_sxn")
    assert run.returncode == 2
    assert "did you mean h100_sxm" in run.stderr


def test_error_topology() -> None:
    run = lower("--target=h100_sxm", "--topology=2x8")
    assert run.returncode == 2
    assert "--topology=2x8 is not of the form PxHxG" in run.stderr
    run = lower("--target=h100_sxm", "--topology=1x1x512")
    assert run.returncode == 2
    assert "use --hosts=64, which is 64x1x8" in run.stderr
    run = lower("--target=h100_sxm", "--topology=1x2x8", "--hosts=3")
    assert run.returncode == 2
    assert "disagrees with --hosts=3" in run.stderr


@needs_plug_in
def test_lower_for_two_hosts(tmp_path: pathlib.Path) -> None:
    out, same = tmp_path / "moe.hlo", tmp_path / "same.hlo"
    run = lower("--target=h100_sxm", "--hosts=2", f"--output={out}")
    assert run.returncode == 0, run.stderr
    run = lower("--target=h100_sxm", "--topology=2x1x8", f"--output={same}")
    assert out.read_text() == same.read_text()
    header, _, rest = out.read_text().partition("\n")
    assert "is_scheduled=true" in header
    assert "num_partitions=16" in header
    assert "all-to-all" in rest


@needs_plug_in
@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("scan_layers.py:scan_layers_train", DOUBLE_BUFFERING),
        ("scan_layers.py:scan_layers", DOUBLE_BUFFERING),
        ("pipeline.py:pipeline_scan", UNROLLING),
    ],
)
def test_unrolled_loops(program: str, flags: str, tmp_path: pathlib.Path) -> None:
    """XLA names elements of tuples as control predecessors in loops that it unrolls."""
    out = tmp_path / "loop.hlo"
    run = lower(
        "--target=h100_sxm",
        f"--output={out}",
        program=str(PROGRAMS / program),
        flags=flags,
    )
    assert run.returncode == 0, run.stderr
    module = read_module(str(out))
    found = [i for c in module.computations for i in c.instructions]
    assert any(
        p.opcode == "get-tuple-element" for i in found for p in i.control_predecessors
    )


@needs_plug_in
@pytest.mark.parametrize("target", [(), ("--target=h100_sxm",)])
def test_the_plug_in_does_not_complain(
    target: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    """It prints a traceback about libraries unless JAX is told that there is no GPU."""
    out = str(tmp_path / "m.hlo")
    check_quiet("-m", "hlo_passes", "lower", PROGRAM, *target, "-o", out)


@needs_plug_in
def test_the_plug_in_does_not_complain_to_a_script() -> None:
    check_quiet("-c", _LOWER_IN_A_SCRIPT)


_LOWER_IN_A_SCRIPT = """
import jax
from hlo_passes import runtime
x = jax.ShapeDtypeStruct((8,), "float32")
runtime.lower(jax.jit(jax.numpy.sin), x, target="h100_sxm")
"""


def check_quiet(*arguments: str) -> None:
    """Python succeeds without a traceback where nobody names a platform of JAX."""
    run = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"},
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr


@needs_plug_in
def test_xla_flags_dump_for_a_gpu(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dump"
    out = f"--output={tmp_path / 'm.hlo'}"
    run = lower("--target=h100_sxm", out, flags=f"--xla_dump_to={folder}")
    assert run.returncode == 0, run.stderr
    names = [file.name for file in folder.iterdir()]
    assert any(name.endswith("gpu_after_optimizations.txt") for name in names)
    assert any("memory-usage-report" in name for name in names)


@needs_plug_in
def test_function_of_emulated_devices() -> None:
    """The mesh of the function is of this machine; the module is the GPU's."""
    printed = script(
        """
import jax, jax.numpy as jnp, numpy, runtime
runtime.emulate(4)
mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=rows)
total = jax.jit(lambda x: x / jnp.sum(x, axis=0))
for stage in ("partitioned", None):
    module = runtime.lower(total, x, target="b200", stage=stage)
    opcodes = {i.opcode for c in module.computations for i in c.instructions}
    # What nothing hides is an async pair in jax 0.10, one instruction in 0.12.
    found = {o.removesuffix("-start").removesuffix("-done") for o in opcodes}
    print(module.is_scheduled, module.num_partitions, "all-reduce" in found)
"""
    )
    assert printed == "False 4 True\nTrue 4 True\n"


@needs_plug_in
def test_results_stay_split() -> None:
    """Outputs without a sharding get the partitioner's choice, as in jax.jit."""
    printed = script(
        """
import jax, jax.numpy as jnp, runtime
mesh = jax.sharding.AbstractMesh((8,), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=rows)
module = runtime.lower(jax.jit(jnp.tanh), x, target="h100_sxm")
print(module.attributes["entry_computation_layout"])
"""
    )
    assert printed == "{(f32[8,256]{1,0})->f32[8,256]{1,0}}\n"


@needs_plug_in
def test_error_other_number_of_devices() -> None:
    printed = script(
        """
import jax, jax.numpy as jnp, runtime
from hlo_passes.errors import UsageError
mesh = jax.sharding.AbstractMesh((8,), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
x = jax.ShapeDtypeStruct((64,), jnp.float32, sharding=rows)
try:
    runtime.lower(jax.jit(jnp.tanh), x, target="h100_sxm", hosts=2)
except UsageError as problem:
    print(problem)
"""
    )
    assert printed.startswith(
        "error[U026]: the function is for 8 devices, but the topology has 16\n"
        "  help: use --hosts and --gpus-per-host with a product of 8"
    )
