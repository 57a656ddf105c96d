"""Converts a value before reducing it, in loops that accumulate the result.

Before:  %r = bf16[8] all-reduce(%x), to_apply=%add.bf16
         %w = f32[8] convert(%r)
         %a = f32[8] add(%w, %so-far)
After:   %v = f32[8] convert(%x)
         %s = f32[8] all-reduce(%v), to_apply=%add.f32
         %a = f32[8] add(%s, %so-far)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_without_description
from hlo_passes.passes.rewriting.reductions import (
    add_reduction,
    reduction_kind,
    reduction_of,
)

#: What a reduction computes -> its operation on numbers.
_OPERATIONS: Final = {
    "sum": "add", "product": "multiply", "minimum": "minimum", "maximum": "maximum",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReorderConvertReduceAdd(Pass):
    """Convert a value before its reduction, in loops that accumulate the result.

    The pass works in the computations of loops, where the converted value is added to
    an element of the loop's parameter. What the loop accumulates can then be reduced
    once, after the loop (`while-loop-all-reduce-code-motion`). A conversion to a wider
    type makes the reduction more exact, but the reduction then sends more bytes. The
    pass leaves a value alone if it was narrowed for the reduction.

    Without XLA's quirks (`--no-xla-quirks`), nothing else may read the reduced or the
    converted value: XLA would reduce twice under one channel id.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/while_loop_all_reduce_code_motion_setup.cc`.

    Attributes:
        reduce_scatters: also move conversions of reduce-scatters, not only of
            all-reduces.
    """

    name: ClassVar[str] = "reorder-convert-reduce-add"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    reduce_scatters: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find all additions first, then rewrite them."""

        def reason(add: Instruction) -> str:
            found = _reason_to_keep(add, reduce_scatters=self.reduce_scatters)
            if not found and not context.xla_quirks and _is_read_elsewhere(add):
                found = "reads what others read, too"
            return found

        return rewrite_in_loops(
            module, "add", reason, _converted_first, report, "conversions-moved"
        )


def rewrite_in_loops(
    module: Module,
    opcode: str,
    reason_to_keep: Callable[[Instruction], str],
    rewrite: Callable[[Instruction], Instruction],
    report: Report,
    statistic: str,
) -> bool:
    """Replace instructions in computations of loops; whether anything changed.

    Args:
        module: all instructions to replace are found before one is rewritten.
        opcode: the opcode of the instructions to replace.
        reason_to_keep: why an instruction stays; '' if it is to be replaced.
        rewrite: makes the replacement.
        report: receives the reasons, and the number of replaced instructions.
        statistic: the name of that number.
    """
    version = module.version
    graph = build_call_graph(module)
    found: list[Instruction] = []
    for computation in module.computations:
        if not _belongs_to_one_loop(computation, graph):
            continue
        for instruction in post_order(computation):
            if instruction.opcode != opcode:
                continue
            reason = reason_to_keep(instruction)
            if not reason and has_control_edges(instruction):
                reason = "has control edges"
            if reason:
                report.remark(f"not moved: %{instruction.name} {reason}")
            else:
                found.append(instruction)
    changed: dict[Computation, None] = {}
    for instruction in found:
        computation = changed_in = instruction.computation
        computation.replace(instruction, rewrite(instruction))
        report.count(statistic)
        changed[changed_in] = None
    for computation in changed:
        restore_text_order(computation)
    return module.version != version


def _belongs_to_one_loop(computation: Computation, graph: CallGraph) -> bool:
    callers = graph.callers_of(computation)
    return len(callers) == 1 and callers[0].opcode == "while"


def is_element_of_parameter(instruction: Instruction) -> bool:
    """Whether it is an element of its computation's parameter."""
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0].opcode == "parameter"
    )


def _last(add: Instruction, opcode: str) -> Instruction | None:
    """Its last operand of an opcode."""
    return next((o for o in reversed(add.operands) if o.opcode == opcode), None)


def _is_read_elsewhere(add: Instruction) -> bool:
    convert = _last(add, "convert")
    return convert is not None and (
        convert.user_count > 1 or convert.operands[0].user_count > 1
    )


def _reason_to_keep(add: Instruction, *, reduce_scatters: bool) -> str:
    convert, element = _last(add, "convert"), _last(add, "get-tuple-element")
    if convert is None or element is None:
        return "does not add a converted value to an element"
    reduced = convert.operands[0]
    if reduced.opcode not in ("reduce-scatter", "all-reduce"):
        return "does not add a reduced value"
    if not reduction_kind(reduction_of(reduced)):
        return f"adds %{reduced.name}, whose reduction is unknown"
    if reduced.opcode == "reduce-scatter" and not reduce_scatters:
        return "adds a reduce-scatter"
    if not is_element_of_parameter(element):
        return "is not added to what a loop carries"
    if len(reduced.operands) == 1:
        source = reduced.operands[0]
        if source.opcode == "reshape":
            source = source.operands[0]
        wide = convert.shape.element_type
        if source.opcode == "convert" and source.operands[0].shape.element_type == wide:
            return f"adds %{reduced.name}, which was narrowed for the reduction"
    return ""


def _converted_first(add: Instruction) -> Instruction:
    computation, convert = add.computation, _last(add, "convert")
    assert convert is not None
    reduced = convert.operands[0]
    others = [o for o in add.operands if o.opcode != "convert"]
    wide = convert.shape.element_type
    operand = reduced.operands[0]
    converted = computation.new(
        "convert", operand.shape.with_element_type(wide), (operand,)
    )
    kind = reduction_kind(reduction_of(reduced))
    reduction = add_reduction(
        computation.module, _OPERATIONS[kind], wide, f"{kind}.{wide}", computation
    )
    result = copy_without_description(
        reduced,
        (converted,),
        reduced.shape.with_element_type(wide),
        {"to_apply": f"%{reduction.name}"},
    )
    return computation.new("add", add.shape, (result, others[-1]))
