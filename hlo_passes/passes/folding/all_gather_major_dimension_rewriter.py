"""Gathers along the slowest dimension in memory, so that no copy is needed before.

Before:  %c = bf16[8,4]{0,1} copy(bf16[8,4]{1,0} %x)
         %a = bf16[8,32]{0,1} all-gather(%c), dimensions={1}
         %d = bf16[8,32]{1,0} copy(%a)
After:   %b = bf16[64,4]{1,0} all-gather(%x), dimensions={0}
         %e = bf16[8,8,4]{2,1,0} bitcast(%b)        devices before the old dimension
         %f = bf16[8,8,4]{2,0,1} copy(%e)           devices before the gathered one
         %g = bf16[8,32]{1,0} bitcast(%f)                   readers of %d
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Layout, array_shape
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of, derive


@dataclass(frozen=True, slots=True)
class AllGatherMajorDimensionRewriter(ComputationPass):
    """Gather a value in its own layout, and change the layout only once, after it.

    The pass looks for an all-gather between two copies. Nothing but the all-gather may
    read the copy before it, and nothing but the second copy may read the result. The
    pass gathers the value that the first copy reads, along its slowest dimension in
    memory. Bitcasts and one copy then give the result its shape and layout. The pass
    runs after layouts are assigned.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_gather_major_dimension_rewriter.cc`.
    """

    name: ClassVar[str] = "all-gather-major-dimension-rewriter"
    needs_collectives: ClassVar[bool] = True

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Visit all-gathers in post order."""
        changed = False
        for all_gather in post_order(computation):
            if all_gather.opcode != "all-gather":
                continue
            reason = _reason_to_keep(all_gather)
            if reason:
                report.remark(f"not rewritten: %{all_gather.name} {reason}")
                continue
            _rewrite(all_gather)
            report.count("all-gathers-rewritten")
            changed = True
        if changed:
            restore_text_order(computation)


def _reason_to_keep(all_gather: Instruction) -> str:
    if len(all_gather.operands) != 1:
        return "has several operands"
    before = all_gather.operands[0]
    if before.opcode != "copy" or before.user_count != 1:
        return "does not gather a copy that nothing else reads"
    if all_gather.user_count != 1 or all_gather.users[0].opcode != "copy":
        return "is not read by a copy alone"
    if not before.operands[0].shape.rank or 0 in before.shape.dimensions:
        return "gathers nothing"
    if has_control_edges(all_gather) or has_control_edges(all_gather.users[0]):
        return "has control edges, or its copy has"
    return ""


def _rewrite(all_gather: Instruction) -> None:
    computation, value = all_gather.computation, all_gather.operands[0].operands[0]
    after, shape = all_gather.users[0], value.shape
    assert shape.layout is not None
    assert after.shape.layout is not None
    (gathered,) = all_gather.integers("dimensions")
    whole, part = (i.shape.dimensions for i in (all_gather, all_gather.operands[0]))
    devices = whole[gathered] // part[gathered]
    # Gather along the slowest dimension: one device after the other in memory.
    slowest = shape.layout.minor_to_major[-1]
    sizes = list(shape.dimensions)
    sizes[slowest] *= devices
    result = copy_of(
        all_gather,
        (value,),
        shape.with_dimensions(tuple(sizes)),
        {"dimensions": f"{{{slowest}}}"},
    )
    # The devices become a dimension of their own, before the one just gathered.
    split = (*shape.dimensions[:slowest], devices, *shape.dimensions[slowest:])
    kind = all_gather.shape.element_type
    own = _with_dimension(shape.layout.minor_to_major, slowest, behind=slowest)
    result = computation.new("bitcast", array_shape(kind, split, own), (result,))
    # In memory they go where the result wants them: around the gathered dimension.
    wanted = _with_dimension(
        after.shape.layout.minor_to_major, slowest, behind=gathered
    )
    moved = computation.new("copy", array_shape(kind, split, wanted), (result,))
    derive(moved, result)
    result = computation.new("bitcast", after.shape, (moved,))
    computation.replace(after, result)


def _with_dimension(order: tuple[int, ...], inserted: int, *, behind: int) -> Layout:
    """The order of dimensions in memory with one more, around an old one.

    Args:
        order: from the fastest to the slowest.
        inserted: the number of the new dimension; those from there on move up.
        behind: the old number of the dimension that it varies slower than.
    """
    found: list[int] = []
    for dimension in order:
        found.append(dimension + (dimension >= inserted))
        if dimension == behind:
            found.append(inserted)
    return Layout(tuple(found))
