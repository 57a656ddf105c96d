"""Aliasing, donation and entry layout: attributes of the module's header.

    input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {0}, must-alias) }
    buffer_donor={ (2, {}) }
    entry_computation_layout={(f32[4]{0}, s32[])->f32[4]{0}}
    output_to_operand_aliasing={{}: (0, {})}          (on instructions)

Source: openxla/xla `hlo_parser.cc`, `hlo_input_output_alias_config.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shape_parser import known_shape
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.value_cursor import ValueCursor

Path = tuple[int, ...]

#: An alias and a parameter of the entry as XLA prints most of them, up to the next.
_PLAIN_ALIAS: Final = re.compile(
    r"\{([0-9]{1,9})?\}: \(([0-9]{1,9}), \{\}, (may|must)-alias\), (?=\{)"
)
_PLAIN_PARAMETER: Final = re.compile(
    r"(?:/\*index=[0-9]{1,9}\*/)?([a-z0-9]+\[[0-9,]*\](?:\{[0-9,]*\})?), (?=[/a-z])"
)


def _path_text(path: Path) -> str:
    return lists_text([path])[1:-1] if path else "{}"


def _read_path(cursor: ValueCursor) -> Path:
    """`{0,1}`; a trailing comma is accepted, as XLA does."""
    cursor.expect("{", "before an index path")
    path: list[int] = []
    while not cursor.sees("}"):
        path.append(cursor.integer())
        if not cursor.eat(","):
            break
    cursor.expect("}", "at the end of an index path")
    return tuple(path)


@dataclass(frozen=True, slots=True, order=True)
class Alias:
    """Part `output` of the result lives in the buffer of a parameter's part."""

    output: Path
    parameter: int
    path: Path = ()
    must: bool = False

    def to_text(self) -> str:
        """`{0}: (1, {}, may-alias)`."""
        kind = "must-alias" if self.must else "may-alias"
        return (
            f"{_path_text(self.output)}: "
            f"({self.parameter}, {_path_text(self.path)}, {kind})"
        )


@dataclass(frozen=True, slots=True)
class InputOutputAlias:
    """All aliases of a module, ordered by the part of the result."""

    aliases: tuple[Alias, ...] = ()

    def to_text(self) -> str:
        """`{ {0}: (0, {}, may-alias) }`, `{}` when there are none."""
        if not self.aliases:
            return "{}"
        return f"{{ {', '.join(alias.to_text() for alias in self.aliases)} }}"


def parse_input_output_alias(text: str) -> InputOutputAlias:
    """The aliases that `text` spells. Raises ParseError P260.

    Of two entries for one part of the result XLA keeps the first.
    """
    cursor = ValueCursor(text, "P260")
    found: dict[Path, Alias] = {}
    cursor.expect("{", "before aliases")
    while not cursor.sees("}"):
        plain = _PLAIN_ALIAS.match(text, cursor.at)
        if plain:
            output = () if plain[1] is None else (int(plain[1]),)
            alias = Alias(output, int(plain[2]), (), plain[3] == "must")
            found.setdefault(output, alias)
            cursor.at = plain.end()
            continue
        output = _read_path(cursor)
        cursor.expect(":", "after the part of the result")
        cursor.expect("(", "before a parameter number")
        parameter = cursor.integer("a parameter number")
        cursor.expect(",")
        path = _read_path(cursor)
        kind = "may-alias"
        if cursor.eat(","):
            at = cursor.skip()
            kind = cursor.name()
            if kind not in ("may-alias", "must-alias"):
                cursor.fail(
                    f"unknown kind of alias {kind}",
                    at=at,
                    hint="may-alias or must-alias",
                )
        cursor.expect(")")
        found.setdefault(output, Alias(output, parameter, path, kind == "must-alias"))
        if not cursor.eat(","):
            break
    cursor.expect("}", "at the end of the aliases")
    cursor.end()
    return InputOutputAlias(tuple(found[output] for output in sorted(found)))


@dataclass(frozen=True, slots=True)
class BufferDonors:
    """(parameter, path) of buffers that are donated without an alias, sorted."""

    donors: tuple[tuple[int, Path], ...] = ()

    def to_text(self) -> str:
        """`{ (2, {}) }`, `{}` when there are none."""
        if not self.donors:
            return "{}"
        items = (f"({number}, {_path_text(path)})" for number, path in self.donors)
        return f"{{ {', '.join(items)} }}"


def parse_buffer_donors(text: str) -> BufferDonors:
    """The donors that `text` spells. Raises ParseError P261."""
    cursor = ValueCursor(text, "P261")
    found: set[tuple[int, Path]] = set()
    cursor.expect("{", "before donors")
    while not cursor.sees("}"):
        cursor.expect("(", "before a parameter number")
        parameter = cursor.integer("a parameter number")
        cursor.expect(",")
        found.add((parameter, _read_path(cursor)))
        cursor.expect(")")
        if not cursor.eat(","):
            break
    cursor.expect("}", "at the end of the donors")
    cursor.end()
    return BufferDonors(tuple(sorted(found)))


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Shapes, with layouts, of the entry's parameters and result."""

    parameters: tuple[Shape, ...]
    result: Shape

    def to_text(self) -> str:
        """`{(f32[4]{0}, s32[])->f32[4]{0}}`; every fifth parameter is numbered."""
        texts = [shape.text for shape in self.parameters]
        for k in range(5, len(texts), 5):
            texts[k] = f"/*index={k}*/{texts[k]}"
        return f"{{({', '.join(texts)})->{self.result.text}}}"


def parse_entry_layout(text: str) -> EntryLayout:
    """The layout that `text` spells. Raises ParseError P262 (P010-P014 in a shape)."""
    cursor = ValueCursor(text, "P262")
    cursor.expect("{", "before the entry's layout")
    cursor.expect("(", "before the parameters")
    parameters: list[Shape] = []
    while not cursor.sees(")"):
        plain = _PLAIN_PARAMETER.match(text, cursor.at)
        known = known_shape(plain[1]) if plain else None
        if plain and known:
            parameters.append(known)
            cursor.at = plain.end()
            continue
        parameters.append(cursor.shape())
        if not cursor.sees(")"):
            cursor.expect(",", "between parameters")
    cursor.expect(")")
    cursor.expect("->", "before the result")
    result = cursor.shape()
    cursor.expect("}", "at the end of the entry's layout")
    cursor.end()
    return EntryLayout(tuple(parameters), result)


@dataclass(frozen=True, slots=True)
class OutputAliasing:
    """(part of the result, operand, part of the operand) that share a buffer."""

    aliases: tuple[tuple[Path, int, Path], ...] = ()

    def to_text(self) -> str:
        """`{{}: (0, {})}`."""
        items = (
            f"{_path_text(output)}: ({operand}, {_path_text(path)})"
            for output, operand, path in self.aliases
        )
        return f"{{{', '.join(items)}}}"


def parse_output_aliasing(text: str) -> OutputAliasing:
    """The aliasing that `text` spells. Raises ParseError P263."""
    cursor = ValueCursor(text, "P263")
    found: list[tuple[Path, int, Path]] = []
    cursor.expect("{", "before the aliasing")
    while not cursor.sees("}"):
        output = _read_path(cursor)
        cursor.expect(":", "after the part of the result")
        cursor.expect("(", "before an operand number")
        operand = cursor.integer("an operand number")
        cursor.expect(",")
        found.append((output, operand, _read_path(cursor)))
        cursor.expect(")")
        if not cursor.eat(","):
            break
    cursor.expect("}", "at the end of the aliasing")
    cursor.end()
    return OutputAliasing(tuple(found))
