"""Replaces two all-reduces in a row with one.

Before:  %a = f32[8] all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%add
         %b = f32[8] all-reduce(%a), replica_groups={{0,2},{1,3}}, to_apply=%add
After:   %c = f32[8] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import FrontendAttributes
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.merging import merged_frontend_attributes
from hlo_passes.passes.rewriting.reductions import (
    GROUP_KEY,
    constrains_layouts,
    group_key,
    reduction_key,
)

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AllReduceFolder(Pass):
    """Fold an all-reduce of an all-reduce into one all-reduce over the groups of both.

    Both must have the same reduction, and nothing else may read the first one. No
    device may contribute twice to a result, and every device that contributes to a
    result must receive that result. The rewrite adds floating-point values in another
    order. The pass leaves a module alone if any all-reduce in it constrains layouts.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/hlo/transforms/simplifiers/all_reduce_folder.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-folder"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-reduces in post order, so that chains fold from the first on."""
        version = module.version
        if constrains_layouts(module, "all-reduce"):
            report.remark("not folded: an all-reduce of the module constrains layouts")
            return False
        merges = context.release_for(module, self.xla).derives_collectives
        channel = next_channel_id(module)
        for computation in module.computations:
            folded = False
            for second in post_order(computation):
                if second.opcode != "all-reduce":
                    continue
                first = second.operands[0]
                if first.opcode != "all-reduce":
                    continue
                groups = _groups_of_both(first, second)
                if isinstance(groups, str):
                    report.remark(
                        f"not folded: %{first.name} and %{second.name} {groups}"
                    )
                    continue
                _fold(first, second, groups, channel, merges=merges)
                channel += first.channel_id is not None
                report.count("all-reduces-folded")
                folded = True
            if folded:
                restore_text_order(computation)
        return module.version != version


def _groups_of_both(first: Instruction, second: Instruction) -> Groups | str:
    """The groups of one all-reduce in the place of two, or why there cannot be one."""
    if first.user_count != 1 or first.is_root:
        return "stay, because the first has other readers"
    if not first.shape.is_array or len(second.operands) != 1:
        return "stay, because they reduce several operands"
    key = reduction_key(first, any_groups=True)
    if key is None or key != reduction_key(second, any_groups=True):
        return "differ in reduction, type, channel or ids, or have control edges"
    for each in (first, second):
        if unknown := unknown_attribute(each):
            return f"have the unknown attribute {unknown}"
    before, after = groups_of(first), groups_of(second)
    if not before or not after:
        return "stay, because one does not list its groups"
    groups = _folded(before, after)
    return groups or "do not give all contributors of a result the same result"


def _folded(first: Groups, second: Groups) -> Groups:
    """The groups whose members contribute to the same results; () if there are none.

    {0,1},{2,3} and then {0,2},{1,3}: {0,1,2,3}.
    """
    group_of = {device: group for group in first for device in group}
    # Whose values each device receives in the end. Nobody may contribute twice.
    received: dict[int, frozenset[int]] = {}
    for group in second:
        if any(device not in group_of for device in group):
            return ()
        contributions = [device for member in group for device in group_of[member]]
        contributors = frozenset(contributions)
        if len(contributors) != len(contributions):
            return ()
        received |= dict.fromkeys(group, contributors)
    # All contributors of a result must receive it.
    groups = dict.fromkeys(received.values())
    for contributors in groups:
        if any(received.get(device) != contributors for device in contributors):
            return ()
    return tuple(sorted(tuple(sorted(contributors)) for contributors in groups))


def _fold(
    first: Instruction,
    second: Instruction,
    groups: Groups,
    channel: int,
    *,
    merges: bool,
) -> None:
    computation = first.computation
    folded = computation.new("all-reduce", first.shape, first.operands)
    if first.channel_id is not None:
        folded.channel_id = channel
    folded.set_attribute("replica_groups", lists_text(groups))
    for name in ("use_global_device_ids", "to_apply"):
        folded.set_attribute(name, first.attributes.get(name))
    if merges:
        folded.frontend_attributes = _attributes_of_both(first, second)
    computation.replace_uses(second, folded)
    computation.remove(second)
    computation.remove(first)


def _attributes_of_both(first: Instruction, second: Instruction) -> FrontendAttributes:
    """The union; a group key only where both have one, or just one has any."""
    merged = merged_frontend_attributes((first, second)).without(GROUP_KEY)
    keys = {key for key in map(group_key, (first, second)) if key}
    return merged.with_value(GROUP_KEY, keys.pop()) if len(keys) == 1 else merged
