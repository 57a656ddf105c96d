"""Reduces several arrays as one array.

Before:  %a = (f32[4,2], f32[8]) all-reduce(%x, %y), to_apply=%add
After:   %b = f32[8] bitcast(%x)
         %c = f32[8] bitcast(%y)
         %d = f32[16] concatenate(%b, %c), dimensions={0}
         %e = f32[16] all-reduce(%d), to_apply=%add
         %f = f32[8] slice(%e), slice={[0:8]}           and so on
         %g = f32[4,2] bitcast(%f)
         %t = (f32[4,2], f32[8]) tuple(%g, ...)         readers of %a
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.reductions import constrains_layouts

_KEPT = ("channel_id", "replica_groups", "use_global_device_ids", "to_apply")


@dataclass(frozen=True, slots=True)
class AllReduceContiguous(Pass):
    """Replace an all-reduce of several operands with an all-reduce of a single buffer.

    The pass puts the operands one after another into the buffer, as they lie in memory.
    All operands must have one element type. The pass runs after layouts are assigned.
    It leaves a module alone if any all-reduce in it constrains layouts.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and operands.
    Source: openxla/xla `xla/hlo/transforms/collectives/all_reduce_contiguous.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-contiguous"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find all of them, then replace them."""
        version = module.version
        if constrains_layouts(module, "all-reduce"):
            report.remark("nothing joined: an all-reduce constrains layouts")
            return False
        derives = context.release_for(module, self.xla).derives_collectives
        found = [
            instruction
            for computation in computations_post_order(module)
            for instruction in computation.instructions
            if instruction.opcode == "all-reduce" and len(instruction.operands) > 1
        ]
        graph = build_call_graph(module)
        for all_reduce in found:
            wrapped = graph.is_async_body(all_reduce.computation)
            reason = "is asynchronous" if wrapped else _reason_to_keep(all_reduce)
            if reason:
                report.remark(f"not joined: %{all_reduce.name} {reason}")
                continue
            _join(all_reduce, derives=derives)
            report.count("all-reduces-joined")
        for computation in dict.fromkeys(i.computation for i in found):
            restore_text_order(computation)
        return module.version != version


def _reason_to_keep(all_reduce: Instruction) -> str:
    shapes = [operand.shape for operand in all_reduce.operands]
    if not all(shape.is_array for shape in shapes):
        return "reduces what is not an array"
    if len({shape.element_type for shape in shapes}) > 1:
        return "reduces several types"
    if "sharding" in all_reduce.attributes:
        return "has a sharding"
    return "has control edges" if has_control_edges(all_reduce) else ""


def _join(all_reduce: Instruction, *, derives: bool) -> None:
    computation, operands = all_reduce.computation, all_reduce.operands
    kind = operands[0].shape.element_type
    # Every operand as it lies in memory, one after the other.
    flat = [
        computation.new("bitcast", array_shape(kind, (o.shape.element_count,)), (o,))
        for o in operands
    ]
    total = array_shape(kind, (sum(f.shape.element_count for f in flat),))
    together = computation.new("concatenate", total, flat, {"dimensions": "{0}"})
    reduced = computation.new("all-reduce", total, (together,))
    for name in _KEPT:
        reduced.set_attribute(name, all_reduce.attributes.get(name))
    if derives:
        derive(reduced, all_reduce)
    # Each result is a piece, with its old shape.
    pieces: list[Instruction] = []
    start = 0
    for part, operand in zip(flat, operands, strict=True):
        end = start + part.shape.element_count
        piece = computation.new(
            "slice", part.shape, (reduced,), {"slice": f"{{[{start}:{end}]}}"}
        )
        pieces.append(computation.new("bitcast", operand.shape, (piece,)))
        start = end
    result = computation.new("tuple", tuple_shape([p.shape for p in pieces]), pieces)
    if derives:
        # Frontend attributes are the new all-reduce's alone.
        all_reduce.set_attribute("frontend_attributes", None)
    computation.replace(all_reduce, result)
