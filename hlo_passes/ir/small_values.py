"""Attribute values that are plain Python values: flags, numbers, words, lists.

    dimensions={0,1}    kind=kLoop    epsilon=0.001    to_apply=%add

Each kind has a reader that takes a cursor and a writer that takes the value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from hlo_passes.ir.attribute_tables import allowed_words
from hlo_passes.ir.c_strings import quote
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.value_cursor import ValueCursor

#: XLA prints six significant digits of a number unless asked for more.
_SIGNIFICANT_DIGITS: Final = 6
#: XLA reads the words of these attributes in either case.
_ANY_CASE: Final = frozenset(
    {"schedule", "api_version", "operand_precision", "algorithm", "distribution"}
)
_LARGEST_FLOAT32: Final = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def number_text(value: float) -> str:
    """A number with six significant digits, as `absl::StrCat` writes it."""
    if value != value:
        return "nan"
    return f"{value:.{_SIGNIFICANT_DIGITS}g}"


def ints_text(values: Iterable[int]) -> str:
    """`{0,1}`."""
    return f"{{{','.join(map(str, values))}}}"


def names_text(names: Iterable[str]) -> str:
    """`{%a, %b}`."""
    return f"{{{', '.join(f'%{name}' for name in names)}}}"


def bools_text(values: Iterable[bool]) -> str:
    """`{true,false}`."""
    return f"{{{','.join(map(bool_text, values))}}}"


def bool_text(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def shapes_text(shapes: Iterable[Shape]) -> str:
    """`{f32[4]{0}, s32[]}`."""
    return f"{{{', '.join(shape.text for shape in shapes)}}}"


def read_float32(cursor: ValueCursor) -> float:
    """A number that a 32-bit float can hold, rounded to one."""
    at = cursor.skip()
    value = cursor.number()
    if abs(value) > _LARGEST_FLOAT32:
        cursor.fail("this number does not fit 32 bits", at=at)
    return struct.unpack("<f", struct.pack("<f", value))[0]


def read_word(cursor: ValueCursor, name: str, opcode: str) -> str:
    """One of the words that the attribute may have."""
    at = cursor.skip()
    word = cursor.word(f"a value of {name}")
    allowed = allowed_words(name, opcode)
    if name in _ANY_CASE:
        word = next((w for w in allowed if w.lower() == word.lower()), word)
    if word not in allowed:
        cursor.fail(
            f"{name} cannot be {word}", at=at, hint=f"one of {', '.join(allowed)}"
        )
    return word


def read_bool_list(cursor: ValueCursor) -> tuple[bool, ...]:
    """`{true,false}`."""
    return tuple(cursor.items("{", "}", cursor.boolean))


def read_bools(cursor: ValueCursor) -> tuple[bool, ...]:
    """`{true,false}` or a single `true` (module header)."""
    if cursor.sees("{"):
        return read_bool_list(cursor)
    return (cursor.boolean(),)


def read_names(cursor: ValueCursor) -> tuple[str, ...]:
    """`{%a, %b}`, without the `%`."""
    return tuple(cursor.items("{", "}", cursor.name))


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of value is read and written."""

    code: str
    read: Callable[[ValueCursor], Any]
    write: Callable[[Any], str]


#: Kinds whose reading depends on nothing but the text.
SMALL_CODECS: Final[dict[str, Codec]] = {
    "bool": Codec("P200", ValueCursor.boolean, bool_text),
    "int": Codec("P200", ValueCursor.integer, str),
    "float": Codec("P200", read_float32, number_text),
    "string": Codec("P201", ValueCursor.string, quote),
    "int_list": Codec("P202", ValueCursor.integers, ints_text),
    "int_lists": Codec("P202", ValueCursor.integer_lists, lists_text),
    "bool_list": Codec("P202", read_bool_list, bools_text),
    "bools": Codec("P202", read_bools, bools_text),
    "names": Codec("P202", read_names, names_text),
    "computation": Codec("P203", ValueCursor.name, lambda name: f"%{name}"),
    "shape": Codec("P203", ValueCursor.shape, lambda shape: shape.text),
    "shape_list": Codec(
        "P203",
        lambda cursor: tuple(cursor.items("{", "}", cursor.shape)),
        shapes_text,
    ),
}


@lru_cache(maxsize=4096)
def parse_ints(text: str) -> tuple[int, ...]:
    """`{0,1}`. Raises ParseError P202."""
    return parse_small("int_list", text)


def parse_small(kind: str, text: str) -> Any:
    """A value of a kind of `SMALL_CODECS`, whole."""
    codec = SMALL_CODECS[kind]
    cursor = ValueCursor(text, codec.code)
    value = codec.read(cursor)
    cursor.end()
    return value
