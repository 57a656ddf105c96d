"""Gives ragged all-to-alls 64-bit offsets and sizes.

Before:  %r = f32[8] ragged-all-to-all(%x, %y, %o, %s, %p, %q), ...        s32
After:   %a = s64[4] convert(%o), and so on
         %t = f32[8] ragged-all-to-all(%x, %y, %a, %b, %c, %d), ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.each_collective import rewrite_each

#: What a ragged all-to-all has in any case.
_KEPT = ("channel_id", "replica_groups", "frontend_attributes")


@dataclass(frozen=True, slots=True)
class RaggedAllToAllCanonicalizer(Pass):
    """Convert the offsets and sizes of ragged all-to-alls to s64.

    Other passes expect this type, for example `ragged-all-to-all-decomposer`. The new
    instruction does not keep the metadata.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/ragged_all_to_all_canonicalizer.cc`.
    """

    name: ClassVar[str] = "ragged-all-to-all-canonicalizer"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit ragged all-to-alls in post order."""
        return rewrite_each(
            module, "ragged-all-to-all", _canonicalize, report, "canonicalized"
        )


def _canonicalize(ragged: Instruction) -> str:
    if ragged.operands[2].shape.element_type == "s64":
        return "has offsets of 64 bits already"
    computation = ragged.computation
    numbers = [
        computation.new("convert", o.shape.with_element_type("s64"), (o,))
        for o in ragged.operands[2:]
    ]
    attributes = {n: t for n, t in ragged.attributes.items() if n in _KEPT}
    new = computation.new(
        ragged.opcode,
        ragged.shape,
        (*ragged.operands[:2], *numbers),
        in_print_order(attributes, ragged.opcode),
    )
    computation.replace_uses(ragged, new)
    computation.remove_with_dead_operands(ragged)
    return ""
