"""Removes an all-gather if every device reads only its own part of the result.

Before:  %a = f32[32] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}, ...
         %k = u32[] partition-id()
         %o = u32[] multiply(%k, 8)
         %d = f32[8] dynamic-slice(%a, %o), dynamic_slice_sizes={8}
After:   readers of %d read %x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.device_offsets import Cut, own_part
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report


@dataclass(frozen=True, slots=True)
class AllGatherDynamicSliceSimplifier(ComputationPass):
    """Remove an all-gather if each device slices only its own part out of the result.

    Readers of the slice then read what the device sent. The slice must take part j of
    the result on device j of its group, along the gathered dimension. It may read the
    result through a reshape that leaves this dimension alone. Nothing else may read the
    result.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_gather_dynamic_slice_simplifier.cc`.
    """

    name: ClassVar[str] = "all-gather-dynamic-slice-simplifier"
    needs_collectives: ClassVar[bool] = True

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Find all of them first, as one may be the operand of another."""
        cuts: list[tuple[Instruction, Cut]] = []
        for all_gather in post_order(computation):
            if all_gather.opcode != "all-gather":
                continue
            cut = own_part(all_gather, computation.module)
            if isinstance(cut, str):
                report.remark(f"not removed: %{all_gather.name} {cut}")
            elif (cut.dimension,) != all_gather.integers("dimensions"):
                report.remark(
                    f"not removed: %{all_gather.name} gathers along another dimension "
                    "than its slice cuts"
                )
            elif has_control_edges(cut.dynamic_slice):
                report.remark(
                    f"not removed: %{cut.dynamic_slice.name} has control edges"
                )
            else:
                cuts.append((all_gather, cut))
        for all_gather, cut in cuts:
            result = all_gather.operands[0]
            if cut.reshape is not None:
                shape = cut.dynamic_slice.shape
                result = computation.new("reshape", shape, (result,))
            computation.replace(cut.dynamic_slice, result)
            report.count("all-gathers-removed")
        if cuts:
            restore_text_order(computation)
