"""Reshapes before all-gathers and after all-reduces instead of the other way around.

Before:  %g = f32[4,8] all-gather(f32[1,8] %x), dimensions={0}
         %r = f32[4,2,4] reshape(%g)
After:   %s = f32[1,2,4] reshape(%x)
         %r = f32[4,2,4] all-gather(%s), dimensions={0}
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: What a reduction keeps.
_OF_REDUCTION: Final = (
    *("channel_id", "replica_groups", "use_global_device_ids", "to_apply"),
)


@dataclass(frozen=True, slots=True)
class CollectiveTransformationReorderer(Pass):
    """Reshape before an all-gather instead of after it; for all-reduces, the reverse.

    Collectives then stand next to each other and can be combined. The pass moves a
    reshape before an all-gather if the reshape keeps the gathered dimension and the
    number of elements before it. It also moves a row of such reshapes; each one in the
    row has a single reader. The pass moves reshapes of an all-reduce's operand after
    the all-reduce. It removes dead code afterward.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and dimensions.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/collective_transformation_reorderer.cc`; XLA's GPU
    pipeline does not run it.
    """

    name: ClassVar[str] = "collective-transformation-reorderer"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Move all reshapes after gathers, then those before reductions."""
        moved = False
        graph = build_call_graph(module)
        for opcode in ("all-gather", "all-reduce"):
            for computation in graph.post_order:
                is_asynchronous = graph.is_async_body(computation)
                changed = False
                for collective in post_order(computation):
                    if collective.opcode != opcode or collective.removed:
                        continue
                    reason = _reason_to_keep(collective)
                    if is_asynchronous:
                        reason = "is asynchronous"
                    if reason:
                        report.remark(f"not reordered: %{collective.name} {reason}")
                    elif opcode == "all-gather":
                        changed |= _gather_reshaped(collective, report)
                    else:
                        changed |= _reshape_reduced(collective, report)
                if changed:
                    moved = True
                    restore_text_order(computation)
        if moved:
            HloDce().run(module, context, Report())
        return moved


def _reason_to_keep(collective: Instruction) -> str:
    if len(collective.operands) != 1 or not collective.shape.is_array:
        return "has several operands"
    if has_control_edges(collective):
        return "has control edges"
    if unknown := unknown_attribute(collective):
        return f"has the unknown attribute {unknown}"
    return ""


def _gather_reshaped(gather: Instruction, report: Report) -> bool:
    """Gather what is reshaped already; whether there is such a reshape."""
    # Follow the reshapes as long as they keep the gathered dimension.
    (dimension,) = gather.integers("dimensions")
    last, steps = gather, list[tuple[Instruction, int]]()
    while last.user_count == 1 and last.users[0].opcode == "reshape":
        reshape = last.users[0]
        kept = _same_dimension(last.shape, dimension, reshape.shape)
        if kept is None:
            report.remark(
                f"not reordered: %{reshape.name} does not keep the dimension that "
                f"%{gather.name} gathers"
            )
            break
        steps.append((reshape, kept))
        last, dimension = reshape, kept
    if not steps:
        return False
    # Reshape the operand alike, each time with its own part of that dimension.
    computation, (operand,) = gather.computation, gather.operands
    (at,) = gather.integers("dimensions")
    for reshape, kept in steps:
        sizes = list(reshape.shape.dimensions)
        sizes[kept] = operand.shape.dimensions[at]
        shape = reshape.shape.with_dimensions(tuple(sizes))
        operand, at = computation.new("reshape", shape, [operand]), kept
    attributes = {
        name: gather.attributes[name]
        for name in (
            *("channel_id", "replica_groups", "constrain_layout"),
            "use_global_device_ids",
        )
        if name in gather.attributes
    }
    gathered = computation.new(
        "all-gather",
        last.shape,
        [operand],
        {**attributes, "dimensions": f"{{{at}}}"},
    )
    derive(gathered, gather, added=True)
    computation.replace_uses(last, gathered)
    report.count("reshapes-moved", len(steps))
    return True


def _same_dimension(before: Shape, dimension: int, after: Shape) -> int | None:
    """The dimension after a reshape that is the same one, or None."""
    wanted = prod(before.dimensions[:dimension])
    count, kept = 1, 0
    while kept < after.rank and count < wanted:
        count *= after.dimensions[kept]
        kept += 1
    if count != wanted or kept >= after.rank:
        return None
    return kept if after.dimensions[kept] == before.dimensions[dimension] else None


def _reshape_reduced(reduction: Instruction, report: Report) -> bool:
    """Reduce what is not reshaped yet; whether it was reshaped."""
    if reduction.user_count != 1 or reduction.is_root:
        report.remark(f"not reordered: %{reduction.name} has not one reader")
        return False
    if reduction.attributes.get("constrain_layout") == "true":
        report.remark(f"not reordered: %{reduction.name} constrains layouts")
        return False
    (operand,) = reduction.operands
    reshapes: list[Instruction] = []
    while operand.opcode == "reshape" and operand.user_count == 1:
        reshapes.append(operand)
        (operand,) = operand.operands
    if not reshapes:
        return False
    computation = reduction.computation
    attributes = {
        name: reduction.attributes[name]
        for name in (
            "channel_id",
            "replica_groups",
            "use_global_device_ids",
            "to_apply",
        )
        if name in reduction.attributes
    }
    value = computation.new("all-reduce", operand.shape, [operand], attributes)
    derive(value, reduction, added=True)
    for reshape in reversed(reshapes):
        value = computation.new("reshape", reshape.shape, [value])
    computation.replace(reduction, value)
    report.count("reshapes-moved", len(reshapes))
    return True
