"""The built wheel, in an environment of its own, beside a user's own `scheduler.py`.

Everything that is installed is under `hlo_passes`: a training repository that has a
`scheduler.py`, a `runtime.py` and a `tests.py` beside its `train.py` breaks nothing and
keeps its own files. Takes about 30 seconds.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from tests.modules import REPOSITORY

#: What a build reads.
SOURCES = (
    "hlo_passes",
    "scheduler",
    "runtime",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
#: The user's own files, named as our folders are.
MINE = ("scheduler.py", "runtime.py", "tests.py")

TRAIN = """
import runtime, scheduler, tests

assert {m.MINE for m in (runtime, scheduler, tests)} == {"mine"}

from hlo_passes import runtime as passes_runtime
import hlo_passes.scheduler

passes_runtime.emulate(2)

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

def step(a, b):
    pairs = [(0, 1), (1, 0)]
    return jax.lax.ppermute(a, "x", pairs), jax.lax.ppermute(b, "x", pairs)

step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
with passes_runtime.install("collective-permute-combiner") as installed:
    step(jnp.ones(8), jnp.ones(8))
assert installed.fired == 1 and installed.reports[0].changed, installed.reports
print("trained", hlo_passes.__file__)
"""
TEST = """
import pytest

def test_fixture(host_devices):
    assert len(host_devices(2)) == 2

@pytest.mark.hosts(2)
def test_marker():
    import jax

    assert jax.process_count() == 2
"""
MODULE = """HloModule m, num_partitions=2

ENTRY %e (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %p = f32[8]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of this tree, built from a copy."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        place = REPOSITORY / name
        if place.is_dir():
            shutil.copytree(
                place, source / name, symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )  # fmt: skip
        else:
            shutil.copy(place, source)
    built = tmp_path_factory.mktemp("wheel")
    _run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps",
         "--no-build-isolation", "-w", str(built), str(source)],
        source,
    )  # fmt: skip
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def project(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A user's project, and a fresh environment in which the wheel is installed.

    The environment borrows this one's libraries through a path file, which reads no
    path file there: an editable install of this tree is not seen.
    """
    environment = tmp_path_factory.mktemp("environment")
    _run([sys.executable, "-m", "venv", "--without-pip", str(environment)], environment)
    python = environment / "bin" / "python"
    here = sysconfig.get_paths(vars={"base": str(environment)})["purelib"]
    pathlib.Path(here, "borrowed.pth").write_text(sysconfig.get_paths()["purelib"])
    _run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q",
         "--no-deps", "--ignore-installed", str(wheel)],
        environment,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("project")
    for name in MINE:
        (folder / name).write_text('MINE = "mine"\n')
    (folder / "train.py").write_text(TRAIN)
    (folder / "test_mine.py").write_text(TEST)
    (folder / "m.hlo").write_text(MODULE)
    return Project(folder, python)


class Project:
    """A folder to run commands in, with the programs of its environment."""

    def __init__(self, folder: pathlib.Path, python: pathlib.Path) -> None:
        """Remember where things are."""
        self.folder = folder
        self.python = python

    def run(self, *command: str) -> str:
        """What a command prints. Programs are taken from the environment."""
        return _run([str(self.python.with_name(command[0])), *command[1:]], self.folder)


def _run(command: list[str], folder: pathlib.Path) -> str:
    outside = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    environment = {k: v for k, v in os.environ.items() if k not in outside}
    done = subprocess.run(
        command, cwd=folder, env={**environment, "XLA_FLAGS": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_is_under_one_name(wheel: pathlib.Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top.partition("-")[0] for top in tops} == {"hlo_passes"}
    for needed in (
        "hlo_passes/py.typed",
        "hlo_passes/scheduler/data/gpu_targets/h100_sxm.txtpb",
        "hlo_passes/runtime/pytest_plugin.py",
    ):
        assert needed in names


@pytest.mark.parametrize("program", [("hlo-passes",), ("python", "-m", "hlo_passes")])
def test_commands(project: Project, program: tuple[str, ...]) -> None:
    estimated = project.run(*program, "estimate", "m.hlo", "--json")
    assert '"collective-permute"' in estimated
    checked = project.run(
        *program, "opt", "m.hlo", "--passes=gpu-schedule,schedule-checker"
    )
    assert "is_scheduled=true" in checked
    assert "every bit is the same" in project.run(
        *program, "run", "m.hlo", "--against=m.hlo"
    )


def test_install(project: Project) -> None:
    printed = project.run("python", "train.py")
    assert printed.startswith(f"trained {project.python.parent.parent}")


def test_pytest_plugin(project: Project) -> None:
    assert "2 passed" in project.run("python", "-m", "pytest", "-q", "test_mine.py")
