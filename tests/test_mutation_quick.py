"""Mutants before the quickest tests that execute their line, in forks of one process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import FunctionType

import pytest

pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")
pytest.importorskip("coverage", reason="the extra `mutation` is not installed")

from tests.modules import REPOSITORY
from tests.mutation import quick as module
from tests.mutation.mutants import Mutant, draw
from tests.mutation.quick import Quick
from tests.mutation.swap import Place, outermost, swap
from tests.mutation.traces import Traces
from tests.mutation.trees import Outcome, Tree

PROGRAM = """\
LIMIT = 3


def above(x):
    return x > LIMIT


def far(x):
    while x > 9:
        x = x - 1
    return x


def alone(x):
    return x + 1


def early():
    return 5


FIVE = early()
"""
TESTS = """\
import subprocess
import sys

import m

prepared = []


def test_above():
    assert m.above(5)
    assert m.above(4)
    assert not m.above(2)


def test_far():
    assert m.far(11) == 9


def test_prepares():
    prepared.append(1)


def test_is_prepared():
    assert m.alone(1) == 2
    assert prepared


def test_starts_a_process():
    assert m.above(5)
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_five():
    assert m.FIVE == 5
    assert m.early()
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """A repository of one program and one test file, with this tool beside them."""
    top = tmp_path_factory.mktemp("quick") / "repository"
    (top / "corpus").mkdir(parents=True)
    (top / "m.py").write_text(PROGRAM)
    (top / "test_m.py").write_text(TESTS)
    (top / "tests").symlink_to(REPOSITORY / "tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "subprocess.run",
            lambda *a, **k: type("R", (), {"stdout": "m.py\0test_m.py\0tests\0"})(),
        )
        made = Tree(top)
    with made:
        yield made


@pytest.fixture(scope="module")
def traces(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """Traced once."""
    found = Traces(tmp_path_factory.mktemp("traces"), tree.root, ["m.py"])
    found.trace(["test_m.py"], ())
    return found


def mutant(tree: Tree, after: str) -> Mutant:
    return next(m for m in draw(tree.root, ["m.py"], 1) if m.after == after)


def test_the_quickest_that_execute_the_line_come_first(
    tree: Tree, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(after: str) -> set[str]:
        chosen = traces.first_tests(mutant(tree, after), ["test_m.py"], 99.0)
        names = [name.removeprefix("test_m.py::test_") for name, _ in chosen]
        # The others of the file follow; what starts a process is not quick.
        assert {*names} == {"above", "far", "prepares", "is_prepared", "five"}
        return {*names[:1]}

    assert first("x = x + 1") == {"far"}
    assert first("return x >= LIMIT") == {"above"}
    assert first("LIMIT = 4") == {"above"}
    assert not traces.first_tests(mutant(tree, "LIMIT = 4"), ["test_m.py"], 0.0)
    assert not traces.executes_outside(mutant(tree, "x = x + 1"))
    assert traces.executes_outside(mutant(tree, "return 6"))
    # What is known is not traced again.
    monkeypatch.setattr("subprocess.run", None)
    traces.trace(["test_m.py"], ())


def test_verdicts(tree: Tree, traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "nearest_tests", lambda file: ("test_m.py",))
    monkeypatch.setattr(module, "_MORE", 2)
    processes: list[list[str]] = []
    run = Tree.run

    def noted(self: Tree, tests: list[str], limit: float) -> Outcome:
        processes.append(tests)
        return run(self, tests, limit)

    monkeypatch.setattr(Tree, "run", noted)
    found = {}
    with Quick(tree, traces) as quick:
        for after in (
            "return x < LIMIT",
            "return x >= LIMIT",
            "return x - 1",
            "x = x + 1",
            "return 6",
            "LIMIT = 4",
        ):
            told = quick.judge(mutant(tree, after))
            assert told is not None
            found[after] = told.verdict, told.first.removeprefix("test_m.py::test_")
            assert (tree.root / "m.py").read_text() == PROGRAM
            # What is inside a function needs no process of its own.
            assert bool(processes) == (after in ("return 6", "LIMIT = 4")), after
    assert found == {
        "return x < LIMIT": ("failed", "above"),
        "return x >= LIMIT": ("passed", ""),
        # The only test that notices says nothing: it fails without the mutant, too.
        "return x - 1": ("passed", ""),
        "x = x + 1": ("too long", ""),
        "return 6": ("failed", "five"),
        "LIMIT = 4": ("failed", "above"),
    }


def test_functions_get_the_code_of_the_mutant() -> None:
    source = (
        "@cache\n"
        "def outer(x, y=1):\n"
        "    def inner(z):\n"
        "        return z + y\n"
        "    return inner(x)\n"
    )
    names: dict[str, object] = {"cache": cache}
    exec(compile(source, "m.py", "exec"), names)
    function = names["outer"].__wrapped__  # type: ignore[attr-defined]
    assert isinstance(function, FunctionType)
    places: dict[Place, list[FunctionType]] = {("m.py", 1, "outer"): [function]}
    changed = source.replace("z + y", "z - y")
    assert not swap(places, "m.py", changed, 2)  # a default value
    assert not swap({}, "m.py", changed, 4)
    assert function(3) == 4
    assert swap(places, "m.py", changed, 4)
    assert function(3) == 2

    # A closure has as many cells as its code names.
    def cell() -> int:
        return len(places)

    one = {("m.py", 1, "outer"): [cell]}
    assert not swap(one, "m.py", changed, 4)  # type: ignore[arg-type]
    assert outermost(source, 1) is None
