"""The tool that makes mutants: what it draws, what it leaves out, what it finds."""

from __future__ import annotations

import json
import pathlib
import sys
from itertools import islice

import pytest

pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")
pytest.importorskip("coverage", reason="the extra `mutation` is not installed")

from tests.modules import REPOSITORY
from tests.mutation import __main__ as command
from tests.mutation import equivalent
from tests.mutation.mutants import Mutant, draw
from tests.mutation.nearest import CRITICAL, NEAREST, WIDER, nearest_tests
from tests.mutation.trees import Outcome, Tree

SOURCE = '''"""A module."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__slots__ = ("a",)


@cache
def first(found: list[int | None], limit: int | None = None) -> int | str:
    """Doc: 1 + 1."""
    if limit is None:
        raise ValueError(f"{len(found) + 1} and no limit")
    found.append(
        3)
    kept: list[int | str] = []
    for one, other in zip(found, found, strict=True):
        kept.append(one + other)
    return max(x for x in found if x and x < limit)
'''


def drawn(tmp_path: pathlib.Path, seed: int = 1, source: str = SOURCE) -> list[Mutant]:
    (tmp_path / "m.py").write_text(source)
    return [*draw(tmp_path, ["m.py"], seed)]


def test_places_that_can_change_behaviour(tmp_path: pathlib.Path) -> None:
    found = {(m.line, m.after) for m in drawn(tmp_path)}
    assert {line for line, _ in found} == {17, 19, 20, 22, 23, 24}
    assert not [text for _, text in found if "strict=False" in text]
    assert (17, "if limit is not None:") in found
    assert (19, "pass") in found
    assert (20, "found.append( 4)") in found
    assert (24, "return max(x for x in found if x or x < limit)") in found
    assert (24, "return max(x for x in found if x and x <= limit)") in found


def test_the_same_seed_draws_the_same(tmp_path: pathlib.Path) -> None:
    again = [m.key for m in drawn(tmp_path)]
    assert [m.key for m in drawn(tmp_path)] == again
    assert len({*again}) == len(again) > 10
    assert [m.key for m in drawn(tmp_path, seed=2)] != again


def test_a_mutant_is_a_program_with_one_change(tmp_path: pathlib.Path) -> None:
    for mutant in drawn(tmp_path):
        compile(mutant.source, "m.py", "exec")
        assert mutant.before != mutant.after
        assert mutant.source.count("\n") >= SOURCE.count("\n") - 2


def test_every_critical_file_has_tests() -> None:
    named = {t for tests in (*NEAREST.values(), WIDER) for t in tests}
    assert not [t for t in named if not (REPOSITORY / t).exists()]
    for file in command.files(CRITICAL):
        assert nearest_tests(file)
    with pytest.raises(LookupError):
        nearest_tests("setup.py")


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    """A small repository of its own: one function, one test that sees half of it."""
    top = tmp_path / "repository"
    (top / "corpus").mkdir(parents=True)
    (top / "m.py").write_text("def f(x):\n    return x + 1 if x > 3 else 0\n")
    (top / "test_m.py").write_text(
        "from m import f\n\ndef test_f():\n    assert f(4) == 5\n"
    )
    return top


def test_killed_and_surviving(
    repository: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "subprocess.run",
        lambda *a, **k: type("R", (), {"stdout": "m.py\0test_m.py\0"})(),
    )
    tree = Tree(repository)
    monkeypatch.undo()
    with tree:
        assert tree.run(["test_m.py"], 60).verdict == "passed"
        verdicts = {}
        for mutant in islice(draw(repository, ["m.py"], 1), 60):
            if mutant.after in (
                "return x - 1 if x > 3 else 0",
                "return x + 1 if x >= 3 else 0",
            ):
                tree.write("m.py", mutant.source)
                verdicts[mutant.after[7:]] = tree.run(["test_m.py"], 60)
                tree.restore("m.py")
        # A repository that goes on changing does not reach the copy.
        (repository / "m.py").write_text("")
        tree.write("m.py", "")
        tree.restore("m.py")
        assert tree.run(["test_m.py"], 60).verdict == "passed"
        endless = "while True: pass\n"
        tree.write("m.py", endless)
        late = tree.run(["test_m.py"], 2)
    assert {k: v.verdict for k, v in verdicts.items()} == {
        "x - 1 if x > 3 else 0": "failed",
        "x + 1 if x >= 3 else 0": "passed",
    }
    assert verdicts["x - 1 if x > 3 else 0"].first == "test_m.py::test_f"
    assert late.verdict == "too long"
    assert not tree.root.exists()


def test_results_are_kept_and_survivors_run_again(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every other mutant survives; the second run asks for none, the third for those."""
    ran: list[str] = []

    def fake(self: Tree, tests: tuple[str, ...], limit: float) -> Outcome:
        del self, limit
        ran.append(" ".join(tests))
        passed = len(ran) % 4 in (0, 3)
        return Outcome("passed" if passed else "failed", "" if passed else "t", 0.0, "")

    monkeypatch.setattr(Tree, "run", fake)
    monkeypatch.setattr(command.Quick, "judge", lambda *a: None)
    monkeypatch.setattr(command.Limits, "of", lambda *a: 1.0)
    file = tmp_path / "results.jsonl"
    kept = f"--traces={tmp_path}"
    arguments = ["x", "--mutants=6", "--jobs=1", f"--results={file}", "--narrow", kept]
    place = "scheduler/checker/overlap.py"
    monkeypatch.setattr(sys, "argv", [*arguments, place])
    assert command.main() == 1
    first = capsys.readouterr().out
    assert (
        "6 mutants, 4 killed (66.7%, 0 of them by the wider tests), 2 survived; 0 more"
        in first
    )
    assert command.main() == 1
    assert len(ran) == 6
    arguments = ["x", f"--again={file}", "--jobs=1", "--least=0", kept]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 0
    assert "2 mutants" in capsys.readouterr().out
    count = len(ran)
    monkeypatch.setattr(sys, "argv", [*arguments, "--quick"])
    assert command.main() == 0
    assert "2 mutants, 0 killed" in capsys.readouterr().out
    assert len(ran) == count


def test_tests_that_fail_without_a_mutant_end_the_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Outcome("failed", "test_m.py::test_f", 0.0, "")
    monkeypatch.setattr(Tree, "run", lambda *_: failed)
    monkeypatch.setattr(command.Quick, "judge", lambda *_: None)
    kept = f"--traces={tmp_path}"
    place = "scheduler/checker/overlap.py"
    monkeypatch.setattr(sys, "argv", ["x", "--mutants=6", "--narrow", kept, place])
    with pytest.raises(SystemExit, match="fails without a mutant"):
        command.main()


def test_survivors_are_found_where_they_are_now(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    known = [*islice(draw(tmp_path, ["m.py"], 1), 20)]
    rows = [
        {"key": m.key, "verdict": "SURVIVED", "before": m.before, "after": m.after}
        for m in known
    ]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(command, "REPOSITORY", tmp_path)
    new = (
        "def earlier(limit: int) -> bool:\n    return limit is None or 3 > limit\n\n\n"
    )
    moved = SOURCE.replace("@cache\n", f"{new}@cache\n")
    moved = moved.replace("max(x for x", "min(x for x")
    (tmp_path / "m.py").write_text(moved)
    found = {(m.line, m.before, m.after) for m in command.survivors(results)}
    gone = {m for m in known if "max(x" in m.before}
    assert gone
    assert found == {(m.line + 4, m.before, m.after) for m in known if m not in gone}
    assert capsys.readouterr().out.count("the file is another one now") == len(gone)


def test_what_changes_no_behaviour_is_not_run_and_does_not_count(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = "scheduler/checker/overlap.py"
    first, second = islice(draw(REPOSITORY, [place], 1), 2)
    row = {
        "file": place, "before": first.before, "after": first.after, "reason": "Why.",
    }  # fmt: skip
    listed = tmp_path / "equivalent.jsonl"
    listed.write_text(json.dumps(row) + "\n")
    monkeypatch.setattr(equivalent, "LISTED", listed)
    equivalent.reasons.cache_clear()
    ran: list[str] = []

    def fake(self: Tree, tests: tuple[str, ...], limit: float) -> Outcome:
        ran.append((self.root / place).read_text())
        return Outcome("failed", "t", 0.0, "")

    monkeypatch.setattr(Tree, "run", fake)
    monkeypatch.setattr(command.Quick, "judge", lambda *a: None)
    arguments = ["x", "--mutants=2", "--jobs=1", "--limit=9", "--narrow", place]
    monkeypatch.setattr(sys, "argv", [*arguments, f"--traces={tmp_path}"])
    try:
        assert command.main() == 0
    finally:
        equivalent.reasons.cache_clear()
    assert ran == [second.source]
    told = capsys.readouterr().out
    assert f"equal     {place}" in told
    assert "Why." in told
    assert "1 mutants, 1 killed (100.0%" in told
    assert "0 survived; 1 more change no behaviour" in told


def test_an_equivalent_of_one_function_says_nothing_of_another(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    row = {"file": "a.py", "before": "return 1", "after": "return 2", "reason": "Why."}
    listed = tmp_path / "equivalent.jsonl"
    listed.write_text(json.dumps({**row, "function": "f"}) + "\n")
    monkeypatch.setattr(equivalent, "LISTED", listed)
    equivalent.reasons.cache_clear()
    try:
        told = [
            equivalent.reason_of(
                Mutant("a.py", line, "x", 0, source, "return 1", "return 2")
            )
            for line in (2, 6)
        ]
    finally:
        equivalent.reasons.cache_clear()
    assert told == ["Why.", ""]


def test_what_is_no_program_is_not_drawn(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.py").write_text("def f(*, a: int) -> int:\n    return a * 2\n")
    drawn = [*draw(tmp_path, ["a.py"], 1)]
    assert drawn
    for mutant in drawn:
        compile(mutant.source, "a.py", "exec")


def test_listed_equivalents_are_still_there() -> None:
    """Each names a file that reads so, another text, and a reason."""
    for (file, function, before, after), reason in equivalent.reasons().items():
        lines = (REPOSITORY / file).read_text().splitlines()
        assert not function or f"def {function}(" in " ".join(lines), (file, function)
        assert before in " ".join(line.strip() for line in lines), (file, before)
        assert before != after
        assert reason.endswith("."), reason
