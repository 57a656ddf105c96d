"""Replaces two reduce-scatters with one if the same operation joins their results.

Before:  %a = f32[4] reduce-scatter(%x), dimensions={0}, to_apply=%add
         %b = f32[4] reduce-scatter(%y), dimensions={0}, to_apply=%add
         %s = f32[4] add(%a, %b)
After:   %t = f32[8] add(%x, %y)
         %c = f32[4] reduce-scatter(%t), dimensions={0}, to_apply=%add   readers of %s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scheduling_annotations import GROUP_ID, annotation_of
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.reductions import (
    constrains_layouts,
    group_key,
    kind_of,
    reduction_key,
    reduction_kind,
    reduction_of,
)


@dataclass(frozen=True, slots=True)
class ReduceScatterReassociate(Pass):
    """Combine the operands of two reduce-scatters instead of their results.

    One reduce-scatter then does the work of two. The operation that combines the
    results must be the one by which both reduce. Both must have the same dimension,
    groups, type and mode (with or without a channel id, and `use_global_device_ids`),
    and nothing else may read them. If only one of them has a scheduling annotation, the
    pass drops it; if both have different ones, the pass leaves them alone. The rewrite
    adds floating-point values in another order. The pass leaves a module alone if any
    reduce-scatter in it constrains layouts.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/reduce_scatter_reassociate.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "reduce-scatter-reassociate"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit operations in post order, so that sums of sums become one."""
        version = module.version
        if constrains_layouts(module, "reduce-scatter"):
            report.remark(
                "not reassociated: a reduce-scatter of the module constrains layouts"
            )
            return False
        by_group = context.release_for(module, self.xla).keys_by_group
        channel = next_channel_id(module)
        for computation in module.computations:
            made = False
            for operation in post_order(computation):
                if not _joins_two(operation):
                    continue
                first, second = operation.operands
                reason = _difference(operation, first, second, by_group=by_group)
                if reason:
                    report.remark(f"not reassociated: %{operation.name} {reason}")
                    continue
                _reassociate(operation, channel)
                channel += first.channel_id is not None
                report.count("reduce-scatters-joined")
                made = True
            if made:
                restore_text_order(computation)
        return module.version != version


def _joins_two(operation: Instruction) -> bool:
    return (
        len(operation.operands) == 2
        and all(o.opcode == "reduce-scatter" for o in operation.operands)
        and operation.shape.is_array
        and kind_of(operation.opcode, operation.shape.element_type) != ""
    )


def _difference(
    operation: Instruction, first: Instruction, second: Instruction, *, by_group: bool
) -> str:
    """Why two reduce-scatters stay two; '' if they may be one."""
    key = reduction_key(first)
    if key is None or key != reduction_key(second):
        return "reads reduce-scatters that differ, or have control edges"
    if has_control_edges(operation):
        return "has control edges"
    kind = kind_of(operation.opcode, operation.shape.element_type)
    if reduction_kind(reduction_of(first)) != kind:
        return "is not what its operands reduce with"
    if first.integers("dimensions") != second.integers("dimensions"):
        return "reads reduce-scatters along different dimensions"
    if by_group and group_key(first) != group_key(second):
        return "reads reduce-scatters of different collective_group_key"
    if first.user_count != 1 or second.user_count != 1:
        return "reads reduce-scatters with other readers"
    mine, yours = annotation_of(first), annotation_of(second)
    if mine is not None and yours is not None and mine != yours:
        return "reads reduce-scatters of different scheduling groups"
    return ""


def _reassociate(operation: Instruction, channel: int) -> None:
    computation, (first, second) = operation.computation, operation.operands
    x, y = first.operands[0], second.operands[0]
    joined = copy_of(operation, (x, y), x.shape)
    result = copy_of(first, (joined,), operation.shape)
    if result.channel_id is not None:
        result.channel_id = channel
    if (annotation_of(first) is None) != (annotation_of(second) is None):
        result.frontend_attributes = result.frontend_attributes.without(GROUP_ID)
    computation.replace_uses(operation, result)
    for instruction in dict.fromkeys((operation, first, second)):
        computation.remove(instruction)
