"""Transposes a value before scattering it, in loops that accumulate the result.

Before:  %s = f32[8,4] reduce-scatter(%x), dimensions={0}, ...
         %t = f32[4,8] transpose(%s), dimensions={1,0}
         %a = f32[4,8] add(%t, %so-far)
After:   %u = f32[4,32] transpose(%x), dimensions={1,0}
         %r = f32[4,8] reduce-scatter(%u), dimensions={1}, ...
         %a = f32[4,8] add(%r, %so-far)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.folding.reorder_convert_reduce_add import (
    is_element_of_parameter,
    rewrite_in_loops,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_without_description


@dataclass(frozen=True, slots=True)
class ReorderReduceTranspose(Pass):
    """Transpose a value before its reduce-scatter, in loops that accumulate the result.

    The pass moves a transpose that follows the reduce-scatter, and a conversion before
    the transpose moves with it. The pass works in the computations of loops. There, the
    first reader of the transpose must add it to an element of the loop's parameter, or
    reshape it for a dynamic-update-slice. The reduce-scatter can then leave the loop
    (`while-loop-all-reduce-code-motion`). A conversion to a wider type makes the
    reduction more exact.

    Without XLA's quirks (`--no-xla-quirks`), nothing else may read the reduce-scatter
    or the conversion: XLA would reduce twice under one channel id.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/while_loop_all_reduce_code_motion_setup.cc`.
    """

    name: ClassVar[str] = "reorder-reduce-transpose"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find all transposes first, then rewrite them."""

        def reason(transpose: Instruction) -> str:
            found = _reason_to_keep(transpose)
            if not found and not context.xla_quirks and _is_read_elsewhere(transpose):
                found = "reads what others read, too"
            return found

        return rewrite_in_loops(
            module, "transpose", reason, _transposed_first, report, "transposes-moved"
        )


def _scattered(transpose: Instruction) -> Instruction:
    operand = transpose.operands[0]
    return operand.operands[0] if operand.opcode == "convert" else operand


def _is_read_elsewhere(transpose: Instruction) -> bool:
    operand = transpose.operands[0]
    return operand.user_count > 1 or _scattered(transpose).user_count > 1


def _reason_to_keep(transpose: Instruction) -> str:
    scattered = _scattered(transpose)
    if scattered.opcode != "reduce-scatter" or len(scattered.operands) != 1:
        return "does not read a reduce-scatter of one operand"
    if not transpose.user_count:
        return "has no users"
    reader = transpose.users[0]
    if reader.opcode == "reshape":
        if reader.user_count and reader.users[0].opcode == "dynamic-update-slice":
            return ""
        return "is reshaped, but not for an update of a slice"
    if reader.opcode != "add":
        return "is neither added nor reshaped"
    left, right = reader.operands
    other = left if left.opcode == "get-tuple-element" else right
    return (
        "" if is_element_of_parameter(other) else "is not added to what a loop carries"
    )


def _transposed_first(transpose: Instruction) -> Instruction:
    computation, scatter = transpose.computation, _scattered(transpose)
    value, order = scatter.operands[0], transpose.integers("dimensions")
    if transpose.operands[0] is not scatter:
        wide = value.shape.with_element_type(transpose.shape.element_type)
        value = computation.new("convert", wide, (value,))
    moved = computation.new(
        "transpose",
        _permuted(value.shape, order),
        (value,),
        {"dimensions": transpose.attributes["dimensions"]},
    )
    (dimension,) = scatter.integers("dimensions")
    place = {"dimensions": f"{{{order.index(dimension)}}}"}
    return copy_without_description(scatter, (moved,), transpose.shape, place)


def _permuted(shape: Shape, order: tuple[int, ...]) -> Shape:
    """Dimension k is `order[k]` of the other; what lies where in memory stays."""
    from dataclasses import replace

    permuted = shape.with_dimensions(tuple(shape.dimensions[k] for k in order))
    if shape.layout is None:
        return permuted
    minor_to_major = tuple(order.index(k) for k in shape.layout.minor_to_major)
    return permuted.with_layout(replace(shape.layout, minor_to_major=minor_to_major))
