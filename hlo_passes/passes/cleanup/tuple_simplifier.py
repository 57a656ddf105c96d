"""Simplifies tuples and their elements.

Before:  %t = (f32[8], s32[]) tuple(%a, %b)
         %g = f32[8] get-tuple-element(%t), index=0      readers of %g
After:   readers of %a; %t is removed when nobody else reads it

Before:  %g0 = f32[8] get-tuple-element(%w), index=0
         %g1 = s32[] get-tuple-element(%w), index=1
         %t = (f32[8], s32[]) tuple(%g0, %g1)            readers of %t
After:   readers of %w
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import half, is_transfer
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.replacement import replace_relaying_control


@dataclass(frozen=True, slots=True)
class TupleSimplifier(Pass):
    """Replace a tuple's element by its operand, and a rebuilt tuple by the original.

    It follows chains of get-tuple-element through nested tuples to their end. Control
    edges of an element move to its replacement. What stays: a rebuilt tuple with
    control edges, replacements with another sharding, and a send or recv in a tuple
    that stays or from which another one's done takes it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and tuple elements.
    Source: openxla/xla `xla/hlo/transforms/simplifiers/tuple_simplifier.cc`.

    Attributes:
        exclude_entry_computation: leave the entry unchanged.
    """

    name: ClassVar[str] = "tuple-simplifier"

    exclude_entry_computation: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations, operands before users."""
        version = module.version
        for computation in module.computations:
            if self.exclude_entry_computation and computation is module.entry:
                continue
            before = module.version
            for instruction in post_order(computation):
                if instruction.removed:
                    continue
                if instruction.opcode == "tuple":
                    _replace_rebuilt_tuple(instruction, report)
                elif instruction.opcode == "get-tuple-element":
                    _replace_element(instruction, report)
            if module.version != before:
                restore_text_order(computation)
        return module.version != version


def _replace_element(element: Instruction, report: Report) -> None:
    """Replace the end of a chain of elements by the operand of a tuple."""
    source, path = element, []
    while source.opcode == "get-tuple-element":
        path.append(source.tuple_index)
        source = source.operands[0]
    for index in reversed(path):
        if source.opcode != "tuple" or index >= len(source.operands):
            return
        source = source.operands[index]
    # A send or recv must have its own done, and nothing else that reads it.
    if _begins(source) and any(map(_holds_back, source.users)):
        report.remark(
            f"not simplified: %{element.name} is not all that reads %{source.name}, or "
            "its reader does not end that transfer"
        )
        return
    if replace_relaying_control(element, source):
        report.count("elements-replaced")
    else:
        report.remark(
            f"not simplified: %{element.name} and %{source.name} differ in sharding, "
            "or its control edges would close a cycle"
        )


def _holds_back(reader: Instruction) -> bool:
    """Whether what reads a send or recv stays, or another one's done gets it."""
    if reader.opcode != "tuple" or reader is reader.computation.root:
        return True
    taken: set[int] = set()
    for element in reader.users:
        if element.opcode != "get-tuple-element":
            return True
        start = reader.operands[element.tuple_index]
        if not _begins(start):
            continue
        if element.tuple_index in taken or len(element.users) != 1:
            return True
        if not _is_done_of(element.users[0], start):
            return True
        taken.add(element.tuple_index)
    return False


def _begins(instruction: Instruction) -> bool:
    """Whether it is a send or a recv."""
    return is_transfer(instruction) and half(instruction) == "start"


def _is_done_of(done: Instruction, start: Instruction) -> bool:
    return is_transfer(done) and all(
        start.attributes.get(key) == done.attributes.get(key)
        for key in ("channel_id", "is_host_transfer")
    )


def _replace_rebuilt_tuple(rebuilt: Instruction, report: Report) -> None:
    """Replace a tuple of all elements of another, in their order, by the other."""
    if not rebuilt.operands:
        return
    for k, operand in enumerate(rebuilt.operands):
        if operand.opcode != "get-tuple-element" or operand.tuple_index != k:
            return
    original = rebuilt.operands[0].operands[0]
    if any(o.operands[0] is not original for o in rebuilt.operands):
        return
    if not original.shape.compatible(rebuilt.shape):
        report.remark(
            f"not simplified: %{rebuilt.name} does not have all elements of "
            f"%{original.name}"
        )
        return
    sharding, other = (i.spelling_of("sharding") for i in (original, rebuilt))
    if sharding is not None and other not in (None, sharding):
        report.remark(
            f"not simplified: %{rebuilt.name} and %{original.name} differ in sharding"
        )
        return
    if rebuilt.computation.replace(rebuilt, original):
        report.count("tuples-replaced")
    else:
        report.remark(f"not simplified: %{rebuilt.name} has control edges")
