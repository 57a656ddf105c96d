"""Shapes: element types, dimensions, layouts; sizes in bytes; the text form.

    f32[8,128]{1,0:T(8,128)S(5)}    (f32[4]{0}, (s32[], token[]))    f32[<=8,?]{1,0}

A shape is a value: equal texts are the same interned object. Source of the widths and
defaults: openxla/xla `xla/primitive_util.h`, `xla/layout.h` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

#: Bits per element. `token` and `opaque` have none.
BITS: Final[dict[str, int]] = {
    "pred": 8,
    **{f"s{n}": n for n in (1, 2, 4, 8, 16, 32, 64)},
    **{f"u{n}": n for n in (1, 2, 4, 8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    **dict.fromkeys(
        (
            "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4",
            "f8e5m2fnuz", "f8e4m3fnuz", "f8e8m0fnu",
        ),
        8,
    ),
    "f4e2m1fn": 4, "f6e2m3fn": 6, "f6e3m2fn": 6,
    "c64": 64, "c128": 128,
    "token": 0, "opaque": 0,
}  # fmt: skip

PRIMITIVE_TYPES: Final = frozenset(BITS)
FLOATING: Final = frozenset(t for t in BITS if t[0] == "f" or t == "bf16")
COMPLEX: Final = frozenset({"c64", "c128"})
SIGNED: Final = frozenset(t for t in BITS if t[0] == "s")
UNSIGNED: Final = frozenset(t for t in BITS if t[0] == "u")
INTEGRAL: Final = SIGNED | UNSIGNED

#: A dimension without bound (`?`).
UNBOUNDED: Final = -1


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory; every field but the first has XLA's default.

    `tiles` are tuples of ints, -1 for `*` (combine with the next minor dimension).
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    tail_padding_alignment: int = 1
    index_type: str = ""
    pointer_type: str = ""
    element_size_in_bits: int = 0
    memory_space: int = 0
    split_configs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    metadata_prefix_bytes: int = 0

    def to_text(self) -> str:
        """The braces as XLA prints them; '' for a scalar without any part."""
        parts = [
            *(["T" + "".join(map(_tile_text, self.tiles))] if self.tiles else []),
            *(
                [f"L({self.tail_padding_alignment})"]
                if self.tail_padding_alignment != 1
                else []
            ),
            *([f"#({self.index_type})"] if self.index_type else []),
            *([f"*({self.pointer_type})"] if self.pointer_type else []),
            *([f"E({self.element_size_in_bits})"] if self.element_size_in_bits else []),
            *([f"S({self.memory_space})"] if self.memory_space else []),
            *(["SC"] if self.split_configs else []),
            *(
                f"({dim}:{','.join(map(str, indices))})"
                for dim, indices in self.split_configs
            ),
            *(
                [f"M({self.metadata_prefix_bytes})"]
                if self.metadata_prefix_bytes
                else []
            ),
        ]
        order = ",".join(map(str, self.minor_to_major))
        if not parts:
            return f"{{{order}}}" if order else ""
        return f"{{{order}:{''.join(parts)}}}"


def _tile_text(tile: tuple[int, ...]) -> str:
    return f"({','.join('*' if d == -1 else str(d) for d in tile)})"


class Shape:
    """An array, tuple, token, opaque or buffer shape. Immutable; compares by value.

    Attributes:
        element_type: a key of `BITS`, or 'tuple', or 'buffer' (`b(f32[8])`).
        dimensions: sizes, bounds for dynamic dimensions, `UNBOUNDED` for `?`.
        dynamic: per dimension, whether the size is only known at run time.
        layout: None for tuples, tokens, opaque.
        elements: of a tuple, or the one array of a buffer.
        text: as XLA prints it, layouts included.
    """

    __slots__ = (
        "_bytes", "_hash", "_without_layout", "dimensions", "dynamic", "element_type",
        "elements", "layout", "text",
    )  # fmt: skip

    element_type: str
    dimensions: tuple[int, ...]
    dynamic: tuple[bool, ...]
    layout: Layout | None
    elements: tuple[Shape, ...]
    text: str

    def __init__(
        self,
        element_type: str,
        dimensions: tuple[int, ...] = (),
        layout: Layout | None = None,
        *,
        dynamic: tuple[bool, ...] | None = None,
        elements: tuple[Shape, ...] = (),
    ) -> None:
        """A missing layout of an array is filled with the default, as XLA does."""
        if layout is None and element_type not in ("tuple", "token", "opaque"):
            layout = Layout(tuple(range(len(dimensions) - 1, -1, -1)))
        self.element_type = element_type
        self.dimensions = dimensions
        self.dynamic = dynamic if dynamic is not None else (False,) * len(dimensions)
        self.layout = layout if element_type != "buffer" else None
        self.elements = elements
        self.text = self._to_text(with_layout=True)
        self._hash = hash(self.text)
        self._bytes: int | None = None
        self._without_layout: str | None = None

    # -- kind ---------------------------------------------------------------

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.element_type == "tuple"

    @property
    def is_array(self) -> bool:
        """Whether this is an array (scalars included): no tuple, token, opaque."""
        return self.element_type in BITS and BITS[self.element_type] > 0

    @property
    def is_token(self) -> bool:
        """Whether this is a token."""
        return self.element_type == "token"

    @property
    def is_scalar(self) -> bool:
        """Whether this is an array of rank 0."""
        return self.is_array and not self.dimensions

    @property
    def rank(self) -> int:
        """Number of dimensions of an array, 0 for everything else."""
        return len(self.dimensions)

    @property
    def is_dynamic(self) -> bool:
        """Whether any array in it has a dimension known only at run time."""
        return any(True in leaf.dynamic for _, leaf in self.leaves())

    # -- sizes --------------------------------------------------------------

    @property
    def element_count(self) -> int:
        """Elements of all arrays in it; bounds count for dynamic dimensions."""
        if self.is_array:
            return prod(self.dimensions)
        return sum(s.element_count for s in self.elements)

    @property
    def byte_size(self) -> int:
        """Bytes of all arrays in it, as XLA counts them for thresholds.

        A type narrower than a byte takes one byte, unless the layout carries `E(n)`
        (then n bits, the total rounded up). Tokens and tuple tables take none.
        """
        if self._bytes is None:
            if self.is_array:
                self._bytes = self._array_bytes()
            else:
                self._bytes = sum(s.byte_size for s in self.elements)
        return self._bytes

    def _array_bytes(self) -> int:
        count = prod(d for d in self.dimensions if d != UNBOUNDED)
        bits = self.layout.element_size_in_bits if self.layout else 0
        if bits:
            return (count * bits + 7) // 8
        return count * ((BITS[self.element_type] + 7) // 8)

    def leaves(self) -> Iterator[tuple[tuple[int, ...], Shape]]:
        """(index path, shape) of everything that is not a tuple, depth first."""
        if not self.is_tuple:
            yield (), self
            return
        for k, element in enumerate(self.elements):
            for path, leaf in element.leaves():
                yield (k, *path), leaf

    def at(self, path: tuple[int, ...]) -> Shape:
        """The shape at an index path; IndexError where there is none."""
        shape = self
        for k in path:
            if not shape.is_tuple or k < 0:
                msg = f"{shape.text} has no element {k}"
                raise IndexError(msg)
            shape = shape.elements[k]
        return shape

    # -- comparison ---------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """By value, layouts included."""
        return self is other or (isinstance(other, Shape) and self.text == other.text)

    def __hash__(self) -> int:
        """By value."""
        return self._hash

    def compatible(self, other: Shape, *, ignore_element_type: bool = False) -> bool:
        """Same types and dimensions; layouts and dynamic flags are ignored."""
        if self.text == other.text:
            return True
        if self.element_type != other.element_type and not (
            ignore_element_type and self.is_array and other.is_array
        ):
            return False
        return (
            self.dimensions == other.dimensions
            and len(self.elements) == len(other.elements)
            and all(
                a.compatible(b, ignore_element_type=ignore_element_type)
                for a, b in zip(self.elements, other.elements, strict=True)
            )
        )

    # -- derived shapes -----------------------------------------------------

    def with_layout(self, layout: Layout | None) -> Shape:
        """The same array with another layout (None: the default one)."""
        return intern(
            Shape(self.element_type, self.dimensions, layout, dynamic=self.dynamic)
        )

    def with_element_type(self, element_type: str) -> Shape:
        """The same array with another element type; `E(n)` is dropped."""
        layout = self.layout and replace(self.layout, element_size_in_bits=0)
        return intern(
            Shape(element_type, self.dimensions, layout, dynamic=self.dynamic)
        )

    def with_dimensions(self, dimensions: tuple[int, ...]) -> Shape:
        """Same type, other sizes; the layout is kept where the rank is."""
        same_rank = len(dimensions) == len(self.dimensions)
        return intern(
            Shape(
                self.element_type,
                dimensions,
                self.layout if same_rank else None,
                dynamic=self.dynamic if same_rank else None,
            )
        )

    # -- text ---------------------------------------------------------------

    def _to_text(self, *, with_layout: bool) -> str:
        if self.element_type == "tuple":
            texts = [
                e.text if with_layout else e.text_without_layout for e in self.elements
            ]
            for k in range(5, len(texts), 5):
                texts[k] = f"/*index={k}*/{texts[k]}"
            return f"({', '.join(texts)})"
        if self.element_type == "buffer":
            return f"b({self.elements[0].text})"
        if True in self.dynamic:
            dims = ",".join(
                ("?" if d == UNBOUNDED else f"<={d}") if dynamic else str(d)
                for d, dynamic in zip(self.dimensions, self.dynamic, strict=True)
            )
        else:
            dims = ",".join(map(str, self.dimensions))
        layout = self.layout.to_text() if with_layout and self.layout else ""
        return f"{self.element_type}[{dims}]{layout}"

    @property
    def text_without_layout(self) -> str:
        """As in a computation's signature: `f32[8,128]`, `(f32[1], s32[])`."""
        if self._without_layout is None:
            if self.elements:
                self._without_layout = self._to_text(with_layout=False)
            else:
                self._without_layout = self.text.partition("{")[0]
        return self._without_layout

    def __str__(self) -> str:
        """The text, layouts included."""
        return self.text

    def __repr__(self) -> str:
        """Shape('f32[8]{0}')."""
        return f"Shape({self.text!r})"


# Interned shapes by their canonical text. Cleared when it grows past the bound, which
# costs identity (not equality) of shapes made before.
_INTERNED: dict[str, Shape] = {}
_INTERN_LIMIT = 200_000


def intern(shape: Shape) -> Shape:
    """The one object that represents all shapes equal to this."""
    known = _INTERNED.get(shape.text)
    if known is not None:
        return known
    if len(_INTERNED) >= _INTERN_LIMIT:
        _INTERNED.clear()
    _INTERNED[shape.text] = shape
    return shape


def array_shape(
    element_type: str, dimensions: tuple[int, ...] = (), layout: Layout | None = None
) -> Shape:
    """An array shape, interned; without a layout the default one."""
    return intern(Shape(element_type, tuple(dimensions), layout))


def tuple_shape(elements: tuple[Shape, ...] | list[Shape]) -> Shape:
    """A tuple shape, interned."""
    return intern(Shape("tuple", elements=tuple(elements)))


TOKEN: Final = intern(Shape("token"))
