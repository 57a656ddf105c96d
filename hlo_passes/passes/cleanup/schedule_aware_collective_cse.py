"""Merges equal collectives, unless their result would stay alive for too long.

Before:  %a = f32[32] all-gather(%x), channel_id=1, ...      read soon
         %b = f32[32] all-gather(%x), channel_id=2, ...      read a little later
After:   readers of %a and of %b read %a
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reshapes import source_behind, unmodified_dimensions
from hlo_passes.analysis.structure import Structure
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: Collectives that have a channel id and may be merged.
_MERGED = ("all-gather", "all-reduce", "collective-permute")


@dataclass(frozen=True, slots=True)
class ScheduleAwareCollectiveCse(ComputationPass):
    """Keep only the first of equal collectives whose readers are close to each other.

    The pass merges all-gathers, permutes, and all-reduces that stand for all-gathers:
    those of a dynamic-update-slice of a broadcast. Two collectives count as equal even
    if their channel ids differ, or if their operands were given dimensions of size 1.

    A merge keeps the first result until the readers of the second collective have run.
    So the pass measures the distance from the last reader of the first collective to
    the second collective. It counts instructions on the longest path to a result. If
    the distance is above `distance-threshold`, the pass keeps both collectives. It
    merges permutes at any distance.

    The merged collective stays until dead code is removed. XLA runs the pass if
    `xla_gpu_experimental_collective_cse_distance_threshold` is above 0.

    Ensures: a second run changes nothing, after `hlo-dce` has removed the dead code.
    Complexity: n log n in instructions.
    Source: openxla/xla `xla/service/spmd/schedule_aware_collective_ops_cse.cc`.

    Attributes:
        distance_threshold: by how many instructions a merge may lengthen the life of a
            result.
        for_replicas: merge collectives without a channel id instead of those with one.
    """

    name: ClassVar[str] = "schedule-aware-collective-cse"
    needs_collectives: ClassVar[bool] = True

    distance_threshold: int = 0
    for_replicas: bool = False

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Visit collectives in post order."""
        if not any(i.opcode in _MERGED for i in computation.instructions):
            return
        order = post_order(computation)
        heights = _heights(order)
        structure = Structure(layout_sensitive=True)
        first: dict[Hashable, list[_Kept]] = {}
        kept_of: dict[Instruction, _Kept] = {}
        known: dict[Instruction, Instruction] = {}
        before = computation.module.version
        for collective in order:
            reason = self._reason_to_keep(collective)
            if reason:
                if collective.opcode in _MERGED:
                    report.remark(f"not merged: %{collective.name} {reason}")
                continue
            value = source_behind(collective.operands[0], _adds_ones, known)
            alike = first.setdefault(_key(collective, value, structure), [])
            same = next(
                (
                    kept
                    for kept in alike
                    if structure.callees_agree(kept.collective, collective)
                ),
                None,
            )
            if same is None:
                kept_of[collective] = kept = _Kept(collective, heights)
                alike.append(kept)
                continue
            lowest = same.lowest_height()
            if collective.opcode != "collective-permute" and (
                lowest > heights[collective] + self.distance_threshold
            ):
                report.remark(
                    f"not merged: %{collective.name} equals %{same.collective.name}, "
                    f"whose readers are {lowest - heights[collective]} instructions "
                    "earlier"
                )
                continue
            # It reads what the first one reads, as the comparison with it wants.
            source = same.collective.operands[0]
            computation.set_operands(collective, (source, *collective.operands[1:]))
            if source in kept_of:
                kept_of[source].note(collective)
            for user in collective.users:
                same.note(user)
            computation.replace_uses(collective, same.collective)
            report.count("collectives-merged")
        if computation.module.version != before:
            restore_text_order(computation)

    def _reason_to_keep(self, collective: Instruction) -> str:
        """Why it is no candidate; not empty for what is no collective."""
        opcode = collective.opcode
        if opcode not in _MERGED:
            return "is no collective"
        if (collective.channel_id is None) != self.for_replicas:
            return "has a channel id" if self.for_replicas else "has no channel id"
        if unknown := unknown_attribute(collective):
            return f"has the unknown attribute {unknown}"
        if opcode == "collective-permute":
            return ""
        if collective.attributes.get("constrain_layout") == "true":
            return "constrains layouts"
        if opcode == "all-gather":
            return ""
        update = collective.operands[0]
        if (
            collective.shape.is_array
            and update.opcode == "dynamic-update-slice"
            and update.operands[0].opcode == "broadcast"
        ):
            return ""
        return "does not stand for an all-gather"


class _Kept:
    """A collective for others to be merged into, and the heights of its readers."""

    def __init__(
        self, collective: Instruction, heights: Mapping[Instruction, int]
    ) -> None:
        self.collective = collective
        self._heights = heights
        # Readers that come and go: what is no reader any more is dropped at the top.
        self._lowest = [(heights[user], user.name, user) for user in collective.users]
        heapq.heapify(self._lowest)

    def note(self, user: Instruction) -> None:
        """It has another reader."""
        heapq.heappush(self._lowest, (self._heights[user], user.name, user))

    def lowest_height(self) -> int:
        """The height of the last of its readers, or its own."""
        own, readers = self._heights[self.collective], self.collective.user_table()
        while self._lowest and self._lowest[0][2] not in readers:
            heapq.heappop(self._lowest)
        return min(own, self._lowest[0][0]) if self._lowest else own


def _heights(order: tuple[Instruction, ...]) -> dict[Instruction, int]:
    """The length of the longest path from each instruction to one without users."""
    heights: dict[Instruction, int] = {}
    for instruction in reversed(order):
        heights[instruction] = max(
            (heights[user] + 1 for user in instruction.users), default=0
        )
    return heights


def _adds_ones(value: Instruction) -> bool:
    """Whether it gives its operand dimensions of size 1, and makes no other change."""
    if value.opcode not in ("reshape", "bitcast"):
        return False
    before = value.operands[0].shape
    if before.element_count != value.shape.element_count:
        return False
    kept = unmodified_dimensions(before.dimensions, value.shape.dimensions)
    return len(kept) == before.rank


def _key(collective: Instruction, value: Instruction, structure: Structure) -> Hashable:
    """Equal for collectives that are equal apart from channel ids and callees."""
    meaning = [
        pair for pair in structure.meaning(collective) if pair[0] != "channel_id"
    ]
    return (
        collective.opcode,
        collective.shape.text,
        collective.spelling_of("sharding"),
        value,
        collective.operands[1:],
        tuple(meaning),
    )
