"""The tables to which `stack_frame_id` refers: files, functions, locations, frames.

    FileNames
    1 "model.py"
    FunctionNames
    1 "layer"
    FileLocations
    1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=4 end_column=20}
    StackFrames
    1 {file_location_id=1 parent_frame_id=1}

Ids count from 1. In text a frame's parent is written plus one: 1 is none, 2 is frame 1.
Row numbers are written but not read. Source: openxla/xla `hlo_parser.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.c_strings import quote
from hlo_passes.ir.value_cursor import ValueCursor

_ROW_NUMBER: Final = re.compile(r"[0-9]+")
_LOCATION_FIELDS: Final = (
    "file_name_id", "function_name_id", "line", "end_line", "column", "end_column",
)  # fmt: skip
_FRAME_FIELDS: Final = ("file_location_id", "parent_frame_id")


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A stretch of source; ids count from 1, 0 is unknown."""

    file_name_id: int
    function_name_id: int
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A location and the frame that called it; `parent` counts from 1, 0 is none."""

    file_location_id: int
    parent: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedFrame:
    """A frame with names in place of ids."""

    file_name: str
    function_name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The four tables of a module."""

    file_names: tuple[str, ...] = ()
    function_names: tuple[str, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    frames: tuple[StackFrame, ...] = ()

    def chain(self, frame_id: int) -> tuple[ResolvedFrame, ...]:
        """The frame of this id and its callers, innermost first.

        It stops at an id out of range and at a frame that it has seen (a cycle).
        """
        found: list[ResolvedFrame] = []
        seen: set[int] = set()
        while 1 <= frame_id <= len(self.frames) and frame_id not in seen:
            seen.add(frame_id)
            frame = self.frames[frame_id - 1]
            if not 1 <= frame.file_location_id <= len(self.locations):
                break
            place = self.locations[frame.file_location_id - 1]
            found.append(
                ResolvedFrame(
                    _named(self.file_names, place.file_name_id),
                    _named(self.function_names, place.function_name_id),
                    place.line,
                    place.column,
                )
            )
            frame_id = frame.parent
        return tuple(found)

    def to_text(self) -> str:
        """The tables, one row per line; '' when there are no frames."""
        if not self.frames:
            return ""
        locations = [
            " ".join(f"{name}={getattr(row, name)}" for name in _LOCATION_FIELDS)
            for row in self.locations
        ]
        frames = [
            f"file_location_id={row.file_location_id} parent_frame_id={row.parent + 1}"
            for row in self.frames
        ]
        tables = {
            "FileNames": list(map(quote, self.file_names)),
            "FunctionNames": list(map(quote, self.function_names)),
            "FileLocations": [f"{{{row}}}" for row in locations],
            "StackFrames": [f"{{{row}}}" for row in frames],
        }
        return "\n\n".join(
            "\n".join([title, *(f"{k} {row}" for k, row in enumerate(rows, 1))])
            for title, rows in tables.items()
        )


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number - 1] if 1 <= number <= len(names) else ""


def parse_stack_frames(text: str) -> StackFrames:
    """The tables that `text` spells; empty text has none. Raises ParseError P254."""
    cursor = ValueCursor(text, "P254")
    if cursor.done():
        return StackFrames()
    _read_title(cursor, "FileNames")
    files = _read_strings(cursor)
    _read_title(cursor, "FunctionNames")
    functions = _read_strings(cursor)
    _read_title(cursor, "FileLocations")
    locations = _read_rows(cursor, _LOCATION_FIELDS)
    _read_title(cursor, "StackFrames")
    frames = _read_rows(cursor, _FRAME_FIELDS)
    cursor.end()
    return StackFrames(
        files,
        functions,
        tuple(FileLocation(*row) for row in locations),
        tuple(StackFrame(location, parent - 1) for location, parent in frames),
    )


def _read_title(cursor: ValueCursor, title: str) -> None:
    at = cursor.skip()
    if cursor.word(title) != title:
        cursor.fail(f"expected {title}", at=at)


def _read_strings(cursor: ValueCursor) -> tuple[str, ...]:
    found: list[str] = []
    while cursor.take(_ROW_NUMBER):
        found.append(cursor.string())
    return tuple(found)


def _read_rows(cursor: ValueCursor, names: tuple[str, ...]) -> list[list[int]]:
    """`1 {name=int name=int}`: every field once, in any order."""
    rows: list[list[int]] = []
    while cursor.take(_ROW_NUMBER):
        start = cursor.skip()
        cursor.expect("{", "before a row")
        row: dict[str, int] = {}
        while not cursor.eat("}"):
            cursor.eat(",")
            at = cursor.skip()
            name = cursor.attribute_name()
            if name in row or name not in names:
                cursor.fail(f"unexpected {name} in this row", at=at)
            row[name] = cursor.integer()
        missing = [name for name in names if name not in row]
        if missing:
            cursor.fail(f"{missing[0]} is missing in this row", at=start)
        rows.append([row[name] for name in names])
    return rows
