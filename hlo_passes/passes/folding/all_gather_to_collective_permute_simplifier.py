"""Replaces an all-gather with a permute if each device reads the part of one device.

Before:  %a = f32[16] all-gather(%x), dimensions={0}, replica_groups={{0,1}}, ...
         %t = s32[2] constant({8,0})
         %o = s32[1] dynamic-slice(%t, %partition-id)     reshaped to s32[]
         %d = f32[8] dynamic-slice(%a, %o), dynamic_slice_sizes={8}
After:   %p = f32[8] collective-permute(%x), source_target_pairs={{0,1},{1,0}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.device_offsets import (
    cut_dimension,
    devices_by_start,
    groups_of,
)
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import SourceTargetPairs
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.reductions import GROUP_KEY
from hlo_passes.xla_release import XlaRelease

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class AllGatherToCollectivePermuteSimplifier(ComputationPass):
    """Replace an all-gather with a permute if each device slices out just one part.

    Each device of a group must take the part of exactly one device, along the gathered
    dimension, and must look up in a table where that part starts. The module must have
    one replica and several partitions, and the ids must be flattened
    (`use_global_device_ids=true`). The pass sorts the pairs of the permute; XLA's order
    is the order of a hash.

    XLA 0.10.2 leaves out the pair of a device with itself, so that this device receives
    zeros instead of its own part. Without XLA's quirks (`--no-xla-quirks`), such pairs
    stay.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/hlo/transforms/simplifiers/all_gather_permuted_ds_simplifier.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-gather-to-collective-permute-simplifier"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Visit dynamic-slices in post order."""
        module = computation.module
        if module.replica_count > 1 or module.num_partitions <= 1:
            return
        release = context.release_for(module, self.xla)
        made = False
        for dynamic_slice in post_order(computation):
            if dynamic_slice.opcode != "dynamic-slice" or dynamic_slice.removed:
                continue
            all_gather = dynamic_slice.operands[0]
            if all_gather.opcode == "reshape":
                all_gather = all_gather.operands[0]
            if all_gather.opcode != "all-gather":
                continue
            pairs = _pairs(all_gather, dynamic_slice)
            if isinstance(pairs, str):
                report.remark(f"not made a permute: %{all_gather.name} {pairs}")
                continue
            if context.xla_quirks and not release.permutes_own_parts:
                pairs = [
                    (source, target) for source, target in pairs if source != target
                ]
            _permute(all_gather, dynamic_slice, pairs, release)
            report.count("all-gathers-made-permutes")
            made = True
        if made:
            restore_text_order(computation)


def _pairs(all_gather: Instruction, dynamic_slice: Instruction) -> Pairs | str:
    """Whose part every device takes, as (source, target); or why that is not so."""
    shard = all_gather.operands[0].shape
    if not all_gather.shape.is_array or not dynamic_slice.shape.compatible(shard):
        return "is cut into parts other than what each device sent"
    groups = groups_of(all_gather)
    if all_gather.channel_id is None or not all_gather.use_global_device_ids:
        return "has no flattened ids"
    if not groups:
        return "does not list its groups"
    if has_control_edges(dynamic_slice):
        return f"stays, because %{dynamic_slice.name} has control edges"
    if _first_reader(all_gather) is not dynamic_slice:
        return "has other readers"
    dimension = cut_dimension(dynamic_slice)
    if dimension is None or (dimension,) != all_gather.integers("dimensions"):
        return "is cut along another dimension, or several"
    size = shard.dimensions[dimension]
    if dynamic_slice.shape.dimensions[dimension] != size:
        return "is cut into parts of another size"
    takers = devices_by_start(dynamic_slice, dimension, groups)
    if isinstance(takers, str):
        return takers
    pairs: Pairs = []
    for group, starts in zip(groups, takers, strict=True):
        for position, source in enumerate(group):
            if position * size not in starts:
                return "has a part that nobody takes"
            pairs.append((source, starts[position * size]))
    return sorted(pairs) or "has no members"


def _first_reader(all_gather: Instruction) -> Instruction:
    """What reads its result first, after a reshape and a bitcast with one reader."""
    user = all_gather.users[0]
    for opcode in ("reshape", "bitcast"):
        if user.opcode == opcode and user.user_count == 1:
            user = user.users[0]
    return user


def _permute(
    all_gather: Instruction,
    dynamic_slice: Instruction,
    pairs: Pairs,
    release: XlaRelease,
) -> None:
    permute = dynamic_slice.computation.new(
        "collective-permute",
        dynamic_slice.shape,
        (all_gather.operands[0],),
        {
            "channel_id": str(all_gather.channel_id),
            "source_target_pairs": SourceTargetPairs.of(pairs).to_text(),
        },
    )
    derive(permute, dynamic_slice)
    if release.keys_by_group:
        # The key of the collective that it replaces, not of the slice.
        attributes = permute.frontend_attributes.without(GROUP_KEY)
        if "frontend_attributes" in all_gather.attributes:
            key = all_gather.frontend_attributes.get(GROUP_KEY)
            attributes = attributes.with_value(GROUP_KEY, key) if key else attributes
        permute.frontend_attributes = attributes
        dynamic_slice.set_attribute("frontend_attributes", None)
    dynamic_slice.computation.replace(dynamic_slice, permute)
