"""`hlo-passes compile`: our schedule in XLA's GPU back end; needs the plug-in of 0.12."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
from typing import Any

import jax
import pytest

from tests.modules import CORPUS, REPOSITORY

HAS_PLUG_IN = importlib.util.find_spec("jax_cuda12_plugin") is not None
IS_0_12 = jax.__version_info__[:2] >= (0, 12)
needs_0_12 = pytest.mark.skipif(
    not (HAS_PLUG_IN and IS_0_12), reason="needs jax 0.12 and jax-cuda12-plugin"
)
PROGRAM = f"{CORPUS / 'programs' / 'control_flow.py'}:control_flow"
SCHEDULER = "latency-hiding-scheduler"


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


@pytest.mark.skipif(IS_0_12, reason="this jax runs passes there")
def test_error_before_0_12() -> None:
    run = tool("compile", PROGRAM, f"--passes={SCHEDULER}")
    assert run.returncode == 5
    assert (
        f"error[R007]: jax {jax.__version__} cannot run passes inside a compilation for a "
        "GPU that this machine does not have\n  help: jax 0.12 does;" in run.stderr
    )


def test_error_lower_with_passes_for_the_host() -> None:
    run = tool("lower", PROGRAM, f"--passes={SCHEDULER}")
    assert run.returncode == 2
    assert "--passes run inside a complete compilation" in run.stderr


@needs_0_12
def test_side_by_side(tmp_path: pathlib.Path) -> None:
    """The passes inside price as the command line says: with `sol` nothing moves."""
    page, module = tmp_path / "both.html", tmp_path / "ours.hlo"
    run = tool(
        "compile",
        PROGRAM,
        f"--passes={SCHEDULER}",
        "--estimator=gpu-approximate",
        "--json",
        f"--html={page}",
        f"--output={module}",
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["accepted"] is True
    assert told["changed_modules"] == 1
    assert 0 < told["moved_instructions"] < told["common_instructions"]
    assert told["xla"]["step_time_us"] > 0
    assert told["with_passes"]["step_time_us"] > 0
    assert "is_scheduled=true" in module.read_text()
    assert "XLA alone" in page.read_text()


@needs_0_12
def test_error_of_a_pass_is_the_passes_own() -> None:
    limit = "{memory-limit-bytes=1,hard-memory-limit=fail}"
    run = tool("compile", PROGRAM, f"--passes={SCHEDULER}{limit}")
    assert run.returncode == 3
    assert run.stderr.count("error[E0") == 1
    assert "XLA" not in run.stderr.partition("error[E0")[2].partition("\n")[0]


@needs_0_12
def test_lower_with_passes(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "ours.hlo"
    run = tool(
        "lower",
        PROGRAM,
        "--target=h100_sxm",
        f"--passes={SCHEDULER}{{estimator=gpu-approximate}}",
        f"--output={out}",
    )
    assert run.returncode == 0, run.stderr
    alone = tmp_path / "xla.hlo"
    assert (
        tool("lower", PROGRAM, "--target=h100_sxm", f"--output={alone}").returncode == 0
    )
    assert out.read_text() != alone.read_text()


@needs_0_12
def test_unrolled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = "--xla_gpu_enable_while_loop_double_buffering=true"
    monkeypatch.setenv("XLA_FLAGS", flag)
    program = f"{CORPUS / 'programs' / 'scan_layers.py'}:scan_layers_train"
    run = tool("compile", program, f"--passes={SCHEDULER}")
    assert run.returncode == 0, run.stderr
    assert "accepted by XLA's GPU back end" in run.stdout


@needs_0_12
@pytest.mark.parametrize("form", ["stablehlo", "shapes"])
def test_other_programs(form: str, tmp_path: pathlib.Path, host_devices) -> None:
    """StableHLO says its own devices; a jitted function sees as many as there are GPUs."""
    (tmp_path / "model.py").write_text(
        "import jax, numpy as np\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "mesh = Mesh(np.array(jax.devices()[:4]), ('x',))\n"
        "rows, all_ = (NamedSharding(mesh, p) for p in (P('x'), P()))\n"
        "step = jax.jit(lambda x, w: (x @ w).sum(0), in_shardings=(rows, None),"
        " out_shardings=all_)\n"
    )
    program = [f"{tmp_path / 'model.py'}:step", "--args=f32[16,8],f32[8,8]"]
    if form == "stablehlo":
        host_devices(4)
        file = tmp_path / "step.mlir"
        namespace: dict[str, Any] = {}
        exec((tmp_path / "model.py").read_text(), namespace)
        shapes = (jax.ShapeDtypeStruct((n, 8), "float32") for n in (16, 8))
        file.write_text(namespace["step"].lower(*shapes).as_text())
        program = [str(file)]
    run = tool("compile", *program, "--target=b200")
    assert run.returncode == 0, run.stderr
    assert f"{program[0]} for b200 1x1x4 (4 GPUs in one host)" in run.stdout
    assert "accepted by XLA's GPU back end" in run.stdout
