"""The input of a shape rule: opcode, operand shapes, attributes, callees.

    add(f32[8], f32[8])  ->  Query("add", (f32[8], f32[8]))

A rule returns the result shape or raises `ShapeError`. Rules see the declared shape
only where the operands do not determine the result (an element type, a size).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from hlo_passes.errors import HloError
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.small_values import parse_ints
from hlo_passes.whole_numbers import number_of_digits

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation

_INTEGER = re.compile(r"-?\d+")


class ShapeError(HloError):
    """Operands, attributes and result of an instruction do not fit together."""

    default_code = "V400"


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameter shapes, by number, and result shape of a computation."""

    parameters: tuple[Shape, ...]
    result: Shape


def signature_of(computation: Computation) -> Signature:
    """The signature that a computation's own instructions give it."""
    return Signature(
        tuple(p.shape for p in computation.parameters), computation.root.shape
    )


@dataclass(frozen=True, slots=True)
class Query:
    """One instruction as a shape rule sees it.

    Attributes:
        opcode: as printed.
        operands: their shapes.
        attributes: texts by name.
        callees: signatures of the called computations, in XLA's order.
        declared: the shape in the text, None where it must be inferred.
    """

    opcode: str
    operands: Sequence[Shape]
    attributes: Mapping[str, str] = field(default_factory=dict)
    callees: Sequence[Signature] = ()
    declared: Shape | None = None

    def fail(self, what: str) -> NoReturn:
        """Raise a ShapeError that names the opcode."""
        raise ShapeError(f"{self.opcode}: {what}")

    def operand(self, index: int) -> Shape:
        """Shape of an operand; refused where there is none."""
        if index >= len(self.operands):
            self.fail(f"operand {index} is missing")
        return self.operands[index]

    def array(self, index: int) -> Shape:
        """Shape of an operand that must be an array."""
        shape = self.operand(index)
        if not shape.is_array:
            self.fail(f"operand {index} must be an array, it is {shape}")
        return shape

    def result(self) -> Shape:
        """The declared shape; refused where it was left out."""
        if self.declared is None:
            self.fail("the operands do not determine the result's shape, write it")
        return self.declared

    def text(self, name: str) -> str:
        """Text of an attribute that must be there."""
        text = self.attributes.get(name)
        if text is None:
            self.fail(f"{name}= is missing")
        return text

    def integer(self, name: str, default: int | None = None) -> int:
        """Value of an integer attribute; without a default it must be there."""
        text = self.attributes.get(name)
        if text is None and default is not None:
            return default
        text = self.text(name)
        if not _INTEGER.fullmatch(text):
            self.fail(f"{name} must be a number, it is {text}")
        return number_of_digits(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Value of a boolean attribute."""
        return self.attributes.get(name, "true" if default else "false") == "true"

    def integers(self, name: str, *, required: bool = False) -> tuple[int, ...]:
        """Value of a list attribute, () where it is not there."""
        text = self.text(name) if required else self.attributes.get(name, "{}")
        return parse_ints(text)

    def callee(self, index: int = 0) -> Signature:
        """Signature of a called computation."""
        if index >= len(self.callees):
            self.fail("the called computation is missing")
        return self.callees[index]

    def in_range(
        self, name: str, dimensions: Iterable[int], rank: int, *, unique: bool = True
    ) -> None:
        """Refuse dimension numbers outside [0, rank) and perhaps repeated ones."""
        listed = tuple(dimensions)
        for dimension in listed:
            if not 0 <= dimension < rank:
                self.fail(f"{name} {dimension} is outside [0, {rank})")
        if unique and len(set(listed)) != len(listed):
            self.fail(f"{name} names a dimension twice: {listed}")
