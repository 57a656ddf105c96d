"""Replaces two all-reduces with one if the same operation combines their results.

Before:  %a = f32[8] all-reduce(%x), to_apply=%add
         %b = f32[8] all-reduce(%y), to_apply=%add
         %s = f32[8] add(%a, %b)
After:   %s = f32[8] add(%x, %y)
         %c = f32[8] all-reduce(%s), to_apply=%add           readers of %s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.element_types import converts_without_loss, is_floating
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.reductions import (
    add_reduction,
    constrains_layouts,
    group_key,
    is_identity,
    kind_of,
    reduction_key,
    reduction_kind,
    reduction_of,
)
from hlo_passes.xla_release import XlaRelease

#: What may be between an all-reduce and the operation on its result.
_LOOKED_THROUGH: Final = frozenset({"reshape", "pad", "slice", "convert"})


@dataclass(frozen=True, slots=True)
class _Match:
    """Two all-reduces whose results an operation joins.

    Attributes:
        operation: what joins them.
        all_reduces: the two, which may be one.
        slices: the dynamic-slices between, () where there are none.
        converts: for each operand, the widening conversion between; None for none.
    """

    operation: Instruction
    all_reduces: tuple[Instruction, Instruction]
    slices: tuple[Instruction, ...] = ()
    converts: tuple[Instruction | None, Instruction | None] = (None, None)


@dataclass(frozen=True, slots=True)
class AllReduceReassociate(Pass):
    """Combine the operands of two all-reduces instead of their results.

    One all-reduce then does the work of two. The operation that combines the results
    must be the one by which both all-reduces reduce. Both must have the same groups,
    type and mode (with or without a channel id, and `use_global_device_ids`), and
    nothing else may read them. Between an all-reduce and the operation there may be
    reshapes, slices, conversions, and pads with the reduction's identity; or there may
    be equal dynamic-slices on both sides. The new all-reduce must not have more
    elements than the two old ones together.

    If the operands of the operation are first converted to a wider type, the new
    all-reduce reduces in that type. The rewrite adds floating-point values in another
    order. The pass leaves a module alone if any all-reduce in it constrains layouts.

    XLA widens sums of integers, too. Such a sum then does not overflow where the narrow
    one did. Without XLA's quirks (`--no-xla-quirks`), the pass leaves such all-reduces
    alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/all_reduce_reassociate.cc`.

    Attributes:
        reassociate_converted: also combine all-reduces whose results are converted to a
            wider type first.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-reassociate"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    reassociate_converted: bool = True
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit operations in post order, so that sums of sums become one."""
        version = module.version
        if constrains_layouts(module, "all-reduce"):
            report.remark(
                "not reassociated: an all-reduce of the module constrains layouts"
            )
            return False
        release = context.release_for(module, self.xla)
        channel = next_channel_id(module)
        for computation in module.computations:
            made = False
            for operation in post_order(computation):
                kind = kind_of(operation.opcode, operation.shape.element_type)
                if not kind or not operation.shape.is_array:
                    continue
                match = self._match(
                    operation, kind, release, xla_quirks=context.xla_quirks
                )
                if isinstance(match, str):
                    if match:
                        report.remark(f"not reassociated: %{operation.name} {match}")
                    continue
                result = _reassociate(match)
                if result.channel_id is not None:
                    if not release.rewrites_keep_channels:
                        result.channel_id = channel
                    channel += 1
                report.count("all-reduces-joined")
                made = True
            if made:
                restore_text_order(computation)
        return module.version != version

    def _match(
        self,
        operation: Instruction,
        kind: str,
        release: XlaRelease,
        *,
        xla_quirks: bool,
    ) -> _Match | str:
        """The all-reduces that an operation joins, or why they stay ('': none)."""
        # Both operands come from all-reduces in the same way.
        found = [_source(operand, kind) for operand in operation.operands]
        left, right = found
        if left is None or right is None:
            return ""
        slices: tuple[Instruction, ...] = ()
        all_reduces = (left, right)
        if left.opcode != right.opcode:
            return "reads one all-reduce through a dynamic-slice, and one not"
        if left.opcode == "dynamic-slice":
            slices = (left, right)
            all_reduces = (left.operands[0], right.operands[0])
            if not _cut_alike(left, right):
                return "reads all-reduces through different dynamic-slices"
        # One all-reduce must not move more than the two did.
        both = sum(i.shape.element_count for i in dict.fromkeys((left, right)))
        if both < operation.shape.element_count:
            return "has more elements than both all-reduces together"
        converts = _converts(operation)
        if any(converts) and not self.reassociate_converted:
            return "reads converted all-reduces"
        if any(converts) and not _widen_alike(converts):
            return "reads conversions that may lose something, or of different types"
        if not xla_quirks and any(converts) and kind in ("sum", "product"):
            narrow = all_reduces[0].shape.element_type
            if not is_floating(narrow):
                return f"may hold more than the {narrow} of its all-reduces"
        return self._difference(
            _Match(operation, all_reduces, slices, converts), kind, release
        )

    @staticmethod
    def _difference(match: _Match, kind: str, release: XlaRelease) -> _Match | str:
        """The match, or why its two all-reduces cannot be one."""
        first, second = match.all_reduces
        widens = any(match.converts)
        key = reduction_key(first, any_type=widens)
        if key is None or key != reduction_key(second, any_type=widens):
            return "reads all-reduces that differ, or have control edges"
        if reduction_kind(reduction_of(first)) != kind:
            return "is not what its operands reduce with"
        if release.keys_by_group and group_key(first) != group_key(second):
            return "reads all-reduces of different collective_group_key"
        if not (first.shape.is_array and second.shape.is_array):
            return "reads an all-reduce of several operands"
        reduced, wanted = first.shape, match.operation.shape
        if not widens and reduced.element_type != wanted.element_type:
            return "has another type than the all-reduces"
        if any(map(has_control_edges, (match.operation, *match.slices))):
            return "has control edges, or its dynamic-slices have"
        return match


def _source(instruction: Instruction, kind: str) -> Instruction | None:
    """The all-reduce an operand comes from, or the dynamic-slice of one; else None."""
    if instruction.opcode == "dynamic-slice":
        operand = instruction.operands[0]
        alone = operand.user_count == instruction.user_count == 1
        return instruction if operand.opcode == "all-reduce" and alone else None
    while instruction.opcode != "all-reduce":
        if instruction.user_count != 1 or instruction.opcode not in _LOOKED_THROUGH:
            return None
        if instruction.opcode == "pad" and not is_identity(
            instruction.operands[1], kind
        ):
            return None
        instruction = instruction.operands[0]
    return instruction if instruction.user_count == 1 else None


def _cut_alike(left: Instruction, right: Instruction) -> bool:
    return (
        left.operands[0].shape.compatible(right.operands[0].shape)
        and left.operands[1:] == right.operands[1:]
        and left.shape == right.shape
        and left.spelling_of("backend_config") == right.spelling_of("backend_config")
    )


def _converts(
    operation: Instruction,
) -> tuple[Instruction | None, Instruction | None]:
    """The conversions directly between the operation and its all-reduces."""
    found: list[Instruction | None] = []
    for operand in operation.operands:
        if operand.opcode == "all-reduce":
            found.append(None)
        elif (
            operand.opcode == "convert"
            and operand.user_count == 1
            and operand.operands[0].opcode == "all-reduce"
        ):
            found.append(operand)
        else:
            return None, None
    return found[0], found[1]


def _widen_alike(converts: tuple[Instruction | None, Instruction | None]) -> bool:
    """Whether no conversion loses anything, and both are from one type."""
    types = [
        (c.operands[0].shape.element_type, c.shape.element_type)
        for c in converts
        if c is not None
    ]
    return len(set(types)) == 1 and all(converts_without_loss(*t) for t in types)


def _reassociate(match: _Match) -> Instruction:
    """Put the operation before one all-reduce; returns that all-reduce."""
    operation, (first, second) = match.operation, match.all_reduces
    computation = operation.computation
    gone: list[Instruction] = []
    if any(match.converts):
        # What was converted is converted before; the new all-reduce has the wide type.
        operands: list[Instruction] = []
        for all_reduce, convert in zip(match.all_reduces, match.converts, strict=True):
            operand = all_reduce.operands[0]
            if convert is not None:
                computation.set_operands(convert, (operand,))
            operands.append(convert or operand)
        joined = copy_of(operation, operands)
        wide = operation.shape.with_element_type(operands[0].shape.element_type)
        result = copy_of(first, (joined,), wide)
        _reduce_in_its_type(result)
        computation.replace_uses(operation, result)
        gone.append(operation)
    elif match.slices:
        joined = copy_of(
            operation, (first.operands[0], second.operands[0]), first.shape
        )
        result = copy_of(first, (joined,))
        starts = match.slices[0].operands[1:]
        cut = copy_of(match.slices[0], (result, *starts), operation.shape)
        computation.replace_uses(operation, cut)
        gone += (operation, *match.slices)
    else:
        users, was_root = operation.users, operation.is_root
        for all_reduce in dict.fromkeys(match.all_reduces):
            computation.replace_uses(all_reduce, all_reduce.operands[0])
        result = copy_of(first, (operation,), operation.shape)
        for user in users:
            computation.replace_operand(user, operation, result)
        if was_root:
            computation.set_root(result)
    for instruction in dict.fromkeys((*gone, first, second)):
        computation.remove(instruction)
    return result


def _reduce_in_its_type(all_reduce: Instruction) -> None:
    """Give an all-reduce a reduction of its own element type."""
    old = reduction_of(all_reduce)
    assert old is not None
    wider = add_reduction(
        old.module,
        old.root.opcode,
        all_reduce.shape.element_type,
        f"{old.name}_reassoc_promoted",
        before=all_reduce.computation,
    )
    all_reduce.set_attribute("to_apply", f"%{wider.name}")
