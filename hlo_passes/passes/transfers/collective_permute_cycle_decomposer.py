"""Cuts the cycle of a permute: one permute for the edge back, one for all others.

Before:  %c = f32[8] collective-permute(%x), channel_id=1,
                                           source_target_pairs={{0,1},{1,2},{2,0}}
After:   %b = f32[8] collective-permute(%x), channel_id=1,
                                           source_target_pairs={{2,0}}
         %f = f32[8] collective-permute(%x), channel_id=2,
                                           source_target_pairs={{0,1},{1,2}}
         %s = f32[8] select(pred[] %first, %b, %f)       %first: partition-id() == 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.transfers.permute_cycles import Pairs, cut_edges

#: What both parts take over.
_KEPT: Final = ("metadata", "frontend_attributes")


@dataclass(frozen=True, slots=True)
class CollectivePermuteCycleDecomposer(Pass):
    """Split a permute around a ring into two without cycles; each device selects one.

    Both permutes can then become sends and receives (`collective-permute-decomposer`).
    Around a ring, those would wait for each other. The permute that goes back keeps the
    channel, and the other one gets the next free channel if there is a channel. The
    pass leaves alone permutes of several arrays, into a part of an array, of one pair,
    or with control edges, and asynchronous permutes.

    If the pairs have several cycles, such as one ring for each host, XLA selects what
    came back on only one of the devices that receive it; the others receive zeros.
    Without XLA's quirks (`--no-xla-quirks`), each device receives what was sent to it.

    Ensures: no cycle of several devices is left.
    Complexity: linear in instructions and pairs.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/collective_permute_cycle_decomposer.cc`.

    Attributes:
        threshold_bytes: leave permutes with smaller results alone.
    """

    name: ClassVar[str] = "collective-permute-cycle-decomposer"
    needs_collectives: ClassVar[bool] = True

    threshold_bytes: int = 0

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations in the order of the module."""
        version = module.version
        graph = build_call_graph(module)
        channel = 0
        for computation in module.computations:
            is_asynchronous = graph.is_async_body(computation)
            found = False
            for permute in post_order(computation):
                if permute.opcode != "collective-permute":
                    continue
                pairs = permute.source_target_pairs or ()
                cut = cut_edges(tuple(pairs))
                if not cut:
                    continue
                reason = "is asynchronous" if is_asynchronous else self._reason(permute)
                if reason:
                    report.remark(f"not cut: %{permute.name} {reason}")
                    continue
                channel = channel or next_channel_id(module)
                targets = _cut(permute, tuple(pairs), cut, channel)
                _select(permute, *targets, all_of_them=not context.xla_quirks)
                channel += 1
                found = True
                report.count("cycles-cut")
            if found:
                restore_text_order(computation)
        return module.version != version

    def _reason(self, permute: Instruction) -> str:
        if len(permute.operands) != 1 or not permute.shape.is_array:
            return "moves several arrays or a part of one"
        if permute.shape.byte_size < self.threshold_bytes:
            return (
                f"has {permute.shape.byte_size} bytes, fewer than "
                f"{self.threshold_bytes}"
            )
        if len(permute.source_target_pairs or ()) == 1:
            return "has one pair"
        if has_control_edges(permute):
            return "has control edges"
        if unknown := unknown_attribute(permute):
            return f"has the unknown attribute {unknown}"
        return ""


def _cut(
    permute: Instruction, pairs: Pairs, cut: Sequence[int], channel: int
) -> tuple[Instruction, Instruction, list[int]]:
    """Both parts, and the devices that the part back leads to."""
    cut_indices = set(cut)
    back = [pairs[k] for k in cut]
    others = [pair for k, pair in enumerate(pairs) if k not in cut_indices]
    parts: list[Instruction] = []
    for part, suffix, own in (
        (back, "-bwd", permute.channel_id),
        (others, "-fwd", channel),
    ):
        attributes = {"source_target_pairs": lists_text(part)}
        if permute.channel_id is not None:
            attributes = {"channel_id": str(own), **attributes}
        kept = {n: permute.attributes[n] for n in _KEPT if n in permute.attributes}
        parts.append(
            permute.computation.new(
                "collective-permute",
                permute.shape,
                permute.operands,
                {**attributes, **kept},
                name=permute.name + suffix,
            )
        )
    return parts[0], parts[1], [target for _, target in back]


def _select(
    permute: Instruction,
    back: Instruction,
    others: Instruction,
    targets: Sequence[int],
    *,
    all_of_them: bool,
) -> None:
    """Let each device read the part that leads to it, in place of the permute."""
    computation, name = permute.computation, permute.name
    u32, pred = array_shape("u32", ()), array_shape("pred", ())
    is_partition = permute.channel_id is not None
    own = computation.new(
        "partition-id" if is_partition else "replica-id",
        u32,
        name=f"{name}-{'part' if is_partition else 'rep'}-id",
    )
    chosen: Instruction | None = None
    for target in targets if all_of_them else targets[-1:]:
        device = computation.new(
            "constant", u32, name=f"{name}-bwd-recv-id", literal=str(target)
        )
        is_it = computation.new(
            "compare", pred, [own, device], {"direction": "EQ"}, name=f"{name}-cmp"
        )
        if chosen is not None:
            is_it = computation.new("or", pred, [chosen, is_it], name=f"{name}-any")
        chosen = is_it
    assert chosen is not None
    selected = computation.new(
        "select", permute.shape, [chosen, back, others], name=f"{name}-sel"
    )
    computation.replace_uses(permute, selected)
    computation.remove_with_dead_operands(permute)
