"""Replaces an all-gather with an all-reduce: each device adds its part to zeros.

Before:  %a = f32[32] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}, ...
After:   %z = f32[32] broadcast(0), dimensions={}
         %k = u32[] multiply(id, 8)
         %u = f32[32] dynamic-update-slice(%z, %x, %k)
         %b = f32[32] all-reduce(%u), replica_groups={{0,1,2,3}}, ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.channels import suits_all_reduce
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.decomposing.own_position import (
    obstacle_to_position,
    starts_of_own_part,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.constants import zeros
from hlo_passes.passes.rewriting.each_collective import rewrite_each
from hlo_passes.passes.rewriting.reductions import (
    add_reduction,
    without_mixed_layouts,
)

_KEPT = ("channel_id", "replica_groups", "constrain_layout", "use_global_device_ids")


@dataclass(frozen=True, slots=True)
class AllGatherDecomposer(Pass):
    """Replace an all-gather with an all-reduce to which each device adds its own part.

    Each device writes its part into an array of zeros that has the shape of the result.
    The all-reduce joins booleans with `or` and adds values of all other types; each
    operand gets a new reduction. A minus zero becomes a plus zero. The channel id
    stays.

    The pass leaves alone all-gathers that are asynchronous or in a fusion, that have
    control edges, or whose groups omit devices. XLA calls the pass
    `all_gather_decomposer`; no default pipeline runs it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, operands and members of groups.
    Source: openxla/xla `xla/service/all_gather_decomposer.cc`.
    """

    name: ClassVar[str] = "all-gather-decomposer"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-gathers in post order."""
        decompose = without_mixed_layouts(module, _decompose)
        return rewrite_each(module, "all-gather", decompose, report, "decomposed")


def _decompose(all_gather: Instruction) -> str:
    if reason := obstacle_to_position(all_gather):
        return reason
    if not suits_all_reduce(all_gather.channel_id):
        return f"has channel {all_gather.channel_id}, which no all-reduce may have"
    computation, shape = all_gather.computation, all_gather.shape
    wholes = shape.elements if shape.is_tuple else (shape,)
    results = [
        _reduced(all_gather, operand, whole)
        for operand, whole in zip(all_gather.operands, wholes, strict=True)
    ]
    result = results[0]
    if shape.is_tuple:
        result = computation.new("tuple", shape, results)
    computation.replace_uses(all_gather, result)
    computation.remove_with_dead_operands(all_gather)
    return ""


def _reduced(
    all_gather: Instruction, operand: Instruction, whole: Shape
) -> Instruction:
    computation, kind = all_gather.computation, whole.element_type
    (dimension,) = all_gather.integers("dimensions")
    starts = starts_of_own_part(all_gather, operand.shape, dimension)
    own = computation.new(
        "dynamic-update-slice",
        whole,
        (zeros(computation, whole), operand, *starts),
    )
    opcode = "or" if kind == "pred" else "add"
    addition = add_reduction(
        computation.module, opcode, kind, "add", before=computation
    )
    kept = {n: t for n, t in all_gather.attributes.items() if n in _KEPT}
    attributes = in_print_order({**kept, "to_apply": f"%{addition.name}"}, "all-reduce")
    return computation.new("all-reduce", whole, (own,), attributes)
