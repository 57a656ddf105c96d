"""Splits a permute of several operands into several: the combiner's inverse.

Before:  %c = (f32[8], bf16[4]) collective-permute(%x, %y), channel_id=1,
                                                     source_target_pairs=P
         %g = f32[8] get-tuple-element(%c), index=0
         %h = bf16[4] get-tuple-element(%c), index=1
After:   %a = f32[8] collective-permute(%x), channel_id=1, source_target_pairs=P
         %b = bf16[4] collective-permute(%y), channel_id=3, source_target_pairs=P
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.replacement import (
    relay_control,
    replace_relaying_control,
)

_INHERITED_FROM_ELEMENT = ("frontend_attributes", "metadata")


@dataclass(frozen=True, slots=True)
class CollectivePermuteSplitter(Pass):
    """Give every operand of a permute its own permute.

    The first new permute keeps the channel id, and the others get fresh ones. If the
    old permute has no channel id, none of the new ones gets one. The metadata and
    frontend attributes of a tuple element go to the permute of that element. If no
    element has any, every new permute keeps those of the old permute. Every new permute
    also repeats the control edges of the old one. The pass leaves in-place and
    asynchronous permutes alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and operands.
    Source: this project; the inverse of `collective-permute-combiner`.
    """

    name: ClassVar[str] = "collective-permute-splitter"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations; what an async-start wraps stays one operation."""
        version = module.version
        channel = 0
        graph = build_call_graph(module)
        for computation in graph.post_order:
            wrapped = graph.is_async_body(computation)
            for permute in computation.instructions:
                if permute.opcode != "collective-permute":
                    continue
                reason = _reason_to_keep(permute)
                if reason:
                    report.remark(f"not split: %{permute.name} {reason}")
                    continue
                if len(permute.operands) == 1 and not permute.shape.is_tuple:
                    continue
                if wrapped:
                    report.remark(f"not split: %{permute.name} is asynchronous")
                    continue
                channel = channel or next_channel_id(module)
                channel = _split(computation, permute, channel)
                report.count("permutes-split")
                report.count("permutes-made", len(permute.operands))
        return module.version != version


def _reason_to_keep(permute: Instruction) -> str:
    if "slice_sizes" in permute.attributes:
        return "is in place"
    if unknown := unknown_attribute(permute):
        return f"has the unknown attribute {unknown}"
    shape = permute.shape
    if shape.is_tuple and len(shape.elements) != len(permute.operands):
        return "does not have one result per operand"
    if not shape.is_tuple and len(permute.operands) != 1:
        return "has several operands and one result"
    return ""


def _split(computation: Computation, permute: Instruction, channel: int) -> int:
    """Replace one permute; `channel` and the result are the next free id."""
    # Find the elements that are read; the first one for each index describes it.
    elements = {
        user: user.tuple_index
        for user in permute.users
        if user.opcode == "get-tuple-element"
    }
    described: dict[int, Instruction] = {}
    for element, index in elements.items():
        described.setdefault(index, element)
    # If elements carry an attribute at all, the combined one was made from
    # theirs.
    spoken_for = [
        name
        for name in _INHERITED_FROM_ELEMENT
        if any(name in element.attributes for element in elements)
    ]
    # Make one permute for each operand, with the attributes of the whole.
    parts: list[Instruction] = []
    for index, operand in enumerate(permute.operands):
        attributes = {
            name: text
            for name, text in permute.attributes.items()
            if name not in ("sharding", "origin", "statistics", "backend_config")
        }
        if index and "channel_id" in attributes:
            attributes["channel_id"] = str(channel)
            channel += 1
        part = computation.new(
            "collective-permute",
            permute.shape.elements[index],
            (operand,),
            attributes,
            before=permute,
        )
        for name in spoken_for:
            element = described.get(index)
            part.set_attribute(name, element and element.attributes.get(name))
        relay_control(permute, part)
        parts.append(part)
    # The parts replace the elements. A tuple of them replaces the permute where it is
    # read as a whole.
    computation.drop_control_edges(permute)
    for element, index in elements.items():
        replace_relaying_control(element, parts[index])
    if permute.user_count or permute.is_root:
        rebuilt = computation.new("tuple", permute.shape, parts, before=permute)
        computation.replace(permute, rebuilt)
    elif not permute.removed:
        computation.remove(permute)
    return channel
