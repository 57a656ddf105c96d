"""Gathers a value before it is broadcast, so that less is sent.

Before:  %b = f32[8,128] broadcast(%x), dimensions={1}
         %a = f32[8,512] all-gather(%b), dimensions={1}
After:   %g = f32[512] all-gather(%x), dimensions={0}
         %c = f32[8,512] broadcast(%g), dimensions={1}        readers of %a

Before:  %b = f32[8,2,128] broadcast(%x), dimensions={2}
         %a = f32[32,2,128] all-gather(%b), dimensions={0}
After:   %r = f32[1,128] reshape(%x)
         %g = f32[4,128] all-gather(%r), dimensions={0}
         %c = f32[4,8,2,128] broadcast(%g), dimensions={0,3}
         %s = f32[32,2,128] reshape(%c)                       readers of %a
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.reductions import constrains_layouts


@dataclass(frozen=True, slots=True)
class AllGatherBcastReorder(Pass):
    """Gather a value before broadcasting it instead of after, so that less is sent.

    This pays only if the broadcast repeats values along a dimension other than the
    gathered one. If it repeats them along the gathered dimension, too, the devices'
    values temporarily become a dimension of their own. The pass leaves a module alone
    if any all-gather in it constrains layouts.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/all_gather_broadcast_reorder.cc`.
    """

    name: ClassVar[str] = "all-gather-bcast-reorder"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-gathers in post order."""
        version = module.version
        if constrains_layouts(module, "all-gather"):
            report.remark("nothing moved: an all-gather constrains layouts")
            return False
        channel = next_channel_id(module)
        for computation in module.computations:
            moved = False
            for all_gather in post_order(computation):
                if all_gather.opcode != "all-gather":
                    continue
                reason = _reason_to_keep(all_gather)
                if reason:
                    report.remark(f"not moved: %{all_gather.name} {reason}")
                    continue
                _gather_first(all_gather, channel)
                channel += all_gather.channel_id is not None
                report.count("broadcasts-moved")
                moved = True
            if moved:
                restore_text_order(computation)
        return module.version != version


def _reason_to_keep(all_gather: Instruction) -> str:
    broadcast = all_gather.operands[0]
    if not all_gather.shape.is_array or broadcast.opcode != "broadcast":
        return "does not gather a broadcast alone"
    varying = {*broadcast.integers("dimensions"), *all_gather.integers("dimensions")}
    sizes = all_gather.shape.dimensions
    if prod(size for k, size in enumerate(sizes) if k not in varying) == 1:
        return "gathers no value more than once"
    return "has control edges" if has_control_edges(all_gather) else ""


def _gather_first(all_gather: Instruction, channel: int) -> None:
    computation, broadcast = all_gather.computation, all_gather.operands[0]
    value, kept = broadcast.operands[0], broadcast.integers("dimensions")
    (dimension,) = all_gather.integers("dimensions")
    sizes = all_gather.shape.dimensions
    changes = {"channel_id": str(channel)} if all_gather.channel_id is not None else {}
    if dimension in kept:
        # The gathered dimension is one of the value's own.
        own = kept.index(dimension)
        inner = list(value.shape.dimensions)
        inner[own] = sizes[dimension]
        shape = value.shape.with_dimensions(tuple(inner))
        changes["dimensions"] = f"{{{own}}}"
        gathered = copy_of(all_gather, (value,), shape, changes)
        result = copy_of(broadcast, (gathered,), all_gather.shape)
    else:
        # The devices become the value's first dimension. The broadcast splits the
        # gathered dimension into devices and what each has.
        kind, inner = value.shape.element_type, list(value.shape.dimensions)
        devices = sizes[dimension] // broadcast.shape.dimensions[dimension]
        single = computation.new("reshape", array_shape(kind, (1, *inner)), (value,))
        changes["dimensions"] = "{0}"
        shape = array_shape(kind, (devices, *inner))
        gathered = copy_of(all_gather, (single,), shape, changes)
        split = (*sizes[:dimension], devices, sizes[dimension] // devices)
        places = (dimension, *(k + (k > dimension) for k in kept))
        spread = computation.new(
            "broadcast",
            array_shape(kind, (*split, *sizes[dimension + 1 :])),
            (gathered,),
            {"dimensions": f"{{{','.join(map(str, places))}}}"},
        )
        result = computation.new("reshape", all_gather.shape, (spread,))
    computation.replace_uses(all_gather, result)
    computation.remove_with_dead_operands(all_gather)
