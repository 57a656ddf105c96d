"""Merges equal all-gathers of parameters, and constants, but nothing else.

Before:  %w = f32[8] get-tuple-element(%parameter), index=1
         %a = f32[32] all-gather(%w), dimensions={0}, ...
         %b = f32[32] all-gather(%w), dimensions={0}, ...
After:   readers of %a and of %b read %a
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_cse import merge
from hlo_passes.passes.framework.base import Pass, PassContext, Report

#: Opcodes through which a parameter is looked for.
_LOOKED_THROUGH = ("opt-barrier", "convert")


@dataclass(frozen=True, slots=True)
class AllGatherCse(Pass):
    """Keep only the first of several equal all-gathers of a parameter.

    Readers of the other all-gathers then read the first one. The operand may also be an
    element of a parameter, and the all-gather may read it through tuples, barriers,
    conversions, and all-gathers that keep its shape. The pass leaves all other
    all-gathers alone. Like `hlo-cse`, it also merges equal constants. XLA's GPU
    pipeline does not run it.

    Ensures: a second run changes nothing, after `hlo-dce` has removed the dead code.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/hlo/transforms/collectives/all_gather_cse.cc`.
    """

    name: ClassVar[str] = "all-gather-cse"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation, callees first."""
        known: dict[tuple[Instruction, int], bool] = {}

        def gathers_a_parameter(instruction: Instruction) -> bool:
            return instruction.opcode == "all-gather" and _comes_from_parameter(
                instruction.operands[0], known
            )

        return merge(module, report, only=gathers_a_parameter)


def _comes_from_parameter(
    value: Instruction, known: dict[tuple[Instruction, int], bool]
) -> bool:
    """Whether a value comes from a parameter; what is found is kept in `known`."""
    path: list[tuple[Instruction, int]] = []
    index, found = -1, False
    while True:
        place = value, index
        if place in known:
            found = known[place]
            break
        path.append(place)
        if value.opcode == "parameter":
            found = True
            break
        if value.opcode == "get-tuple-element":
            value, index = value.operands[0], value.tuple_index
        elif value.opcode == "tuple" and 0 <= index < len(value.operands):
            value, index = value.operands[index], -1
        elif value.opcode in _LOOKED_THROUGH or (
            value.opcode == "all-gather" and value.shape == value.operands[0].shape
        ):
            value = value.operands[0]
        else:
            break
    known.update(dict.fromkeys(path, found))
    return found
