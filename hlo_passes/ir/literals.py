"""Literals: the values of constants.

    constant({ { 1, 2 }, { 3, 4 } })     Literal of s32[2,2]
    constant({...})                      elided: the value is not known

A literal is read with the shape of its constant. Large ones are checked and converted
as a whole, not token by token. Source: openxla/xla `hlo_parser.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.element_types import element_type_of, numpy_dtype
from hlo_passes.ir.literal_reader import read_array
from hlo_passes.ir.literal_text import array_text
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.ir.value_cursor import ValueCursor

if TYPE_CHECKING:
    import numpy as np

#: XLA elides larger arrays unless asked not to.
MAXIMUM_PRINTED_ELEMENTS: Final = 10
#: Tuples nested deeper than this are refused (as for shapes).
MAXIMUM_DEPTH: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant value. Equal when shapes (without layouts) and all bits are.

    `array` holds the elements of an array row-major, whatever the layout (read-only);
    `elements` those of a tuple. Of an elided literal only the shape is known; it is
    equal to nothing but itself.
    """

    shape: Shape
    array: np.ndarray[Any, Any] | None = None
    elements: tuple[Literal, ...] = ()

    @staticmethod
    def from_numpy(values: np.ndarray[Any, Any], shape: Shape | None = None) -> Literal:
        """A literal with these elements; without `shape` it has that of the array.

        ValueError when dimensions differ from the shape's; the elements are converted
        to its type.
        """
        import numpy as np

        values = np.asarray(values)
        if shape is None:
            shape = array_shape(element_type_of(values.dtype), values.shape)
        if shape.dimensions != values.shape:
            msg = f"an array {values.shape} does not fit {shape.text}"
            raise ValueError(msg)
        kept = np.array(values, dtype=numpy_dtype(shape.element_type), order="C")
        kept.setflags(write=False)
        return Literal(shape, kept)

    @staticmethod
    def of_tuple(elements: tuple[Literal, ...]) -> Literal:
        """A tuple of literals."""
        shape = tuple_shape(tuple(element.shape for element in elements))
        return Literal(shape, None, tuple(elements))

    @property
    def is_elided(self) -> bool:
        """Whether the value was left out of the text."""
        if self.shape.is_tuple:
            return any(element.is_elided for element in self.elements)
        return self.array is None

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The elements, row-major, read-only (ml_dtypes for types NumPy lacks).

        Raises UnsupportedHloError: S011 for an elided literal, S012 for a tuple.
        """
        if self.shape.is_tuple:
            raise UnsupportedHloError(
                "a tuple literal is not a single array",
                code="S022",
                hint="take its elements",
            )
        if self.array is None:
            raise UnsupportedHloError(
                f"the value of this {self.shape.text} constant was left out ({{...}})",
                code="S021",
                hint="dump with large constants printed",
            )
        return self.array

    def to_text(self, *, elide: bool = False) -> str:
        """As XLA prints it between `constant(` and `)`.

        With `elide`, as by default, tuples and more than ten elements become `{...}`.
        """
        if elide and (
            self.shape.is_tuple or self.shape.element_count > MAXIMUM_PRINTED_ELEMENTS
        ):
            return "{...}"
        if self.shape.is_tuple:
            return f"( {', '.join([element.to_text() for element in self.elements])} )"
        if self.array is None:
            return "{...}"
        return array_text(self.array, self.shape.element_type)

    def to_shaped_text(self) -> str:
        """As XLA prints `literal=`: every array after its shape with layout."""
        if self.shape.is_tuple:
            inner = [element.to_shaped_text() for element in self.elements]
            return f"( {', '.join(inner)} )"
        return f"{self.shape.text} {self.to_text()}"

    def _key(self) -> tuple[object, ...]:
        if self.array is None:
            return (id(self),) if self.is_elided else self.elements
        return (self.shape.text_without_layout, self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        """By shape (without layout) and bits."""
        if not isinstance(other, Literal):
            return NotImplemented
        return self is other or (
            self.shape.is_tuple == other.shape.is_tuple and self._key() == other._key()
        )

    def __hash__(self) -> int:
        """By shape (without layout) and bits."""
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class ShapedLiteral:
    """The value of `literal=` of a custom call: a literal with its shape."""

    literal: Literal

    def to_text(self) -> str:
        """`f32[2]{0} {1, 2}`."""
        return self.literal.to_shaped_text()


def parse_literal(text: str, shape: Shape) -> Literal:
    """The literal of this shape that `text` spells.

    Raises ParseError: P240 (form), P241 (a value out of range).
    """
    cursor = ValueCursor(text, "P240")
    literal = _read_literal(cursor, shape)
    cursor.end()
    return literal


def parse_shaped_literal(text: str) -> ShapedLiteral:
    """Shape and literal, `f32[2]{0} {1, 2}`. Raises ParseError P240, P241, P01x."""
    cursor = ValueCursor(text, "P240")
    literal = _read_shaped(cursor)
    cursor.end()
    return ShapedLiteral(literal)


def _read_literal(cursor: ValueCursor, shape: Shape) -> Literal:
    if not shape.is_tuple:
        if not shape.is_array:
            cursor.fail(f"there are no literals of {shape.text}")
        return Literal(shape, read_array(cursor, shape))
    # Tuples in progress: shape, what has been read of it.
    stack: list[tuple[Shape, list[Literal]]] = []
    current: Shape | None = shape
    while True:
        if current is not None and current.is_tuple:
            cursor.expect("(", "before a tuple's elements")
            stack.append((current, []))
        elif current is not None:
            stack[-1][1].append(_read_literal(cursor, current))
        owner, found = stack[-1]
        if len(found) < len(owner.elements):
            if found:
                cursor.expect(",", "between the elements of a tuple")
            current = owner.elements[len(found)]
            continue
        cursor.expect(")", f"after {len(found)} elements of a tuple")
        literal = Literal(owner, None, tuple(found))
        stack.pop()
        if not stack:
            return literal
        stack[-1][1].append(literal)
        current = None


def _read_shaped(cursor: ValueCursor) -> Literal:
    open_tuples: list[list[Literal]] = []
    while True:
        if cursor.eat("("):
            if len(open_tuples) >= MAXIMUM_DEPTH:
                cursor.fail(f"tuples nested deeper than {MAXIMUM_DEPTH}")
            open_tuples.append([])
            literal: Literal | None = None
            if not cursor.sees(")"):
                continue
        else:
            literal = _read_literal(cursor, cursor.shape())
        while True:
            if literal is not None:
                if not open_tuples:
                    return literal
                open_tuples[-1].append(literal)
                if cursor.eat(","):
                    break
            cursor.expect(")", "at the end of a tuple")
            literal = Literal.of_tuple(tuple(open_tuples.pop()))
