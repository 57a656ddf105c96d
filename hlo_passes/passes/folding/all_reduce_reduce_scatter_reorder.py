"""Scatters a value before reducing it further, so that less is reduced.

Before:  %a = f32[32] all-reduce(%x), replica_groups={{0,2},{1,3}}, to_apply=%add
         %s = f32[16] reduce-scatter(%a), replica_groups={{0,1},{2,3}}, to_apply=%add
After:   %t = f32[16] reduce-scatter(%x), replica_groups={{0,1},{2,3}}, to_apply=%add
         %b = f32[16] all-reduce(%t), replica_groups={{0,2},{1,3}}, to_apply=%add
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.device_offsets import Groups, groups_of
from hlo_passes.analysis.devices import group_mode
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.each_collective import rewrite_each
from hlo_passes.passes.rewriting.reductions import reduction_kind, reduction_of


@dataclass(frozen=True, slots=True)
class AllReduceReduceScatterReorder(Pass):
    """Move a reduce-scatter before the all-reduce that it reads.

    The all-reduce then reduces less. Both must have the same reduction, and nothing
    else may read the all-reduce. XLA neither compares the groups of the two nor asks
    what an unknown reduction does. Without XLA's quirks (`--no-xla-quirks`), the pass
    is stricter: the devices must form grids, with the groups of one collective as rows
    and those of the other as columns; the same part must go to all devices of a group
    of the all-reduce; and the reduction must be known.

    XLA's GPU pipeline does not run the pass. The rewrite adds floating-point values in
    another order.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/all_reduce_reduce_scatter_reorder.cc`.
    """

    name: ClassVar[str] = "all-reduce-reduce-scatter-reorder"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-reduces in post order."""

        def reorder(all_reduce: Instruction) -> str:
            reason = _reason_to_keep(all_reduce)
            if not reason and not context.xla_quirks:
                reason = _difference(all_reduce, all_reduce.users[0])
            if not reason:
                _reorder(all_reduce)
            return reason

        return rewrite_each(module, "all-reduce", reorder, report, "reordered")


def _reason_to_keep(all_reduce: Instruction) -> str:
    if all_reduce.user_count != 1 or all_reduce.is_root:
        return "has several users, or none"
    (reduce_scatter,) = all_reduce.users
    if reduce_scatter.opcode != "reduce-scatter":
        return "is not read by a reduce-scatter"
    if has_control_edges(reduce_scatter):
        return f"stays, because %{reduce_scatter.name} has control edges"
    if len(reduce_scatter.operands) > 1:
        return f"is one of several operands of %{reduce_scatter.name}"
    kind = reduction_kind(reduction_of(all_reduce))
    if kind and kind != reduction_kind(reduction_of(reduce_scatter)):
        return f"reduces otherwise than %{reduce_scatter.name}"
    return ""


def _difference(all_reduce: Instruction, reduce_scatter: Instruction) -> str:
    """Why the values would be others in the other order; '' if they are the same."""
    if not reduction_kind(reduction_of(all_reduce)):
        return "has an unknown reduction"
    both = (all_reduce, reduce_scatter)
    if len({group_mode(each, each.opcode) for each in both}) > 1:
        return f"has ids of another meaning than %{reduce_scatter.name}"
    across, within = groups_of(all_reduce), groups_of(reduce_scatter)
    if not across or not within or not _cross_once(across, within):
        return f"has groups that do not each cross those of %{reduce_scatter.name} once"
    position = {device: place for group in within for place, device in enumerate(group)}
    if any(len({position.get(device) for device in group}) > 1 for group in across):
        return "has groups whose devices keep different parts"
    return ""


def _cross_once(some: Groups, others: Groups) -> bool:
    """Whether devices form grids, with the groups as rows and as columns."""
    row = {device: k for k, group in enumerate(some) for device in group}
    if set(row) != {device for group in others for device in group}:
        return False
    # A column crosses each of its rows once, and all columns of these rows do so, too.
    rows_of_row: dict[int, frozenset[int]] = {}
    columns_of_row: dict[int, int] = {}
    for column in others:
        rows = frozenset(row[device] for device in column)
        if len(rows) != len(column):
            return False
        for each in rows:
            if rows_of_row.setdefault(each, rows) != rows:
                return False
            columns_of_row[each] = columns_of_row.get(each, 0) + 1
    return all(len(some[each]) == number for each, number in columns_of_row.items())


def _reorder(all_reduce: Instruction) -> None:
    computation, (reduce_scatter,) = all_reduce.computation, all_reduce.users
    scattered = copy_of(reduce_scatter, all_reduce.operands)
    reduced = copy_of(all_reduce, (scattered,), reduce_scatter.shape)
    computation.replace_uses(reduce_scatter, reduced)
    computation.remove(reduce_scatter)
    computation.remove(all_reduce)
