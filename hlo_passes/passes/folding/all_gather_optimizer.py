"""Replaces two all-gathers with one if an operation joins their results.

Before:  %a = f32[32] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}
         %b = f32[32] all-gather(%y), dimensions={0}, replica_groups={{0,1,2,3}}
         %s = f32[32] add(%a, %b)
After:   %t = f32[8] add(%x, %y)
         %c = f32[32] all-gather(%t), dimensions={0}, ...      readers of %s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir import opcodes
from hlo_passes.ir.gpu_config import collective_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import (
    is_spmd_generated,
    set_collective_fields,
    whole_collective_config,
)
from hlo_passes.passes.rewriting.reductions import GROUP_KEY, group_key
from hlo_passes.xla_release import XlaRelease

#: Fields that the new all-gather has if either had them.
_EITHER = ("is_pipelined", "is_spmd_generated")
_KEPT = ("channel_id", "replica_groups", "use_global_device_ids")


@dataclass(frozen=True, slots=True)
class AllGatherOptimizer(Pass):
    """Combine two values before gathering them, so that one all-gather is enough.

    The operation that combines the values must be commutative. Both all-gathers must
    have the same groups, mode and operand shape, and with it the same gathered
    dimension. Nothing but the operation may read them.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_gather_optimizer.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-gather-optimizer"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit operations in post order, so that sums of sums become one."""
        version = module.version
        release = context.release_for(module, self.xla)
        for computation in computations_post_order(module):
            made = False
            for operation in post_order(computation):
                operands = operation.operands
                if not opcodes.facts(operation.opcode).is_commutative or any(
                    o.opcode != "all-gather" for o in operands
                ):
                    continue
                reason = _difference(operation, release)
                if reason:
                    report.remark(f"not joined: %{operation.name} {reason}")
                    continue
                _join(operation, release)
                report.count("all-gathers-joined")
                made = True
            if made:
                restore_text_order(computation)
        return module.version != version


def _difference(operation: Instruction, release: XlaRelease) -> str:
    """Why two all-gathers stay two; '' if they may be one."""
    left, right = operation.operands
    for name in ("constrain_layout", "use_global_device_ids"):
        if left.attributes.get(name, "false") != right.attributes.get(name, "false"):
            return f"reads all-gathers that differ in {name}"
    if groups_of(left) != groups_of(right):
        return "reads all-gathers over different groups"
    if release.keys_by_group and group_key(left) != group_key(right):
        return "reads all-gathers of different collective_group_key"
    if release.keys_by_group and not _have_compatible_configs(left, right, release):
        return "reads all-gathers with different backend configs"
    if not left.shape.is_array or left.operands[0].shape != right.operands[0].shape:
        return "reads all-gathers of different shapes"
    if left.user_count != 1 or right.user_count != 1:
        return "reads all-gathers with other readers"
    if any(map(has_control_edges, (operation, left, right))):
        return "has control edges, or its all-gathers have"
    for each in (left, right):
        if unknown := unknown_attribute(each):
            return f"reads an all-gather with the unknown attribute {unknown}"
    return ""


def _have_compatible_configs(
    left: Instruction, right: Instruction, release: XlaRelease
) -> bool:
    """Whether both say the same, apart from what the new one has if either has it."""
    if not (has_gpu_config(left) and has_gpu_config(right)):
        return False
    configs = [whole_collective_config(each, release) for each in (left, right)]
    for config in configs:
        for name in _EITHER:
            config["collective_backend_config"].pop(name, None)
    return configs[0] == configs[1]


def _join(operation: Instruction, release: XlaRelease) -> None:
    computation, (left, right) = operation.computation, operation.operands
    x, y = left.operands[0], right.operands[0]
    joined = computation.new(operation.opcode, x.shape, (x, y))
    result = computation.new("all-gather", left.shape, (joined,))
    for name in _KEPT:
        result.set_attribute(name, left.attributes.get(name))
    result.set_attribute("dimensions", right.attributes["dimensions"])
    if release.derives_collectives:
        _describe(result, operation, release)
    computation.replace(operation, result)


def _describe(result: Instruction, operation: Instruction, release: XlaRelease) -> None:
    """The operation's metadata; the left all-gather's group key and config."""
    left, right = operation.operands
    derive(result, operation)
    key = group_key(left)
    attributes = result.frontend_attributes.without(GROUP_KEY)
    result.frontend_attributes = (
        attributes.with_value(GROUP_KEY, key) if key else attributes
    )
    result.set_attribute("backend_config", left.attributes.get("backend_config"))
    configs = [collective_config(each) for each in (left, right)]
    set_collective_fields(
        result,
        release,
        is_pipelined=any(config.get("is_pipelined") for config in configs),
        is_spmd_generated=any(is_spmd_generated(each) for each in (left, right)),
    )
