"""Gathers arrays without their dimensions of size 1.

Before:  %a = f32[1,32,1,8] all-gather(%x), dimensions={1}
After:   %r = f32[8,8] reshape(%x)
         %g = f32[32,8] all-gather(%r), dimensions={0}
         %b = f32[1,32,1,8] reshape(%g)                     readers of %a
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of


@dataclass(frozen=True, slots=True)
class AllGatherRemoveDegenerateDims(Pass):
    """Reshape dimensions of size 1 away before an all-gather, and back after it.

    The pass drops a dimension before the gathered one if it has size 1 in all operands.
    It drops a dimension after the gathered one in each operand where it has size 1. The
    channel id stays. The pass leaves alone all-gathers that constrain layouts or are
    asynchronous.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and operands.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/all_gather_remove_degenerate_dims.cc`.
    """

    name: ClassVar[str] = "all-gather-remove-degenerate-dims"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-gathers in post order."""
        version = module.version
        graph = build_call_graph(module)
        for computation in module.computations:
            changed, wrapped = False, graph.is_async_body(computation)
            for all_gather in post_order(computation):
                if all_gather.opcode != "all-gather":
                    continue
                reason = _reason_to_keep(all_gather)
                if wrapped:
                    reason = "is asynchronous"
                if not reason and not _reshape(all_gather):
                    reason = "has no dimension of size 1 that can go"
                if reason:
                    report.remark(f"not reshaped: %{all_gather.name} {reason}")
                    continue
                report.count("all-gathers-reshaped")
                changed = True
            if changed:
                restore_text_order(computation)
        return module.version != version


def _reason_to_keep(all_gather: Instruction) -> str:
    if all_gather.attributes.get("constrain_layout") == "true":
        return "constrains layouts"
    return "has control edges" if has_control_edges(all_gather) else ""


def _reshape(all_gather: Instruction) -> bool:
    """Gather smaller arrays; False if none gets smaller."""
    computation, shape = all_gather.computation, all_gather.shape
    (dimension,) = all_gather.integers("dimensions")
    results = shape.elements if shape.is_tuple else (shape,)
    before = [k for k in range(dimension) if all(r.dimensions[k] == 1 for r in results)]
    # Reshape the operands that have dimensions to lose.
    operands: list[Instruction] = []
    for operand in all_gather.operands:
        own = operand.shape
        after = [k for k in range(dimension + 1, own.rank) if own.dimensions[k] == 1]
        gone = {*before, *after}
        if gone:
            operand = computation.new("reshape", _without(own, gone), (operand,))
        operands.append(operand)
    if tuple(operands) == all_gather.operands:
        return False
    # Gather them along the same dimension, which may have another number now.
    place = dimension - len(before)
    old = all_gather.operands[0].shape.dimensions[dimension]
    devices = results[0].dimensions[dimension] // old if old else 1
    gathered_shapes = [_times(o.shape, place, devices) for o in operands]
    one = len(operands) == 1
    gathered = copy_of(
        all_gather,
        operands,
        gathered_shapes[0] if one else tuple_shape(gathered_shapes),
        {"dimensions": f"{{{place}}}"},
    )
    # Readers get the old shapes.
    if one:
        result = computation.new("reshape", shape, (gathered,))
    else:
        elements = [
            computation.new("get-tuple-element", part, (gathered,), {"index": str(k)})
            for k, part in enumerate(gathered_shapes)
        ]
        parts = [
            computation.new("reshape", results[k], (element,))
            for k, element in enumerate(elements)
        ]
        result = computation.new("tuple", shape, parts)
    computation.replace(all_gather, result)
    return True


def _without(shape: Shape, gone: set[int]) -> Shape:
    """An array shape without some dimensions; the others keep their order in memory."""
    kept = [k for k in range(shape.rank) if k not in gone]
    number = {old: new for new, old in enumerate(kept)}
    sizes = tuple(shape.dimensions[k] for k in kept)
    if shape.layout is None:
        return array_shape(shape.element_type, sizes)
    order = tuple(number[k] for k in shape.layout.minor_to_major if k in number)
    return array_shape(
        shape.element_type, sizes, replace(shape.layout, minor_to_major=order)
    )


def _times(shape: Shape, dimension: int, factor: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] *= factor
    return shape.with_dimensions(tuple(sizes))
