"""Replaces a small all-reduce with an all-gather and a local reduction.

Before:  %a = f32[16] all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
After:   %r = f32[1,16] reshape(%x)
         %g = f32[2,16] all-gather(%r), dimensions={0}, replica_groups={{0,1}}
         %b = f32[16] reduce(%g, 0), dimensions={0}, to_apply=%add
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.each_collective import rewrite_each
from hlo_passes.passes.rewriting.reductions import (
    identity_text,
    reduction_kind,
    reduction_of,
)
from hlo_passes.xla_release import XlaRelease

#: Elements. Source: openxla/xla, kOneShotAllReduceThreshold in the file below.
_MOST_ELEMENTS: Final = 256 * 1024
_KEPT = ("channel_id", "replica_groups", "constrain_layout", "use_global_device_ids")


@dataclass(frozen=True, slots=True)
class AllReduceDecomposer(Pass):
    """Replace all-reduces of at most 262,144 elements with all-gather and local reduce.

    When there is little to send, one message to everybody takes less time than two
    rounds. The pass leaves alone all-reduces that return a tuple, or whose reduction
    has no known neutral value. XLA runs the pass if the switch
    `xla_gpu_unsupported_enable_all_reduce_decomposer` is on. The rewrite may add
    floating-point values in another order.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_reduce_decomposer.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-decomposer"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-reduces in post order."""
        release = context.release_for(module, self.xla)

        def decompose(all_reduce: Instruction) -> str:
            return _decompose(all_reduce, module, release)

        return rewrite_each(module, "all-reduce", decompose, report, "decomposed")


def _decompose(all_reduce: Instruction, module: Module, release: XlaRelease) -> str:
    shape, operand = all_reduce.shape, all_reduce.operands[0]
    if not shape.is_array:
        return "returns a tuple"
    if shape.element_count > _MOST_ELEMENTS:
        return f"has more than {_MOST_ELEMENTS} elements"
    reduction = reduction_of(all_reduce)
    kind = reduction_kind(reduction)
    neutral = identity_text(kind, shape.element_type) if kind else ""
    if reduction is None or not neutral:
        return "has a reduction without a known neutral value"
    if any(p.shape.element_type != shape.element_type for p in reduction.parameters):
        return "has a reduction that takes another type than it returns"
    size = members_of_each_group(all_reduce, module)
    if not size:
        return "has groups of different sizes"
    computation, sizes = all_reduce.computation, shape.dimensions
    row = computation.new(
        "reshape", array_shape(shape.element_type, (1, *sizes)), (operand,)
    )
    attributes = {n: t for n, t in all_reduce.attributes.items() if n in _KEPT}
    if release.derives_collectives and "frontend_attributes" in all_reduce.attributes:
        described = all_reduce.attributes["frontend_attributes"]
        attributes["frontend_attributes"] = described
    rows = computation.new(
        "all-gather",
        array_shape(shape.element_type, (size, *sizes)),
        (row,),
        in_print_order({**attributes, "dimensions": "{0}"}, "all-gather"),
    )
    start = computation.new(
        "constant", array_shape(shape.element_type), literal=neutral
    )
    result = computation.new(
        "reduce",
        operand.shape,
        (rows, start),
        {"dimensions": "{0}", "to_apply": f"%{reduction.name}"},
    )
    computation.replace_uses(all_reduce, result)
    computation.remove_with_dead_operands(all_reduce)
    return ""
