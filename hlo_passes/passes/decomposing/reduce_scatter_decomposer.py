"""Replaces a reduce-scatter with an all-reduce, of which each device keeps its part.

Before:  %s = f32[8] reduce-scatter(%x), dimensions={0}, replica_groups={{0,1,2,3}}, ...
After:   %a = f32[32] all-reduce(%x), replica_groups={{0,1,2,3}}, ...
         %k = u32[] multiply(id, 8)
         %d = f32[8] dynamic-slice(%a, %k), dynamic_slice_sizes={8}
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.async_wrapping import copied_computation
from hlo_passes.passes.decomposing.own_position import (
    obstacle_to_position,
    starts_of_own_part,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.each_collective import rewrite_each
from hlo_passes.passes.rewriting.reductions import (
    reduction_of,
    without_mixed_layouts,
)

_KEPT = (
    "replica_groups",
    "constrain_layout",
    "use_global_device_ids",
    "frontend_attributes",
)


@dataclass(frozen=True, slots=True)
class ReduceScatterDecomposer(Pass):
    """Replace a reduce-scatter with an all-reduce and a slice of each device's part.

    The pass is the inverse of `reduce-scatter-creator`. The all-reduce has a copy of
    the reduction and the frontend attributes of the reduce-scatter. If the
    reduce-scatter has a channel id, the all-reduce gets a new one. The pass leaves
    alone reduce-scatters that return a tuple, or whose groups omit devices. No default
    pipeline runs it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/reduce_scatter_decomposer.cc`.
    """

    name: ClassVar[str] = "reduce-scatter-decomposer"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit reduce-scatters in post order."""
        channels = count(next_channel_id(module))

        def decompose(reduce_scatter: Instruction) -> str:
            reason = _obstacle(reduce_scatter)
            if not reason:
                channel = reduce_scatter.channel_id
                _decompose(reduce_scatter, None if channel is None else next(channels))
            return reason

        alike = without_mixed_layouts(module, decompose)
        return rewrite_each(module, "reduce-scatter", alike, report, "decomposed")


def _obstacle(reduce_scatter: Instruction) -> str:
    if not reduce_scatter.shape.is_array:
        return "returns a tuple"
    return obstacle_to_position(reduce_scatter)


def _decompose(reduce_scatter: Instruction, channel: int | None) -> None:
    computation, reduction = reduce_scatter.computation, reduction_of(reduce_scatter)
    assert reduction is not None
    copy = copied_computation(reduction, "clone", before=computation)
    attributes = {n: t for n, t in reduce_scatter.attributes.items() if n in _KEPT}
    attributes["to_apply"] = f"%{copy.name}"
    if channel is not None:
        attributes["channel_id"] = str(channel)
    whole = reduce_scatter.operands[0].shape
    all_reduce = computation.new(
        "all-reduce",
        whole,
        reduce_scatter.operands,
        in_print_order(attributes, "all-reduce"),
    )
    # Each device keeps its own part.
    (dimension,) = reduce_scatter.integers("dimensions")
    starts = starts_of_own_part(reduce_scatter, reduce_scatter.shape, dimension)
    sizes = ",".join(map(str, reduce_scatter.shape.dimensions))
    own = computation.new(
        "dynamic-slice",
        reduce_scatter.shape,
        (all_reduce, *starts),
        {"dynamic_slice_sizes": f"{{{sizes}}}"},
    )
    computation.replace_uses(reduce_scatter, own)
    computation.remove(reduce_scatter)
