"""Splits an all-reduce in two, so that the first one can become a reduce-scatter.

Before:  %a = f32[32] all-reduce(%x), replica_groups={{0,1,2,3,4,5,6,7}}, ...
         %d = f32[8] dynamic-slice(%a, 8 * (%partition-id mod 4)), ...
After:   %b = f32[32] all-reduce(%x), replica_groups={{0,1,2,3},{4,5,6,7}}, ...
         %d = f32[8] dynamic-slice(%b, ...)          a reduce-scatter, when one asks for
         %c = f32[8] all-reduce(%d), replica_groups={{0,4},{1,5},{2,6},{3,7}}, ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.device_offsets import Groups, groups_of, own_part
from hlo_passes.analysis.effects import channels_carry_meaning, has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive

_KEPT = ("constrain_layout", "use_global_device_ids", "to_apply")


@dataclass(frozen=True, slots=True)
class AllReduceSplitter(Pass):
    """Split an all-reduce over all partitions if each device keeps only a part of it.

    Each device keeps one of g parts of the result, and g is less than the number n of
    devices. The first new all-reduce is over neighbors, g at a time; together with the
    slice it is a reduce-scatter. The second one adds up the rest. This pays if another
    all-reduce of the computation has the groups of one of the two, because it can then
    be combined with that one; otherwise the pass leaves the all-reduce alone.

    The module must have one replica, and the ids must be flattened
    (`use_global_device_ids=true`). The rewrite adds floating-point values in another
    order.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_reduce_splitter.cc`.
    """

    name: ClassVar[str] = "all-reduce-splitter"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-reduces in post order."""
        version = module.version
        if channels_carry_meaning(module) or module.replica_count != 1:
            report.remark("nothing split: there is one partition, or several replicas")
            return False
        channel = next_channel_id(module)
        for computation in module.computations:
            all_reduces = [
                i for i in post_order(computation) if i.opcode == "all-reduce"
            ]
            others = {groups_of(all_reduce) for all_reduce in all_reduces}
            split = False
            for all_reduce in all_reduces:
                groups = _two_groups(all_reduce, module)
                if not isinstance(groups, str) and not others & set(groups):
                    groups = "has groups, split, that no other all-reduce has"
                if isinstance(groups, str):
                    report.remark(f"not split: %{all_reduce.name} {groups}")
                    continue
                _split(all_reduce, groups, channel)
                channel += 2
                report.count("all-reduces-split")
                split = True
            if split:
                restore_text_order(computation)
        return module.version != version


def _two_groups(all_reduce: Instruction, module: Module) -> tuple[Groups, Groups] | str:
    """The groups of both halves, or why there are none."""
    devices, groups = module.num_partitions, groups_of(all_reduce)
    if not all_reduce.use_global_device_ids:
        return "has no flattened ids"
    users = all_reduce.users
    if len(users) != 1 or users[0].opcode != "dynamic-slice":
        return "is not read by a dynamic-slice alone"
    dynamic_slice = users[0]
    if dynamic_slice.user_count > 1:
        return "is sliced for several readers"
    if len(groups) != 1 or len(groups[0]) != devices:
        return "is not over all partitions together"
    if has_control_edges(all_reduce):
        return "has control edges"
    whole, part = all_reduce.shape.dimensions, dynamic_slice.shape.dimensions
    differing = [k for k, n in enumerate(whole) if n != part[k]]
    if len(differing) != 1:
        return "is sliced along no or several dimensions"
    size = whole[differing[0]] // part[differing[0]]
    if size == devices or devices % size:
        return "is sliced into as many parts as devices, or into a number of no use"
    neighbors = tuple(
        tuple(range(first, first + size)) for first in range(0, devices, size)
    )
    strided = tuple(tuple(range(first, devices, size)) for first in range(size))
    cut = own_part(all_reduce, module, neighbors)
    return cut if isinstance(cut, str) else (neighbors, strided)


def _split(
    all_reduce: Instruction, groups: tuple[Groups, Groups], channel: int
) -> None:
    computation, dynamic_slice = all_reduce.computation, all_reduce.users[0]
    halves: list[Instruction] = []
    sources = (all_reduce.operands, (dynamic_slice,))
    for k, (operands, ids) in enumerate(zip(sources, groups, strict=True)):
        shape = (all_reduce, dynamic_slice)[k].shape
        half = computation.new("all-reduce", shape, operands)
        half.channel_id = channel + k
        half.set_attribute("replica_groups", lists_text(ids))
        for name in _KEPT:
            half.set_attribute(name, all_reduce.attributes.get(name))
        halves.append(half)
    first, second = halves
    derive(first, all_reduce)
    computation.replace(all_reduce, first)
    computation.replace_uses(dynamic_slice, second)
