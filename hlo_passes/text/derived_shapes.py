"""Shapes that XLA's reader derives from the operands, whatever the text declares.

    %s = f32[3] send(%x, %k)            (bf16[8], u32[], token[]) if %x is bf16[8]
    %d = bf16[8]{0} send-done(%s)       token[]

Source: openxla/xla `xla/hlo/parser/hlo_parser.cc` (CreateInstruction).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_passes.errors import HloError

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.shapes import Shape

#: Opcodes whose declared shape XLA does not use; of recv it uses the first element.
DERIVED_OPCODES: Final = frozenset(
    "add-dependency after-all outfeed recv recv-done send send-done".split()
)


def derived_shape(
    opcode: str,
    declared: Shape,
    operands: Sequence[Instruction],
    attributes: Mapping[str, str],
) -> Shape:
    """The shape of an instruction whose opcode is one of `DERIVED_OPCODES`.

    That is the declared one where it differs in layouts at most, and where the operands
    do not fit, which the verifier reports.
    """
    from hlo_passes.ir.shape_inference import Query, result_shape

    shapes = tuple([o.shape for o in operands])
    try:
        derived = result_shape(Query(opcode, shapes, attributes, (), declared))
    except HloError:
        return declared
    return declared if derived is None or declared.compatible(derived) else derived
