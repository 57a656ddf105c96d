"""Imports point one way, and reading HLO never loads JAX."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

from tests.modules import REPOSITORY

#: What each package may import of the others.
ALLOWED = {
    "hlo_passes": {"hlo_passes"},
    "scheduler": {"hlo_passes", "scheduler"},
    "runtime": {"hlo_passes", "scheduler", "runtime"},
}
#: Who may load what.
JAX_USERS = {"jax": {"runtime"}, "jaxlib": {"runtime", "hlo_passes/proto.py"}}


def _imports(file: pathlib.Path) -> set[str]:
    """The packages a file imports from, wherever the statement is in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {_package(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {_package(f"{node.module}.{alias.name}") for alias in node.names}
    return found


def _package(name: str) -> str:
    """`scheduler` for `hlo_passes.scheduler.memory`, `jax` for `jax.numpy`."""
    first, _, rest = name.partition(".")
    below = rest.partition(".")[0]
    return below if first == "hlo_passes" and below in ALLOWED else first


def _files() -> list[pathlib.Path]:
    return [f for p in ALLOWED for f in sorted((REPOSITORY / p).rglob("*.py"))]


@pytest.mark.parametrize("file", _files(), ids=lambda f: str(f.relative_to(REPOSITORY)))
def test_imports_point_downwards(file: pathlib.Path) -> None:
    place = file.relative_to(REPOSITORY)
    package = place.parts[0]
    names = _imports(file)
    assert names & set(ALLOWED) <= ALLOWED[package]
    for library, users in JAX_USERS.items():
        if package not in users and str(place) not in users:
            assert library not in names


@pytest.mark.parametrize("package", ["hlo_passes", "hlo_passes.scheduler"])
def test_import_does_not_load_jax(package: str) -> None:
    code = f"import sys, {package}; sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False)
    assert done.returncode == 0


def test_files_are_small() -> None:
    long = {
        str(f.relative_to(REPOSITORY)): n
        for f in _files()
        if (n := f.read_text().count("\n")) > 620
    }
    assert not long
