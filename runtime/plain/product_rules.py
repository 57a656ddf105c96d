"""Rules for dot and convolution: bring them to the forms that XLA's CPU back end runs.

    %d = f32[4,4] dot(%a, %b)     bf16 operands   ->  dot of both as f32
    %d = f32[1,1] dot(%a, %b)     f32[1,0] operands   ->  zeros

XLA's CPU back end has no product of some narrow types into a wider one
("BF16 x BF16 = F32"), and divides by the contracted size, which ends the process where
that is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import BITS, COMPLEX, Shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.refusals import check_shape
from hlo_passes.runtime.plain.values import Value, arrays


def product(
    builder: Builder,
    opcode: str,
    shape: Shape,
    operands: Sequence[Instruction],
    attributes: Mapping[str, str],
) -> Instruction:
    """Add a dot or convolution that no instruction of the source has."""
    if _adds_nothing(shape, operands):
        return _zeros(builder, shape)
    return builder.array(opcode, shape, _widened(builder, shape, operands), attributes)


def _product(builder: Builder, op: Operation) -> Value:
    check_shape(op.source, op.shape)
    operands = [a for value in op.operands for a in arrays(value)]
    if _adds_nothing(op.shape, operands):
        return _zeros(builder, op.shape)
    return builder.keep(op, _widened(builder, op.shape, operands))


def _adds_nothing(shape: Shape, operands: Sequence[Instruction]) -> bool:
    """Whether there are results, but nothing to add up for them."""
    return 0 not in shape.dimensions and any(0 in o.shape.dimensions for o in operands)


def _zeros(builder: Builder, shape: Shape) -> Instruction:
    zero = "(0, 0)" if shape.element_type in COMPLEX else "0"
    return builder.constant(shape, zero)


def _widened(
    builder: Builder, shape: Shape, operands: Sequence[Instruction]
) -> list[Instruction]:
    """The operands in the result's type where that is wider."""
    return [
        builder.array("convert", o.shape.with_element_type(shape.element_type), (o,))
        if BITS[o.shape.element_type] < BITS[shape.element_type]
        else o
        for o in operands
    ]


RULES: Final[dict[str, Rule]] = {"dot": _product, "convolution": _product}
