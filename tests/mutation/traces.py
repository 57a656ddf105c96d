"""Which tests execute which lines, kept outside the repository.

A database has, for the contents of the program and of a test file, the lines of the
critical files that each test of that file executes, and its seconds of processor time.
Cases and recordings that tests read are no part of the key: what is kept only says which
tests a mutant meets first.
"""

from __future__ import annotations

import ast
import hashlib
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property

from tests.mutation.mutants import Mutant
from tests.mutation.swap import outermost
from tests.mutation.trees import environment

_PROGRAM = ("hlo_passes", "scheduler", "runtime", "tests")
_TABLES = """
create table if not exists tests (
    key text, test_file text, node text, seconds real, slow integer);
create table if not exists lines (key text, node text, file text, numbits blob);
create table if not exists passed (key text, node text);
create index if not exists by_key on tests (key);
create index if not exists by_file on lines (file, key);
"""


class Traces:
    """The traces of one state of the tests and the program."""

    def __init__(
        self, folder: pathlib.Path, root: pathlib.Path, files: Sequence[str]
    ) -> None:
        """Nothing is traced yet.

        Args:
            folder: where the database is; made where it is missing.
            root: top of the tree.
            files: the critical ones, from the top.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._database = folder / "traces.sqlite"
        self._root, self._files = root, files
        with closing(self._connect()) as known:
            known.executescript(_TABLES)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._database, timeout=600)

    @cached_property
    def _program(self) -> str:
        """The key of everything but test files."""
        told = hashlib.sha256("\n".join(self._files).encode())
        for place in _PROGRAM:
            for path in sorted((self._root / place).rglob("*.py")):
                name = str(path.relative_to(self._root))
                if not (
                    path.name.startswith("test_") or name.startswith("tests/mutation/")
                ):
                    told.update(name.encode() + path.read_bytes())
        return told.hexdigest()

    def key(self, test_file: str) -> str:
        """The key of a test file, from its contents and the program's."""
        path = self._root / test_file
        told = self._program.encode() + test_file.encode() + path.read_bytes()
        return hashlib.sha256(told).hexdigest()

    def trace(self, tests: Sequence[str], options: Sequence[str]) -> None:
        """Run what is not known yet.

        Args:
            tests: test files.
            options: of pytest.
        """
        keys = {self.key(test): test for test in tests}
        with closing(self._connect()) as known:
            missing = [
                key
                for key in keys
                if not known.execute(
                    "select 1 from tests where key=?", [key]
                ).fetchone()
            ]
        if not missing:
            return
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder, "fresh.sqlite")
            paths = [os.path.realpath(self._root / file) for file in self._files]
            subprocess.run(
                [
                    sys.executable, "-m", "tests.mutation.tracer", str(fresh),
                    ",".join(paths), *options, *(keys[key] for key in missing),
                ],
                cwd=self._root, env=environment(self._root), check=True,
                stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self.keep(fresh, [keys[key] for key in missing])

    def keep(self, fresh: pathlib.Path, test_files: Iterable[str]) -> None:
        """Take over what the tracer wrote.

        Args:
            fresh: the tracer's database.
            test_files: those that it ran whole.
        """
        with closing(sqlite3.connect(fresh)) as read:
            tests = read.execute("select node, seconds, slow from tests").fetchall()
            lines = read.execute("select node, file, numbits from lines").fetchall()
        files = {file: self.key(file) for file in test_files}
        with closing(self._connect()) as kept, kept:
            for file, key in files.items():
                old = kept.execute(
                    "select distinct key from tests where test_file=?", [file]
                ).fetchall()
                for table in ("tests", "lines", "passed"):
                    kept.executemany(f"delete from {table} where key=?", old)
                # A row without a name says that the file is known, tests or not.
                kept.execute("insert into tests values (?, ?, '', 0, 1)", [key, file])
            kept.executemany(
                "insert into tests values (?, ?, ?, ?, ?)",
                [
                    (files[_file(node)], _file(node), node, seconds, slow)
                    for node, seconds, slow in tests
                    if _file(node) in files
                ],
            )
            kept.executemany(
                "insert into lines values (?, ?, ?, ?)",
                [
                    (files[_file(node)] if node else self._program, node, file, bits)
                    for node, file, bits in lines
                    if not node or _file(node) in files
                ],
            )

    def executes_outside(self, mutant: Mutant) -> bool:
        """Whether the function of the mutant ran when modules were imported."""
        node = outermost(mutant.source, mutant.line)
        if node is None:
            return True
        body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        with closing(self._connect()) as known:
            rows = known.execute(
                "select numbits from lines where file=? and key=? and node=''",
                [mutant.file, self._program],
            )
            return any(_has(bits, body) for (bits,) in rows)

    def first_tests(
        self, mutant: Mutant, tests: Sequence[str], most: float
    ) -> list[tuple[str, float]]:
        """The tests that a mutant meets first, with their seconds.

        Those that execute its line, or what names the constant that it changes, the
        quickest first; then the other tests of the same files, which may use what one of
        those prepared.

        Args:
            mutant: of the tree.
            tests: test files that count.
            most: seconds that all of them may take.
        """
        keys = {self.key(test) for test in tests}
        lines = [*_lines(mutant)]
        with closing(self._connect()) as known:
            executing = {
                node
                for key, node, bits in known.execute(
                    "select key, node, numbits from lines where file=?", [mutant.file]
                )
                if key in keys and _has(bits, lines)
            }
            rows = [
                (node, seconds)
                for key, node, seconds in known.execute(
                    "select key, node, seconds from tests where not slow"
                )
                if key in keys
            ]
        near = {_file(node) for node in executing}
        rows = [row for row in rows if _file(row[0]) in near]
        rows.sort(key=lambda row: (row[0] not in executing, row[1]))
        chosen: list[tuple[str, float]] = []
        for node, seconds in rows:
            most -= seconds
            if most < 0.0:
                break
            chosen.append((node, seconds))
        return chosen

    def passes(self, node: str) -> bool:
        """Whether it is known to pass in a process of its own, without a mutant."""
        with closing(self._connect()) as known:
            asked = [self.key(_file(node)), node]
            found = known.execute("select 1 from passed where key=? and node=?", asked)
            return found.fetchone() is not None

    def note_pass(self, node: str) -> None:
        """It does."""
        with closing(self._connect()) as known, known:
            known.execute(
                "insert into passed values (?, ?)", [self.key(_file(node)), node]
            )


def _file(node: str) -> str:
    return node.split("::", maxsplit=1)[0]


def _has(numbits: bytes, lines: Iterable[int]) -> bool:
    """Whether bits of `coverage` have one of the lines."""
    return any(
        line // 8 < len(numbits) and numbits[line // 8] >> line % 8 & 1
        for line in lines
    )


def _lines(mutant: Mutant) -> Iterable[int]:
    """The lines of the statement, or of the functions that name what it assigns."""
    tree = ast.parse(mutant.source)
    inside = outermost(mutant.source, mutant.line)
    statement: ast.stmt | None = None
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (
            node.end_lineno or node.lineno
        ):
            statement = node
    assert statement is not None
    if inside is not None:
        last = getattr(statement, "body", [])
        if last and isinstance(last[0], ast.stmt):  # its head alone
            return range(statement.lineno, max(last[0].lineno, statement.lineno + 1))
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    if isinstance(statement, ast.FunctionDef):  # a default value
        return range(statement.body[0].lineno, (statement.end_lineno or 0) + 1)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    names = {
        getattr(part, "id", getattr(part, "attr", ""))
        for target in targets
        if target is not None
        for part in ast.walk(target)
        if isinstance(part, ast.Name | ast.Attribute)
    }
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            getattr(part, "id", getattr(part, "attr", None)) in names
            for part in ast.walk(node)
        )
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }
