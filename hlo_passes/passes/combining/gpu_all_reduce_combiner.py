"""Combines several all-reduces into one.

Before:  %a = f32[8] all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
         %b = f32[4] all-reduce(%y), replica_groups={{0,1}}, to_apply=%add.1
After:   %c = (f32[8], f32[4]) all-reduce(%x, %y), ..., to_apply=%add
         %g = f32[8] get-tuple-element(%c), index=0        readers of %a
         %h = f32[4] get-tuple-element(%c), index=1        readers of %b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.combining.gpu_combining import (
    CollectiveKey,
    GpuCombiner,
    collective_key,
    simple_reduction,
)

#: Frontend attribute of the members of a scheduling group.
_SCHEDULING_GROUP = "_scheduling_group_id"


@dataclass(frozen=True, slots=True)
class GpuAllReduceCombiner(GpuCombiner):
    """Combine independent all-reduces with the same reduction over the same groups.

    The reduction must be a single operation on its two parameters. The pass skips
    members of a scheduling group.

    Ensures: no combined all-reduce is combined again.
    Complexity: near-linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_reduce_combiner.cc`.
    """

    name: ClassVar[str] = "gpu-all-reduce-combiner"
    needs_collectives: ClassVar[bool] = True
    opcode: ClassVar[str] = "all-reduce"

    def base_key(self, collective: Instruction) -> CollectiveKey | str:
        """The key: reduction, groups and modes."""
        if (
            "frontend_attributes" in collective.attributes
            and _SCHEDULING_GROUP in collective.frontend_attributes
        ):
            return "is in a scheduling group"
        reduction = simple_reduction(collective)
        if reduction is None:
            return "has a reduction of more than one operation"
        return collective_key(
            collective,
            element_type=reduction.shape.element_type,
            to_apply=reduction.opcode,
        )
