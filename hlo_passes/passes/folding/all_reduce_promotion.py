"""Reduces 16-bit integers as 32-bit ones.

Before:  %a = s16[8] all-reduce(%x), to_apply=%add
After:   %w = s32[8] convert(%x)
         %b = s32[8] all-reduce(%w), to_apply=%add_promoted
         %c = s16[8] convert(%b)                              readers of %a
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.reductions import (
    add_reduction,
    reduction_of,
    reduction_opcode,
)

_WIDER: Final = {"s16": "s32", "u16": "u32"}


@dataclass(frozen=True, slots=True)
class AllReducePromotion(Pass):
    """Convert operands of 16-bit integer reductions to 32 bits, and the results back.

    The pass changes all-reduces and reduce-scatters, because communication libraries
    have no 16-bit integers for them. It writes a new reduction in the wider type; the
    old one stays until dead code is removed. The pass leaves variadic and asynchronous
    collectives alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/all_reduce_promotion.cc`,
    `xla/service/change_op_data_type.cc`.

    Attributes:
        all_reduce_only: leave reduce-scatters alone.
    """

    name: ClassVar[str] = "all-reduce-promotion"
    needs_collectives: ClassVar[bool] = True

    all_reduce_only: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit reducing collectives in post order, callees first."""
        version = module.version
        graph = build_call_graph(module)
        for computation in computations_post_order(module):
            changed, wrapped = False, graph.is_async_body(computation)
            for collective in post_order(computation):
                if collective.opcode != "all-reduce" and (
                    self.all_reduce_only or collective.opcode != "reduce-scatter"
                ):
                    continue
                reason = "is asynchronous" if wrapped else _reason_to_keep(collective)
                if reason:
                    report.remark(f"not promoted: %{collective.name} {reason}")
                    continue
                _promote(collective)
                report.count("collectives-promoted")
                changed = True
            if changed:
                restore_text_order(computation)
        return module.version != version


def _reason_to_keep(collective: Instruction) -> str:
    types = {operand.shape.element_type for operand in collective.operands}
    if not collective.shape.is_array or len(types) != 1:
        return "returns a tuple"
    if types.isdisjoint(_WIDER):
        return f"reduces {types.pop()}"
    if not reduction_opcode(reduction_of(collective)):
        return "has a reduction of several operations"
    return "has control edges" if has_control_edges(collective) else ""


def _promote(collective: Instruction) -> None:
    computation, reduction = collective.computation, reduction_of(collective)
    assert reduction is not None
    narrow = collective.operands[0].shape.element_type
    wide = _WIDER[narrow]
    operands = [
        computation.new("convert", o.shape.with_element_type(wide), (o,))
        for o in collective.operands
    ]
    promoted = add_reduction(
        reduction.module,
        reduction.root.opcode,
        wide,
        f"{reduction.name}_promoted",
        before=computation,
    )
    shape = collective.shape
    called = {"to_apply": f"%{promoted.name}"}
    result = copy_of(collective, operands, shape.with_element_type(wide), called)
    back = computation.new("convert", shape, (result,))
    computation.replace(collective, back)
