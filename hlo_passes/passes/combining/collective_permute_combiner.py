"""Combines several small permutes into one.

Before:  %a = f32[8] collective-permute(%x), channel_id=1, source_target_pairs=P
         %b = bf16[4] collective-permute(%y), channel_id=2, source_target_pairs=P
After:   %c = (f32[8], bf16[4]) collective-permute(%x, %y), channel_id=1,
                                                     source_target_pairs=P
         %g = f32[8] get-tuple-element(%c), index=0        readers of %a
         %h = bf16[4] get-tuple-element(%c), index=1       readers of %b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.combining.combining import (
    DEFAULT_THRESHOLD_BYTES,
    DEFAULT_THRESHOLD_COUNT,
    Anchor,
    Limits,
    combine_by_key,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.elements import elements_for
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.merging import merged_attributes


class PermuteKey(NamedTuple):
    """Permutes with equal keys may be combined; the fields are named as in HLO text.

    `channel_id` says only whether the permute has one; it is None if channel ids are
    ignored. `collective_group_key` is '' if these keys are ignored.
    """

    source_target_pairs: tuple[tuple[int, int], ...]
    combiner_key: str
    collective_group_key: str
    channel_id: bool | None


@dataclass(frozen=True, slots=True)
class CollectivePermuteCombiner(Pass):
    """Combine independent permutes with the same source-target pairs into one permute.

    The members keep their post order, and the combined permute has the channel id of
    the first one. The pass leaves alone in-place permutes, starts of asynchronous
    permutes, permutes with control edges, and permutes that are already combined.

    XLA combines a permute that has no channel id with a permute that has one. This
    changes what the ids of the second permute mean. With `xla_quirks`, which is the
    default, this pass does the same.

    Ensures: no combined permute is combined again. Permutes that a dependence or a
    threshold kept apart may be combined in a second run, as in XLA.
    Complexity: near-linear in instructions; with `past-dependence`, times the longest
    chain of dependent permutes.
    Source: openxla/xla `xla/hlo/transforms/collectives/collective_permute_combiner.cc`.

    Attributes:
        threshold_bytes: the most bytes that the results of a combined permute may have;
            0 or less turns the pass off. The default is XLA's, 30 MiB and 7 bytes.
        threshold_count: the most operands that a combined permute may have; 0 or less
            turns the pass off. The default is XLA's.
        past_dependence: do what XLA's enzyme option does. If a permute depends on the
            permutes collected so far, skip that permute and go on; false: stop
            collecting there. Pairs are the same in any order. Permutes of one operand
            share an output.
        xla: the release of XLA to follow; none: the release that the run follows. From
            0.11 on, permutes with different `collective_group_key` are kept apart.
    """

    name: ClassVar[str] = "collective-permute-combiner"
    needs_collectives: ClassVar[bool] = True

    threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    threshold_count: int = DEFAULT_THRESHOLD_COUNT
    past_dependence: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation except fusion bodies."""
        if self.threshold_bytes <= 0 or self.threshold_count <= 0:
            report.remark(
                "not combined: a threshold of 0 or less switches the pass off"
            )
            return False
        limits = Limits(
            self.threshold_bytes, self.threshold_count, self.past_dependence
        )
        changed = False
        key_of = partial(
            _key,
            context=context,
            report=report,
            by_group=context.release_for(module, self.xla).keys_by_group,
            in_any_order=self.past_dependence,
        )
        combine = _combine_operands if self.past_dependence else _combine
        for computation in computations_post_order(module, fusions=False):
            keys = {
                instruction: key
                for instruction in computation.instructions
                if instruction.opcode == "collective-permute"
                and (key := key_of(instruction)) is not None
            }
            changed |= combine_by_key(computation, dict(keys), combine, limits, report)
        return changed


def _key(
    permute: Instruction,
    context: PassContext,
    report: Report,
    *,
    by_group: bool,
    in_any_order: bool,
) -> PermuteKey | None:
    attributes = permute.attributes
    reason = ""
    if "slice_sizes" in attributes:
        reason = "is in place"
    elif unknown := unknown_attribute(permute):
        reason = f"has the unknown attribute {unknown}"
    elif has_control_edges(permute):
        reason = "has control edges"
    elif permute.shape.is_array and not _keeps_type(permute):
        # XLA gives the permute of several its operands' types, and then reads others.
        reason = "makes another type than its operand has"
    if reason:
        report.remark(f"not combined: %{permute.name} {reason}")
        return None
    pairs = permute.source_target_pairs
    if pairs is None:
        return None
    frontend = (
        permute.frontend_attributes if "frontend_attributes" in attributes else {}
    )
    group = frontend.get("collective_group_key", "") if by_group else ""
    return PermuteKey(
        tuple(sorted(pairs.pairs)) if in_any_order else pairs.pairs,
        frontend.get("combiner_key", ""),
        group,
        None if context.xla_quirks else "channel_id" in attributes,
    )


def _keeps_type(permute: Instruction) -> bool:
    return permute.shape.element_type == permute.operands[0].shape.element_type


def _combine(batch: Sequence[Instruction], anchor: Anchor) -> list[Instruction]:
    """One permute with an operand for each member."""
    operands = [member.operands[0] for member in batch]
    combined = _permute_of(batch, operands, anchor)
    return [combined, *elements_for(batch, combined, anchor)]


def _combine_operands(
    batch: Sequence[Instruction], anchor: Anchor
) -> list[Instruction]:
    """One permute that has each operand once."""
    outputs: dict[Instruction, int] = {}
    for member in batch:
        outputs.setdefault(member.operands[0], len(outputs))
    combined = _permute_of(batch, [*outputs], anchor)
    if len(outputs) == 1:
        for member in batch:
            combined.computation.replace(member, combined)
        return [combined]
    indices = [outputs[member.operands[0]] for member in batch]
    return [combined, *elements_for(batch, combined, anchor, indices)]


def _permute_of(
    batch: Sequence[Instruction], operands: Sequence[Instruction], anchor: Anchor
) -> Instruction:
    first = batch[0]
    shapes = [operand.shape for operand in operands]
    attributes = {
        name: first.attributes[name]
        for name in ("channel_id", "source_target_pairs")
        if name in first.attributes
    }
    return first.computation.new(
        "collective-permute",
        tuple_shape(shapes) if len(operands) > 1 else first.shape,
        operands,
        attributes | merged_attributes(batch),
        before=anchor.before,
        after=anchor.after,
    )
