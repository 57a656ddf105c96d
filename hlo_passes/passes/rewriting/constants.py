"""Constants, and what is computed from them alone.

zeros(%computation, f32[8,4])        broadcast(constant(0)), dimensions={}
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.rewriting.reductions import number_text


def scalar(computation: Computation, element_type: str, number: int) -> Instruction:
    """A scalar constant with a whole number."""
    literal = number_text(element_type, number)
    return computation.new("constant", array_shape(element_type), literal=literal)


def table(
    computation: Computation, element_type: str, numbers: Iterable[int]
) -> Instruction:
    """A constant with one dimension."""
    listed = [str(number) for number in numbers]
    shape = array_shape(element_type, (len(listed),))
    return computation.new("constant", shape, literal=f"{{{', '.join(listed)}}}")


def spread(value: Instruction, shape: Shape) -> Instruction:
    """A scalar in every place of a shape."""
    return value.computation.new("broadcast", shape, (value,), {"dimensions": "{}"})


def zeros(computation: Computation, shape: Shape) -> Instruction:
    """Zero in every place of a shape."""
    return spread(scalar(computation, shape.element_type, 0), shape)
