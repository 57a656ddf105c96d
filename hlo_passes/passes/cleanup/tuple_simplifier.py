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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import half, is_host_transfer, is_pair, is_transfer
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.replacement import replace_relaying_control


@dataclass(frozen=True, slots=True)
class TupleSimplifier(Pass):
    """Replace a tuple's element by its operand, and a rebuilt tuple by the original.

    The pass follows chains of get-tuple-elements through nested tuples to their end.
    The control edges of an element move to its replacement.

    The pass leaves a rebuilt tuple alone if it has control edges, and an element or
    tuple if its replacement has another sharding. A send or recv stays in a tuple if
    the tuple itself stays, or if the done of another transfer takes the send or recv
    out of it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and tuple elements.
    Source: openxla/xla `xla/hlo/transforms/simplifiers/tuple_simplifier.cc`.

    Attributes:
        exclude_entry_computation: leave the entry computation unchanged.
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
            transfers: list[tuple[Instruction, Instruction]] = []
            for instruction in post_order(computation):
                if instruction.removed:
                    continue
                if instruction.opcode == "tuple":
                    _replace_rebuilt_tuple(instruction, report)
                elif instruction.opcode == "get-tuple-element":
                    source = _source_of(instruction)
                    if source is None:
                        continue
                    if is_transfer(source) and half(source) == "start":
                        transfers.append((instruction, source))
                    else:
                        _replace_element(instruction, source, report)
            # Only now is it known which tuples go.
            _replace_transfers(transfers, report)
            if module.version != before:
                restore_text_order(computation)
        return module.version != version


def _source_of(element: Instruction) -> Instruction | None:
    """The operand of a tuple to which a chain of elements leads."""
    source, path = element, []
    while source.opcode == "get-tuple-element":
        path.append(source.tuple_index)
        source = source.operands[0]
    for index in reversed(path):
        if source.opcode != "tuple" or index >= len(source.operands):
            return None
        source = source.operands[index]
    return source


def _replace_element(element: Instruction, source: Instruction, report: Report) -> None:
    if replace_relaying_control(element, source):
        report.count("elements-replaced")
    else:
        report.remark(
            f"not simplified: %{element.name} and %{source.name} differ in sharding, "
            "or its control edges would close a cycle"
        )


def _replace_transfers(
    found: Sequence[tuple[Instruction, Instruction]], report: Report
) -> None:
    """Replace elements that are a send or recv, if each gets its own done alone."""
    reasons: dict[Instruction, str] = {}
    for element, start in found:
        if element.removed:
            continue
        reader = start.users[0]
        if reader not in reasons:
            reasons[reader] = _reason_to_keep(reader)
        if reasons[reader]:
            report.remark(f"not simplified: %{element.name}: {reasons[reader]}")
        else:
            _replace_element(element, start, report)


def _reason_to_keep(reader: Instruction) -> str:
    """Why sends and recvs stay in the tuple that reads them; '' if they need not."""
    elements = reader.users
    if (
        reader.opcode != "tuple"
        or reader is reader.computation.root
        or any(element.opcode != "get-tuple-element" for element in elements)
    ):
        return f"%{reader.name} stays, and would be a second reader of a transfer"
    taken: set[Instruction] = set()
    for element in elements:
        start = reader.operands[element.tuple_index]
        if not (is_transfer(start) and half(start) == "start"):
            continue
        users = element.users
        if start in taken or start.user_count != 1 or len(users) != 1:
            return f"%{start.name} would have several readers"
        if not _is_done_of(users[0], start):
            return f"%{users[0].name} does not end the transfer %{start.name}"
        taken.add(start)
    return ""


def _is_done_of(done: Instruction, start: Instruction) -> bool:
    return (
        is_pair(start, done)
        and done.channel_id == start.channel_id
        and is_host_transfer(done) == is_host_transfer(start)
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
