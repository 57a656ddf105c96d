"""Imports point one way and form no cycle, and reading HLO never loads JAX."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.modules import REPOSITORY

#: What each package may import of the others.
ALLOWED = {
    "hlo_passes": {"hlo_passes"},
    "scheduler": {"hlo_passes", "scheduler"},
    "runtime": {"hlo_passes", "scheduler", "runtime"},
}
#: Who may load what.
JAX_USERS = {"jax": {"runtime"}, "jaxlib": {"runtime", "hlo_passes/proto_worker.py"}}
#: What the IR may import of `hlo_passes`.
BELOW_THE_IR = {"ir", "errors", "source", "whole_numbers"}
#: One recursive type in three files: an instruction knows its computation, which knows
#: its module. For type checkers alone each of them may name the others.
GRAPH = {f"hlo_passes.ir.{name}" for name in ("instruction", "computation", "module")}


@functools.cache
def _tree(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text())


def _imports(file: pathlib.Path) -> set[str]:
    """The packages a file imports from, wherever the statement is in the file."""
    found = set()
    for node in ast.walk(_tree(file)):
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


def _modules() -> dict[str, pathlib.Path]:
    """Files by the name under which they are imported."""
    found = {}
    for file in _files():
        parts = file.relative_to(REPOSITORY).with_suffix("").parts
        parts = parts if parts[0] == "hlo_passes" else ("hlo_passes", *parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def _imported(
    tree: ast.AST, modules: dict[str, pathlib.Path], typed: bool = False
) -> Iterator[tuple[str, bool]]:
    """Modules that a file imports anywhere, and whether for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                names.append(name if name in modules else node.module or "")
        yield from ((name, typed) for name in names if name in modules)
        condition = isinstance(node, ast.If) and ast.unparse(node.test)
        yield from _imported(node, modules, typed or condition == "TYPE_CHECKING")


@functools.cache
def _imports_by_module() -> dict[str, set[tuple[str, bool]]]:
    """`_imported` of every module."""
    modules = _modules()
    return {
        name: set(_imported(_tree(file), modules)) for name, file in modules.items()
    }


def test_imports_form_no_cycle() -> None:
    """Those in functions and for type checkers count like all others."""
    imports = {
        name: {
            other for other, typed in imported if not (typed and {name, other} <= GRAPH)
        }
        for name, imported in _imports_by_module().items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as problem:
        pytest.fail(" <- ".join(problem.args[1]))


def test_the_ir_imports_nothing_above_it() -> None:
    for name, imported in _imports_by_module().items():
        if name.startswith("hlo_passes.ir"):
            assert {other.split(".")[1] for other, _ in imported} <= BELOW_THE_IR, name


#: Where an instruction keeps its text. Everybody else asks `mentions`, `attributes`
#: and the typed properties, which answer the same for every spelling.
RAW_TEXT = {"_tail", "_attributes", "_text", "_written_tail"}
READERS_OF_TEXT = ("hlo_passes/ir", "hlo_passes/text")


def _reads_raw_text(file: pathlib.Path) -> list[str]:
    """Raw text of another object, as `object.name`."""
    return [
        ast.unparse(node)
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Attribute)
        and node.attr in RAW_TEXT
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_only_the_reader_and_the_graph_touch_raw_attribute_text() -> None:
    found = {
        str(place): peeks
        for file in _files()
        if not str(place := file.relative_to(REPOSITORY)).startswith(READERS_OF_TEXT)
        and (peeks := _reads_raw_text(file))
    }
    assert not found


def test_lists_of_attributes_are_read_by_the_ir() -> None:
    """`{}` may hold blanks and comments: `Instruction.integers` knows, a strip does not."""
    found = [
        f"{place}:{node.lineno}"
        for file in _files()
        if not str(place := file.relative_to(REPOSITORY)).startswith(READERS_OF_TEXT)
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("strip", "lstrip", "rstrip", "removeprefix")
        and any(isinstance(a, ast.Constant) and "{" in str(a.value) for a in node.args)
    ]
    assert not found


#: How a half is spelled; `opcodes.facts` and `async_form` answer what a half is.
HALVES = ("-start", "-update", "-done")
OF_THE_ENDS = {"endswith", "removesuffix", "partition", "rpartition", "find"}
#: What `calls.runs_callees` answers.
CONTROL_FLOW = {"while", "conditional", "call"}


def _texts(node: ast.AST) -> set[str]:
    """The literal texts of an expression, words of one text apart."""
    return {
        word
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        for word in part.value.split()
    }


def _facts_of_opcodes(file: pathlib.Path) -> list[str]:
    """Expressions that take an opcode apart, or list what runs its callees."""
    found = []
    for node in ast.walk(_tree(file)):
        asked, listed = set[str](), set[str]()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in OF_THE_ENDS:
                asked = {t for a in node.args for t in _texts(a)}
            if node.func.attr == "split":
                listed = _texts(node.func.value)
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            asked = _texts(node.left)
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            listed = _texts(node)
        if any(text.endswith(HALVES) for text in asked) or listed == CONTROL_FLOW:
            found.append(ast.unparse(node))
    return found


def test_only_the_ir_knows_how_halves_are_spelled_and_what_runs_callees(
    tmp_path: pathlib.Path,
) -> None:
    found = {
        str(place): peeks
        for file in _files()
        if not str(place := file.relative_to(REPOSITORY)).startswith("hlo_passes/ir/")
        and (peeks := _facts_of_opcodes(file))
    }
    assert not found
    file = tmp_path / "peeks.py"
    for line in (
        "opcode.endswith('-start')",
        "opcode.removesuffix('-done')",
        "opcode.endswith(('-start', '-done'))",
        "'-start' in opcode",
        "opcode in {'while', 'call', 'conditional'}",
        "frozenset('while conditional call'.split())",
    ):
        file.write_text(line)
        assert _facts_of_opcodes(file), line


#: `(...)*+` and `(?>...)` in a pattern; `[...]*+` is no group.
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)[*+?]\+|\(\?>")


def test_no_pattern_has_a_possessive_group() -> None:
    """Python before 3.11.5 matches them wrongly when there are choices inside."""
    found = [
        f"{file.relative_to(REPOSITORY)}:{node.lineno}"
        for file in _files()
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and POSSESSIVE_GROUP.search(node.value)
    ]
    assert not found


def test_only_commands_import_the_command_line() -> None:
    """What reads files, shows progress or suggests names is below it."""
    for name, imported in _imports_by_module().items():
        doors = [other for other, _ in imported if other.startswith("hlo_passes.cli")]
        if doors and not name.startswith("hlo_passes.cli"):
            last = name.rpartition(".")[2]
            assert "command" in last or last == "__main__", name


def test_files_are_small() -> None:
    long = {
        str(f.relative_to(REPOSITORY)): n
        for f in _files()
        if (n := f.read_text().count("\n")) > 620
    }
    assert not long


def test_stdout_gets_json_or_what_say_has_cleaned() -> None:
    """Names come from others, and a terminal obeys what is in them."""
    allowed = {"hlo_passes/progress.py", "runtime/bisect/worker.py"}
    for package in ALLOWED:
        for file in (REPOSITORY / package).rglob("*.py"):
            if str(file.relative_to(REPOSITORY)) in allowed or file.is_symlink():
                continue
            for node in ast.walk(_tree(file)):
                if not isinstance(node, ast.Call):
                    continue
                if ast.unparse(node.func) in ("sys.stdout.write", "print"):
                    written = ast.unparse(node.args[0])
                    assert written.startswith("json.dumps("), (file, node.lineno)
