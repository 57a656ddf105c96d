"""Windows, padding, slice ranges and convolution dimension labels.

    window={size=3x3 stride=2x2 pad=0_1x0_1}      padding=1_1x0_2_1
    slice={[0:2], [0:8:2]}                        dim_labels=b01f_01io->b01f

Source: openxla/xla `xla/window_util.cc`, `hlo_parser.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Final

from hlo_passes.ir.value_cursor import ValueCursor
from hlo_passes.whole_numbers import number_of_digits

_SIZES: Final = re.compile(r"-?[0-9]+(?![x_0-9.])|[0-9]+(?:x[0-9]+)+(?![0-9_.])")
_PADS: Final = re.compile(
    r"-?[0-9]+_-?[0-9]+(?:_[0-9]+)?(?:x-?[0-9]+_-?[0-9]+(?:_[0-9]+)?)*"
)
_DIM_LABELS: Final = re.compile(r"([0-9bf?]{2,})_([0-9io?]{2,})->([0-9bf?]{2,})")


def _integers(cursor: ValueCursor, text: str, separator: str, at: int) -> list[int]:
    values = [number_of_digits(part) for part in text.split(separator)]
    if any(not -(1 << 63) <= value < 1 << 63 for value in values):
        cursor.fail("this integer does not fit 64 bits", at=at)
    return values


# -- window --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window; every field but `size` has XLA's default."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False


_DIMENSION_DEFAULTS: Final = {
    f.name: f.default for f in fields(WindowDimension) if f.name != "size"
}
#: Field of the text, fields of a dimension; in print order.
_WINDOW_FIELDS: Final = {
    "size": ("size",),
    "stride": ("stride",),
    "pad": ("padding_low", "padding_high"),
    "lhs_dilate": ("base_dilation",),
    "rhs_dilate": ("window_dilation",),
    "rhs_reversal": ("reversal",),
}


@dataclass(frozen=True, slots=True)
class Window:
    """A window over some dimensions."""

    dimensions: tuple[WindowDimension, ...] = ()

    def to_text(self) -> str:
        """The braces as XLA prints them; fields at their default are left out."""
        parts = []
        for name, members in _WINDOW_FIELDS.items():
            rows = [[getattr(d, m) for m in members] for d in self.dimensions]
            defaults = [_DIMENSION_DEFAULTS.get(m) for m in members]
            if all(row == defaults for row in rows):
                continue
            texts = ("_".join(str(int(value)) for value in row) for row in rows)
            parts.append(f"{name}={'x'.join(texts)}")
        return f"{{{' '.join(parts)}}}"


def parse_window(text: str) -> Window:
    """The window that `text` spells, braces included. Raises ParseError P230."""
    cursor = ValueCursor(text, "P230")
    start = cursor.skip()
    cursor.expect("{", "before a window")
    found: dict[str, list[tuple[int, ...]]] = {}
    while not cursor.eat("}"):
        at = cursor.skip()
        name = cursor.attribute_name("a field of the window")
        if name not in _WINDOW_FIELDS:
            cursor.fail(
                f"a window has no field {name}",
                at=at,
                hint=f"one of {', '.join(_WINDOW_FIELDS)}",
            )
        if name in found:
            cursor.fail(f"{name} is repeated", at=at)
        found[name] = _read_pads(cursor) if name == "pad" else _read_sizes(cursor)
    cursor.end()
    rank = len(found.get("size", ()))
    for name, rows in found.items():
        if len(rows) != rank:
            cursor.fail(f"{name} has {len(rows)} dimensions, size has {rank}", at=start)
    return Window(tuple(_dimension(found, k) for k in range(rank)))


def _dimension(found: dict[str, list[tuple[int, ...]]], k: int) -> WindowDimension:
    values: dict[str, Any] = {}
    for name, rows in found.items():
        values.update(zip(_WINDOW_FIELDS[name], rows[k], strict=True))
    values["reversal"] = values.get("reversal") == 1
    return WindowDimension(**values)


def _read_sizes(cursor: ValueCursor) -> list[tuple[int, ...]]:
    at = cursor.skip()
    match = cursor.take(_SIZES)
    if not match:
        cursor.fail("expected sizes, as in 3 or 3x3")
    return [(value,) for value in _integers(cursor, match[0], "x", at)]


def _read_pads(cursor: ValueCursor) -> list[tuple[int, ...]]:
    at = cursor.skip()
    match = cursor.take(_PADS)
    if not match:
        cursor.fail("expected a padding, as in 0_1x0_1")
    rows = [tuple(_integers(cursor, p, "_", at)) for p in match[0].split("x")]
    if any(len(row) != 2 for row in rows):
        cursor.fail("the padding of a window is low_high", at=at)
    return rows


# -- padding -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Padding:
    """(low, high, interior) per dimension; low and high may be negative."""

    dimensions: tuple[tuple[int, int, int], ...]

    def to_text(self) -> str:
        """`1_1x0_2`; interiors only when one is not 0."""
        width = 3 if any(interior for _, _, interior in self.dimensions) else 2
        return "x".join("_".join(map(str, row[:width])) for row in self.dimensions)


def parse_padding(text: str) -> Padding:
    """The padding that `text` spells. Raises ParseError P231."""
    cursor = ValueCursor(text, "P231")
    at = cursor.skip()
    match = cursor.take(_PADS)
    if not match:
        cursor.fail("expected a padding, as in 1_1x0_2_1")
    rows = [_integers(cursor, p, "_", at) for p in match[0].split("x")]
    cursor.end()
    return Padding(tuple((r[0], r[1], r[2] if len(r) == 3 else 0) for r in rows))


# -- slice ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slice:
    """(start, limit, stride) per dimension."""

    dimensions: tuple[tuple[int, int, int], ...]

    def to_text(self) -> str:
        """`{[0:2], [0:8]}`; strides only when one is not 1."""
        width = 3 if any(stride != 1 for _, _, stride in self.dimensions) else 2
        ranges = (":".join(map(str, row[:width])) for row in self.dimensions)
        return f"{{{', '.join(f'[{text}]' for text in ranges)}}}"


def parse_slice(text: str) -> Slice:
    """The ranges that `text` spells. Raises ParseError P232."""
    cursor = ValueCursor(text, "P232")

    def one_range() -> tuple[int, int, int]:
        cursor.expect("[")
        start = cursor.integer()
        cursor.expect(":")
        limit = cursor.integer()
        stride = cursor.integer() if cursor.eat(":") else 1
        cursor.expect("]")
        return start, limit, stride

    found = Slice(tuple(cursor.items("{", "}", one_range)))
    cursor.end()
    return found


# -- dimension labels ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DimLabels:
    """Roles of the dimensions of a convolution: `b01f`, `01io`, `b01f`.

    `b` batch, `f` feature, `i` and `o` input and output feature of the kernel, digits
    the spatial dimensions, `?` none of them.
    """

    lhs: str
    rhs: str
    out: str

    @property
    def spatial_rank(self) -> int:
        """Number of spatial dimensions."""
        return sum(label.isdigit() for label in self.lhs)

    def to_text(self) -> str:
        """`b01f_01io->b01f`."""
        return f"{self.lhs}_{self.rhs}->{self.out}"


def parse_dim_labels(text: str) -> DimLabels:
    """The labels that `text` spells. Raises ParseError P233."""
    cursor = ValueCursor(text, "P233")
    match = cursor.take(_DIM_LABELS)
    if not match:
        cursor.fail("expected dimension labels, as in b01f_01io->b01f")
    cursor.end()
    ranks = [_spatial_rank(cursor, match, group) for group in (1, 2, 3)]
    if len(set(ranks)) != 1:
        cursor.fail(
            f"{ranks[0]}, {ranks[1]} and {ranks[2]} spatial dimensions",
            at=match.start(),
            hint="input, kernel and output must have the same number",
        )
    # XLA forgets the unnamed dimensions at the end.
    return DimLabels(*(match[group].rstrip("?") for group in (1, 2, 3)))


def _spatial_rank(cursor: ValueCursor, match: re.Match[str], group: int) -> int:
    """Number of spatial labels, which must be 0 to n-1, all labels distinct."""
    labels = match[group].replace("?", "")
    if len(set(labels)) != len(labels):
        cursor.fail("a label is repeated", at=match.start(group))
    spatial = sorted(label for label in labels if label.isdigit())
    if spatial != [str(k) for k in range(len(spatial))]:
        cursor.fail(
            f"the spatial labels must be 0 to {len(spatial) - 1}",
            at=match.start(group),
        )
    return len(spatial)
