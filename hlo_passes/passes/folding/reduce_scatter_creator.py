"""Replaces an all-reduce with a reduce-scatter if each device keeps only its part.

Before:  %a = f32[32] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add, ...
         %k = u32[] partition-id()
         %o = u32[] multiply(%k, 8)
         %d = f32[8] dynamic-slice(%a, %o), dynamic_slice_sizes={8}
After:   %s = f32[8] reduce-scatter(%x), replica_groups={{0,1,2,3}}, dimensions={0},
                                         to_apply=%add, ...         readers of %d
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.device_offsets import Cut, own_part
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: Attributes of the all-reduce that the reduce-scatter has too.
_KEPT = ("replica_groups", "use_global_device_ids", "to_apply", "backend_config")


@dataclass(frozen=True, slots=True)
class ReduceScatterCreator(Pass):
    """Replace an all-reduce with a reduce-scatter if each device keeps only its part.

    The slice must take part j of the result on device j of its group. It may read the
    result through a reshape that leaves the cut dimension alone. If the parts do not
    make up the whole, nobody reads the rest, and the pass slices it off first. The pass
    leaves the all-reduce alone if it, the reshape or the slice has control edges.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/backends/gpu/transforms/reduce_scatter_creator.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "reduce-scatter-creator"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-reduces in post order, callees first."""
        version = module.version
        derives = context.release_for(module, self.xla).derives_collectives
        channel = next_channel_id(module)
        for computation in computations_post_order(module):
            made = False
            for all_reduce in post_order(computation):
                if all_reduce.opcode != "all-reduce" or all_reduce.removed:
                    continue
                cut = own_part(all_reduce, module)
                reason = cut if isinstance(cut, str) else _obstacle(all_reduce, cut)
                if reason or isinstance(cut, str):
                    report.remark(
                        f"not made a reduce-scatter: %{all_reduce.name} {reason}"
                    )
                    continue
                scatter(all_reduce, cut, channel, derives=derives)
                channel += all_reduce.channel_id is not None
                report.count("reduce-scatters-made")
                made = True
            if made:
                restore_text_order(computation)
        return module.version != version


def _obstacle(all_reduce: Instruction, cut: Cut) -> str:
    """Why a matching all-reduce stays; '' if nothing speaks against it."""
    for instruction in (all_reduce, cut.reshape, cut.dynamic_slice):
        if instruction is not None and has_control_edges(instruction):
            return f"stays, because %{instruction.name} has control edges"
    unknown = unknown_attribute(all_reduce)
    return f"has the unknown attribute {unknown}" if unknown else ""


def scatter(all_reduce: Instruction, cut: Cut, channel: int, *, derives: bool) -> None:
    """Make a reduce-scatter of an all-reduce and the slice that each device keeps.

    The caller restores the text order.

    Args:
        all_reduce: an all-reduce without control edges.
        cut: how its result is cut, see `own_part`.
        channel: the channel id of the reduce-scatter if the all-reduce has one.
        derives: give the reduce-scatter the metadata and frontend attributes of the
            all-reduce.
    """
    computation = all_reduce.computation
    shape, operand = all_reduce.shape, all_reduce.operands[0]
    whole = list(shape.dimensions)
    part = whole[cut.dimension] // cut.group_size
    # Nobody reads what does not divide: it is left out.
    if whole[cut.dimension] % cut.group_size:
        whole[cut.dimension] = part * cut.group_size
        ranges = ", ".join(f"[0:{size}]" for size in whole)
        operand = computation.new(
            "slice",
            shape.with_dimensions(tuple(whole)),
            (operand,),
            {"slice": f"{{{ranges}}}"},
        )
    attributes = {
        name: text for name, text in all_reduce.attributes.items() if name in _KEPT
    }
    if all_reduce.channel_id is not None:
        attributes = {"channel_id": str(channel), **attributes}
    whole[cut.dimension] = part
    result = computation.new(
        "reduce-scatter", shape.with_dimensions(tuple(whole)), (operand,), {}
    )
    for name, text in (*attributes.items(), ("dimensions", f"{{{cut.dimension}}}")):
        result.set_attribute(name, text)
    if derives:
        derive(result, all_reduce)
    if cut.reshape is not None:
        result = computation.new("reshape", cut.dynamic_slice.shape, (result,))
    # The slice, the reshape and the all-reduce go.
    computation.replace_uses(cut.dynamic_slice, result)
    computation.remove(cut.dynamic_slice)
    if cut.reshape is not None:
        computation.remove(cut.reshape)
    computation.remove_with_dead_operands(all_reduce)
