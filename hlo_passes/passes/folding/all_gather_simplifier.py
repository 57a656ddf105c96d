"""Removes all-gathers that gather nothing, and those that each device cuts up again.

Before:  %a = f32[32] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}, ...
         %d = f32[8] dynamic-slice(%a, 8 * %partition-id), dynamic_slice_sizes={8}
After:   readers of %d read %x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.device_offsets import own_part
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.each_collective import rewrite_each


@dataclass(frozen=True, slots=True)
class AllGatherSimplifier(Pass):
    """Remove an all-gather over one device, or if each device keeps only its own part.

    If the result has the shape of the operand, readers of the all-gather read the
    operand. If each device slices only its own part out of the result, readers of the
    slice read the operand. Unlike `all-gather-dynamic-slice-simplifier`, the pass does
    not look through reshapes, but it also removes all-gathers that keep the shape.
    XLA's GPU pipeline does not run it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/all_gather_simplifier.cc`.
    """

    name: ClassVar[str] = "all-gather-simplifier"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-gathers in post order."""
        return rewrite_each(module, "all-gather", _simplify, report, "simplified")


def _simplify(all_gather: Instruction) -> str:
    computation, operand = all_gather.computation, all_gather.operands[0]
    if all_gather.shape.compatible(operand.shape):
        computation.replace(all_gather, operand)
        return ""
    cut = own_part(all_gather, computation.module)
    if isinstance(cut, str):
        return cut
    if cut.reshape is not None:
        return "is reshaped before it is sliced"
    own = cut.dynamic_slice
    if (cut.dimension,) != all_gather.integers("dimensions"):
        return "gathers along another dimension than its slice cuts"
    if not own.shape.compatible(operand.shape):
        return f"is cut by %{own.name} into other parts than were sent"
    if has_control_edges(own):
        return f"stays, because %{own.name} has control edges"
    computation.replace_uses(own, operand)
    computation.remove_with_dead_operands(own)
    return ""
