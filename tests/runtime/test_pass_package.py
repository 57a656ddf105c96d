"""A user's pass in a package of its own: found by entry point, run in the compiler."""

from __future__ import annotations

import importlib
import pathlib
import shutil
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlo_passes import Pipeline, parse, runtime
from tests.modules import REPOSITORY

PACKAGE = REPOSITORY / "examples" / "pass_package"
TEXT = """HloModule m

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%p)
  %m = f32[8]{0} negate(%n)
  ROOT %a = f32[8]{0} abs(%m)
}
"""


@pytest.fixture
def installed_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pip install examples/pass_package` installs."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copy(PACKAGE / "double_negation.py", tmp_path)
    info = tmp_path / f"double_negation-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\n"
        f"Version: {project['version']}\n"
    )
    (group, entries), *_ = project["entry-points"].items()
    lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


@pytest.mark.usefixtures("installed_package")
def test_its_name_stands_in_pipelines() -> None:
    module = parse(TEXT)
    result = Pipeline.parse("double-negation{limit=3},hlo-dce").run(module)
    assert result.passes[0].statistics == {"negations-removed": 1}
    assert "abs(%p)" in module.to_text()


@pytest.mark.usefixtures("installed_package")
def test_it_runs_inside_the_compiler(
    host_devices: Callable[[int], Sequence[Any]],
) -> None:
    host_devices(1)
    negated = jnp.arange(8.0)
    with runtime.install("double-negation", modules="lambda") as installed:
        result = jax.jit(lambda x: jnp.negative(jnp.negative(x)))(negated)
    assert installed.fired == 1
    assert (result == negated).all()
