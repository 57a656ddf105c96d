"""Reads shapes from text.

    array  = type "[" [ dim { "," dim } ] "]" [ "{" [order] [ ":" part* ] "}" ]
    shape  = array | "(" [ shape { "," shape } ] ")" | "b" "(" array ")"

The common form is one regular expression; tuples are read with a stack, so that
`MAXIMUM_DEPTH` limits the nesting, not Python's stack.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable

from hlo_passes.errors import ParseError
from hlo_passes.ir.lexical import COMMENT, GAP, error, skip_trivia
from hlo_passes.ir.shapes import (
    BITS,
    PRIMITIVE_TYPES,
    UNBOUNDED,
    Layout,
    Shape,
    intern,
)
from hlo_passes.source import SourceText

#: Tuples nested deeper than this are refused (XLA's own limit is 8192 levels of
#: grammar; no compiler output comes close to either).
MAXIMUM_DEPTH = 256

_TYPE = re.compile(rf"[a-z][a-z0-9]*(?={GAP}\[)")
_COMMENT = re.compile(COMMENT)
_BUFFER = re.compile(rf"b{GAP}\({GAP}")
_SIZE = rf"(?:(?:<={GAP})?-?[0-9]{{1,19}}|\?)"
# No two gaps meet, so that a long one is split in one way alone.
_SIZES = rf"{_SIZE}{GAP}(?:,{GAP}{_SIZE}{GAP})*"
_DIMENSIONS = re.compile(rf"{GAP}\[({GAP}(?:{_SIZES})?)\]")
_LAYOUT_OPEN = re.compile(rf"{GAP}\{{(?={GAP}[0-9:])")
_LAYOUT_INSIDE = re.compile(rf"(?:[^}}/]++|{COMMENT})*")
_LAYOUT_GAP = re.compile(rf"(?:[ \t\r\n]++|{COMMENT})+")
#: A blank that keeps no words and numbers apart.
_NEEDLESS_BLANK = re.compile(r" (?![A-Za-z0-9_.-])|(?<![A-Za-z0-9_.-]) ")
_LAYOUT_ORDER = re.compile(r"([0-9]{1,18}(?:,[0-9]{1,18})*)?(?=[:}])")
_TILE = re.compile(r"\(((?:\*|[0-9]{1,18})(?:,(?:\*|[0-9]{1,18}))*)?\)")
_LEVELS = re.compile(r"D\([DCHS]\+?~?(?:,[DCHS]\+?~?)*\)")
_NUMBER = re.compile(r"\((-?[0-9]{1,20})\)")
_TYPE_ARGUMENT = re.compile(r"\(([a-z][a-z0-9]*)\)")
_SPLIT = re.compile(r"SC((?:\([0-9]{1,18}:[0-9]{1,18}(?:,[0-9]{1,18})*\))+)")
_SPLIT_ENTRY = re.compile(r"\(([0-9]{1,18}):([0-9]{1,18}(?:,[0-9]{1,18})*)\)")

#: The common form: what XLA prints for an array without layout parts. A layout may come
#: after a blank or a comment.
_PLAIN_ARRAY = re.compile(
    r"([a-z][a-z0-9]*)\[([0-9,]*)\](?:\{([0-9,]+)\}|(?![ \t\r\n]*[{/]))"
)

_BLANKS = str.maketrans("", "", " \t\r\n")

# Parsed shapes by their exact text.
_PARSED: dict[str, Shape] = {}
_PARSED_LIMIT = 200_000


def parse_shape(text: str) -> Shape:
    """The shape that `text` spells completely. Raises ParseError P010-P014."""
    shape = _PARSED.get(text)
    if shape is None:
        source = SourceText(text, "<shape>")
        shape, end = read_shape(source, 0)
        end = skip_trivia(text, end)
        if end != len(text):
            raise error(source, end, "P010", "unexpected text after the shape")
        if len(_PARSED) >= _PARSED_LIMIT:
            _PARSED.clear()
        _PARSED[text] = shape
    return shape


def known_shape(text: str) -> Shape | None:
    """The shape that `text` spells if this very text was read before, or None."""
    return _PARSED.get(text)


def _pickled(shape: Shape) -> tuple[Callable[[str], Shape], tuple[str]]:
    return parse_shape, (shape.text,)


# A shape is pickled as its text: no nesting is too deep, equal ones stay one object.
copyreg.pickle(Shape, _pickled)


def read_shape(source: SourceText, at: int) -> tuple[Shape, int]:
    """The shape that starts at offset `at` (blanks allowed), and where it ends."""
    text = source.text
    open_tuples: list[tuple[int, list[Shape]]] = []
    while True:
        at = skip_trivia(text, at)
        # Open a tuple, or read an array or token.
        if text.startswith("(", at):
            if len(open_tuples) >= MAXIMUM_DEPTH:
                raise error(
                    source, at, "P011",
                    f"tuple shapes nested deeper than {MAXIMUM_DEPTH}",
                )  # fmt: skip
            open_tuples.append((at, []))
            at = skip_trivia(text, at + 1)
            if not text.startswith(")", at):
                continue
            shape: Shape | None = None
        else:
            shape, at = _read_leaf(source, at)
        # Close all tuples that end here.
        while True:
            if shape is not None:
                if not open_tuples:
                    return shape, at
                open_tuples[-1][1].append(shape)
            at = skip_trivia(text, at)
            if text.startswith(",", at) and shape is not None:
                at += 1
                break
            if text.startswith(")", at):
                _, elements = open_tuples.pop()
                shape = intern(Shape("tuple", elements=tuple(elements)))
                at += 1
                continue
            opened = source.location(open_tuples[-1][0])
            raise error(
                source, at, "P012", "expected ',' or ')' in a tuple shape",
                f"the tuple begins at line {opened.line}, column {opened.column}",
            )  # fmt: skip


def _read_leaf(source: SourceText, at: int) -> tuple[Shape, int]:
    text = source.text
    opened = _BUFFER.match(text, at)
    if opened:
        array, end = _read_array(source, opened.end())
        end = skip_trivia(text, end)
        if not text.startswith(")", end):
            raise error(source, end, "P012", "expected ')' after a buffer's array")
        return intern(Shape("buffer", elements=(array,))), end + 1
    return _read_array(source, at)


def _read_array(source: SourceText, at: int) -> tuple[Shape, int]:
    text = source.text
    # Most shapes have been read before.
    plain = _PLAIN_ARRAY.match(text, at)
    if plain:
        shape = _PARSED.get(plain[0])
        if shape is not None:
            return shape, plain.end()
    # Read the element type.
    match = _TYPE.match(text, at)
    if not match or match[0] not in PRIMITIVE_TYPES:
        raise error(
            source, at, "P010", "expected a shape",
            "a shape reads like f32[8,128]{1,0}, f32[] or (f32[4], s32[])",
        )  # fmt: skip
    element_type = match[0]
    # Read the dimensions, with `<=` for a bound and `?` for an unbounded one.
    dims = _DIMENSIONS.match(text, match.end())
    if not dims:
        raise error(
            source,
            match.end(),
            "P013",
            "expected dimensions in brackets, as in [8,128]",
        )
    sizes: list[int] = []
    dynamic: list[bool] = []
    inside = _COMMENT.sub("", dims[1]) if "/" in dims[1] else dims[1]
    inside = inside.translate(_BLANKS)
    for part in inside.split(",") if inside else ():
        bounded = part.startswith("<=")
        size = UNBOUNDED if part == "?" else int(part[2:] if bounded else part)
        if (size < 0 and part != "?") or size >= 1 << 63:
            raise error(source, dims.start(1), "P013", f"dimension {part} out of range")
        sizes.append(size)
        dynamic.append(bounded or part == "?")
    # Read the layout, and remember the shape under its text.
    layout, end = _read_layout(source, dims.end(), element_type, len(sizes))
    key = text[at:end]
    shape = _PARSED.get(key)
    if shape is None:
        shape = intern(
            Shape(element_type, tuple(sizes), layout, dynamic=tuple(dynamic))
        )
        if len(_PARSED) < _PARSED_LIMIT:
            _PARSED[key] = shape
    return shape, end


def _read_layout(
    source: SourceText, at: int, element_type: str, rank: int
) -> tuple[Layout | None, int]:
    text = source.text
    opened = _LAYOUT_OPEN.match(text, at)
    if not opened:
        return None, at
    at = opened.end()
    inside = _LAYOUT_INSIDE.match(text, at)
    assert inside is not None  # it matches anything
    if _LAYOUT_GAP.search(inside[0]) is None:
        return _read_plain_layout(source, at, element_type, rank)
    # Read the same layout without blanks and comments.
    plain = _NEEDLESS_BLANK.sub("", _LAYOUT_GAP.sub(" ", inside[0]))
    try:
        layout, _ = _read_plain_layout(SourceText(f"{plain}}}"), 0, element_type, rank)
    except ParseError as problem:
        raise error(source, at, "P014", problem.message) from None
    if not text.startswith("}", inside.end()):
        raise error(source, at, "P014", "expected '}' at the end of a layout")
    return layout, inside.end() + 1


def _read_plain_layout(
    source: SourceText, at: int, element_type: str, rank: int
) -> tuple[Layout | None, int]:
    """The layout that is open at offset `at`, without blanks; and where it ends."""
    text = source.text
    order = _LAYOUT_ORDER.match(text, at)
    if not order:
        raise error(source, at, "P014", "expected a layout, as in {1,0}")
    minor_to_major = tuple(map(int, order[1].split(","))) if order[1] else ()
    if len(minor_to_major) != rank:
        raise error(
            source, at, "P014",
            f"the layout names {len(minor_to_major)} dimensions, the shape has {rank}",
        )  # fmt: skip
    at = order.end()
    fields: dict[str, object] = {}
    if text.startswith(":", at):
        at = _read_layout_parts(source, at + 1, fields)
    if not text.startswith("}", at):
        raise error(source, at, "P014", "expected '}' at the end of a layout")
    if not BITS[element_type]:
        return None, at + 1
    return Layout(minor_to_major, **fields), at + 1  # type: ignore[arg-type]


def _read_layout_parts(source: SourceText, at: int, fields: dict[str, object]) -> int:
    """Parts in their fixed order: D T L # * E S SC M."""
    text = source.text
    # Skip the level types.
    if match := _LEVELS.match(text, at):
        at = match.end()
    # Read the tiles.
    if text.startswith("T(", at):
        at += 1
        tiles: list[tuple[int, ...]] = []
        while match := _TILE.match(text, at):
            sizes = match[1].split(",") if match[1] else ()
            tiles.append(tuple(-1 if d == "*" else int(d) for d in sizes))
            at = match.end()
        if not tiles:
            raise error(source, at, "P014", "expected a tile, as in T(8,128)")
        fields["tiles"] = tuple(tiles)
    # Read the other parts, each of which may be absent.
    for letter, name, pattern in (
        ("L", "tail_padding_alignment", _NUMBER),
        ("#", "index_type", _TYPE_ARGUMENT),
        ("*", "pointer_type", _TYPE_ARGUMENT),
        ("E", "element_size_in_bits", _NUMBER),
        ("S", "memory_space", _NUMBER),
        ("SC", "split_configs", _SPLIT),
        ("M", "metadata_prefix_bytes", _NUMBER),
    ):
        if not text.startswith(letter + "(", at):
            continue
        if letter == "SC":
            match = _SPLIT.match(text, at)
            if match:
                fields[name] = tuple(
                    (int(dim), tuple(map(int, indices.split(","))))
                    for dim, indices in _SPLIT_ENTRY.findall(match[1])
                )
        else:
            match = pattern.match(text, at + len(letter))
            if match:
                value = match[1]
                if pattern is _TYPE_ARGUMENT and value not in PRIMITIVE_TYPES:
                    raise error(source, at, "P014", f"{value} is not an element type")
                if pattern is _NUMBER and not _fits_64_bits(value):
                    match = None
                else:
                    fields[name] = int(value) if pattern is _NUMBER else value
        if not match:
            raise error(source, at, "P014", f"cannot read the layout's {letter}(...)")
        at = match.end()
    return at


def _fits_64_bits(digits: str) -> bool:
    return -(1 << 63) <= int(digits) < 1 << 63
