"""Gathers a value before a reshape adds sizes of 1, so that all-gathers are equal.

Before:  %r = f32[1,8] reshape(%x)
         %a = f32[1,32] all-gather(%r), dimensions={1}, ...
After:   %b = f32[32] all-gather(%x), dimensions={0}, ...
         %s = f32[1,32] reshape(%b)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import prod
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.reshapes import (
    changes_only_ones,
    source_behind,
    unmodified_dimensions,
)
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.each_collective import rewrite_each


@dataclass(frozen=True, slots=True)
class CanonAllGatherForCse(Pass):
    """Gather a value before a reshape that only adds or removes dimensions of size 1.

    The reshape then follows the all-gather. If two all-gathers read one value in two
    such shapes, they differ only by channel ids afterward. The pass changes only
    all-gathers of one operand. If an all-gather has a channel id, it gets a new one.
    XLA's GPU pipeline does not run the pass.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/spmd/canonicalize_all_gather_for_cse.cc`.
    """

    name: ClassVar[str] = "canon-all-gather-for-cse"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-gathers in post order."""
        channels = count(next_channel_id(module))
        known: dict[Instruction, Instruction] = {}

        def gather_first(all_gather: Instruction) -> str:
            found = _value_and_dimension(all_gather, known)
            if isinstance(found, str):
                return found
            channel = all_gather.channel_id
            _gather(all_gather, *found, None if channel is None else next(channels))
            return ""

        return rewrite_each(module, "all-gather", gather_first, report, "moved")


def _value_and_dimension(
    all_gather: Instruction, known: dict[Instruction, Instruction]
) -> tuple[Instruction, int] | str:
    """The value before the reshapes and its gathered dimension, or why none."""
    if len(all_gather.operands) != 1:
        return "has several operands"
    operand = all_gather.operands[0]
    value = source_behind(operand, changes_only_ones, known)
    if not operand.shape.element_count:
        return "gathers nothing"
    if value is operand:
        return "does not gather a reshape that only adds or removes sizes of 1"
    (dimension,) = all_gather.integers("dimensions")
    sizes = operand.shape.dimensions
    inner: tuple[int, ...] = value.shape.dimensions
    kept = {old: new for new, old in unmodified_dimensions(sizes, inner).items()}
    place = kept.get(dimension)
    if place is None:
        # A dimension of size 1 goes: the place is after what is more major.
        place, elements = 0, prod(sizes[:dimension])
        while elements > 1:
            elements //= inner[place]
            place += 1
    if place == len(inner):
        return "gathers along a dimension that the value does not have"
    return value, place


def _gather(
    all_gather: Instruction, value: Instruction, dimension: int, channel: int | None
) -> None:
    computation, shape = all_gather.computation, all_gather.shape
    devices = shape.element_count // max(1, all_gather.operands[0].shape.element_count)
    sizes = list(value.shape.dimensions)
    sizes[dimension] *= devices
    changes = {"dimensions": f"{{{dimension}}}"}
    if channel is not None:
        changes["channel_id"] = str(channel)
    gathered = copy_of(
        all_gather, (value,), value.shape.with_dimensions(tuple(sizes)), changes
    )
    result = computation.new("reshape", shape, (gathered,))
    computation.replace(all_gather, result)
