"""Random mutants of chosen files, made with the operators of cosmic-ray.

    if depth > limit:      ->      if depth >= limit:
    report.add(finding)    ->      pass

A mutant is drawn in three steps, so that a comparison, which has seven operators, is not
drawn seven times as often as a number: a file by its number of places, a place, one of
its operators. What cannot change behaviour is not drawn: annotations, imports,
`TYPE_CHECKING`, `__slots__`, decorators, `strict=`; nor the wording of messages.
"""

from __future__ import annotations

import ast
import difflib
import pathlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import parso
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

#: Operators that take arguments, and those whose mutants say little: a decorator is
#: most often a dataclass (everything fails) or a cache (nothing does), and `is` between
#: values is `==` or a warning. `is None` and `is not None` take each other's place.
_LEFT_OUT = ("VariableReplacer", "VariableInserter", "RemoveDecorator", "_Is", "Is_")
_KEPT = ("_Is_IsNot", "_IsNot_Is")
_DROP_CALL = "drop-call"


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: from the top of the repository.
        line: of the place, from 1 on.
        operator: what was done, by cosmic-ray's name.
        occurrence: the how-manieth place of the file where the operator applies.
        source: the whole file with the change.
        before: the lines changed.
        after: what they became.
    """

    file: str
    line: int
    operator: str
    occurrence: int
    source: str
    before: str
    after: str

    @property
    def function(self) -> str:
        """The innermost function that it is in; '' if it is in none."""
        found = ""
        for node in ast.walk(ast.parse(self.source)):  # outer ones first
            if isinstance(node, ast.FunctionDef) and node.lineno <= self.line <= (
                node.end_lineno or node.lineno
            ):
                found = node.name
        return found

    @property
    def key(self) -> str:
        """What names it as long as the file stays as it is."""
        return f"{self.file}:{self.line}:{self.operator}:{self.occurrence}"


class DropCall(Operator):
    """`f(x)` as a statement of its own becomes `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Where a statement is a call and nothing else."""
        if _is_call_statement(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The name `pass` in the same place, with the same blanks before it."""
        del index
        return parso.python.tree.Keyword(
            "pass", node.start_pos, prefix=node.get_first_leaf().prefix
        )

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: cosmic-ray tests its own."""
        return ()


def _is_call_statement(node: Any) -> bool:
    if node.type != "atom_expr" or node.parent.type != "simple_stmt":
        return False
    last = node.children[-1]
    return last.type == "trailer" and last.children[0].value == "("


def _operators() -> dict[str, Operator]:
    found: dict[str, Operator] = {_DROP_CALL: DropCall()}
    for name in operator_names():
        if name.endswith(_KEPT) or not any(part in name for part in _LEFT_OUT):
            found[name] = get_operator(name)()
    return found


OPERATORS = _operators()


def draw(root: pathlib.Path, files: Iterable[str], seed: int) -> Iterator[Mutant]:
    """Mutants without end, each once; the same seed gives the same ones."""
    randomness = random.Random(seed)
    places = {f: _places(root.joinpath(f).read_text()) for f in sorted(files)}
    while places := {f: p for f, p in places.items() if p}:
        file = randomness.choices([*places], [len(p) for p in places.values()])[0]
        at = randomness.choice([*places[file]])
        operators = places[file][at]
        operator, occurrence = operators.pop(randomness.randrange(len(operators)))
        if not operators:
            del places[file][at]
        mutant = make(root, file, operator, occurrence, at[0])
        if mutant is not None:
            yield mutant


def remade(root: pathlib.Path, key: str, before: str, after: str) -> Mutant | None:
    """A mutant again, by its key; None if there is no such change any more.

    Its line may be another one now: of those that read the same, the one that was as
    many places from the top, else the nearest.
    """
    file, line, operator, occurrence = key.rsplit(":", 3)
    source = root.joinpath(file).read_text()
    lines = source.splitlines()
    near = sorted(
        (number != int(occurrence), abs(at - int(line)), at, number)
        for (at, _), found in _places(source).items()
        for name, number in found
        if name == operator and lines[at - 1].strip() in before
    )
    for _, _, at, number in near:
        mutant = make(root, file, operator, number, at)
        if mutant is not None and (mutant.before, mutant.after) == (before, after):
            return mutant
    return None


def make(
    root: pathlib.Path, file: str, operator: str, occurrence: int, line: int
) -> Mutant | None:
    """The mutant; None where behaviour cannot differ, or is no program's."""
    source = root.joinpath(file).read_text()
    mutated = mutate_code(source, OPERATORS[operator], occurrence)
    if mutated is None or _behaviour(mutated) in (None, _behaviour(source)):
        return None
    removed, added = [], []
    for text in difflib.ndiff(source.splitlines(), mutated.splitlines()):
        if text.startswith("- "):
            removed.append(text[2:].strip())
        elif text.startswith("+ "):
            added.append(text[2:].strip())
    return Mutant(
        file, line, operator, occurrence, mutated, " ".join(removed), " ".join(added)
    )


def _places(source: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """(line, column) -> (operator, occurrence), of a whole file."""
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    seen = dict.fromkeys(OPERATORS, 0)
    lines = _lines_that_do_nothing(source)
    for node in _nodes(parso.parse(source)):
        checks = _is_strictness(node)
        for name, operator in OPERATORS.items():
            for start, _ in operator.mutation_positions(node):
                if start[0] not in lines and not checks:
                    found.setdefault(tuple(start), []).append((name, seen[name]))
                seen[name] += 1
    return found


def _is_strictness(node: Any) -> bool:
    """Whether it is the value of `strict=`: that only checks what is so anyway."""
    parent = node.parent
    return (
        parent is not None
        and parent.type == "argument"
        and getattr(parent.children[0], "value", "") == "strict"
    )


def _nodes(node: Any) -> Iterator[Any]:
    """All nodes, in the order in which cosmic-ray counts them."""
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _lines_that_do_nothing(source: str) -> set[int]:
    """Lines of imports, TYPE_CHECKING, `__slots__`, decorators and f-strings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_left_out = (
            isinstance(node, (ast.Import, ast.ImportFrom))
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            or (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "__slots__"
            )
        )
        if is_left_out and isinstance(node, ast.stmt):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        decorators = getattr(node, "decorator_list", [])
        for part in [*decorators, *([node] if isinstance(node, ast.JoinedStr) else [])]:
            lines.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return lines


def _behaviour(source: str) -> str | None:
    """The program without its annotations; None where it is not a program."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)
