"""Sends parts to the one device that reads them, instead of gathering them everywhere.

Before:  %a = f32[8] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}, ...
         %p = f32[32] pad(%a, 0), padding=24_0
         %d = f32[8] dynamic-slice(%p, table[%partition-id]), ...   table {0,8,16,24}
After:   %b = f32[2] collective-permute(%x), source_target_pairs={{0,3}}      and so on
         %c = f32[8] concatenate(%b, ..., %x)        what partition 3 reads
         %s = f32[8] select(%partition-id is 3, %c, zeros)          readers of %d
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import ClassVar

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.channels import next_channel_id
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
from hlo_passes.ir.literals import parse_literal
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import SourceTargetPairs
from hlo_passes.ir.shapes import array_shape
from hlo_passes.ir.windows import parse_padding
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.reductions import GROUP_KEY
from hlo_passes.xla_release import XlaRelease

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of what the reading device of each group concatenates.

    Attributes:
        zeros: its size, where it consists of zeros.
        pairs: who sends it to whom; () for zeros and for the reader's own part.
    """

    zeros: int = 0
    pairs: Pairs = ()

    @property
    def kind(self) -> tuple[int, bool]:
        """What pieces of all groups must have in common."""
        return self.zeros, bool(self.pairs)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to make the slice.

    Attributes:
        dimension: along which is gathered, padded and cut.
        pieces: for each group.
        readers: the device that reads parts, of each group.
    """

    dimension: int
    pieces: tuple[tuple[_Piece, ...], ...]
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllGatherPadDsSimplifier(Pass):
    """Replace all-gather, pad and slice with permutes if one device gets all the parts.

    The pad must be with zeros on one side of the gathered dimension. In each group, the
    slice of one device must hold all parts, and the slices of the other devices must
    hold only zeros. The module must have one replica, and the ids must be flattened
    (`use_global_device_ids=true`). Each part travels in a permute of its own; one
    permute serves all groups.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/hlo/transforms/simplifiers/all_gather_pad_ds_simplifier.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-gather-pad-ds-simplifier"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit dynamic-slices of pads of all-gathers."""
        version = module.version
        if module.replica_count > 1 or module.num_partitions <= 1:
            report.remark("nothing replaced: there is one partition, or replicas")
            return False
        release = context.release_for(module, self.xla)
        channels = count(next_channel_id(module))
        for computation in computations_post_order(module):
            made = False
            for dynamic_slice in post_order(computation):
                if dynamic_slice.opcode != "dynamic-slice" or dynamic_slice.removed:
                    continue
                pad = dynamic_slice.operands[0]
                if pad.opcode != "pad" or pad.operands[0].opcode != "all-gather":
                    continue
                plan = _plan(pad.operands[0], pad, dynamic_slice)
                if isinstance(plan, str):
                    report.remark(f"not replaced: %{pad.operands[0].name} {plan}")
                    continue
                _replace(dynamic_slice, plan, release, channels)
                report.count("all-gathers-made-permutes")
                made = True
            if made:
                restore_text_order(computation)
        return module.version != version


def _plan(
    all_gather: Instruction, pad: Instruction, dynamic_slice: Instruction
) -> _Plan | str:
    """The pieces of what each group's reader takes, or why there are none."""
    groups = groups_of(all_gather)
    if all_gather.channel_id is None or not all_gather.use_global_device_ids:
        return "has no flattened ids"
    if not groups or not all_gather.shape.is_array:
        return "does not list its groups, or returns a tuple"
    if has_control_edges(dynamic_slice):
        return f"stays, because %{dynamic_slice.name} has control edges"
    dimension = cut_dimension(dynamic_slice)
    if dimension is None or (dimension,) != all_gather.integers("dimensions"):
        return "is cut along another dimension, or several"
    first = _first_of_gathered(pad, dimension)
    if isinstance(first, str):
        return first
    if (
        dynamic_slice.shape.dimensions[dimension]
        < all_gather.shape.dimensions[dimension]
    ):
        return "is larger than the slice of one device"
    windows = devices_by_start(dynamic_slice, dimension, groups)
    if isinstance(windows, str):
        return windows
    shard = all_gather.operands[0].shape.dimensions[dimension]
    if shard <= 0:
        return "gathers nothing"
    planned: list[tuple[_Piece, ...]] = []
    readers: list[int] = []
    for group, starts in zip(groups, windows, strict=True):
        if any(starts[a] >= starts[b] for a, b in pairwise(sorted(starts))):
            return "is cut for devices whose ids do not ascend with their starts"
        # All parts lie in the slice of one device.
        offsets = [first + k * shard for k in range(len(group))]
        ordered = sorted(starts)
        places = {bisect_right(ordered, offset) - 1 for offset in offsets}
        begin = ordered[min(places)]
        end = begin + dynamic_slice.shape.dimensions[dimension]
        if len(places) != 1 or min(places) < 0 or offsets[-1] + shard > end:
            return "has parts in the slices of several devices, or of none"
        reader = starts[begin]
        # Zeros come before and after the parts; the reader has its own part already.
        pieces = [_Piece(zeros=offsets[0] - begin)] if offsets[0] > begin else []
        pieces += [
            _Piece(pairs=((device, reader),) if device != reader else ())
            for device in group
        ]
        rest = end - offsets[-1] - shard
        pieces += [_Piece(zeros=rest)] if rest else []
        planned.append(tuple(pieces))
        readers.append(reader)
    if any(
        [p.kind for p in pieces] != [p.kind for p in planned[0]] for pieces in planned
    ):
        return "has groups whose parts lie differently"
    if max(readers) >= len(groups) * len(groups[0]):
        return "does not list all devices"
    return _Plan(dimension, tuple(planned), tuple(readers))


def _first_of_gathered(pad: Instruction, dimension: int) -> int | str:
    """Where the gathered values begin in the padded ones, or why that is unknown."""
    value = pad.operands[1]
    if value.opcode != "constant" or value.literal is None:
        return "is padded with what is not a constant"
    literal = parse_literal(value.literal, value.shape)
    if literal.array is None or literal.array.reshape(-1)[0] != 0:
        return "is padded with another value than zero"
    low = 0
    for k, edge in enumerate(parse_padding(pad.attributes["padding"]).dimensions):
        before, after, between = edge
        if between:
            return "is padded between its values"
        if k != dimension and (before or after):
            return "is padded along other dimensions"
        if k == dimension:
            if min(before, after) < 0 or bool(before) == bool(after):
                return "is padded on both sides, or on none"
            low = before
    return low


def _replace(
    dynamic_slice: Instruction,
    plan: _Plan,
    release: XlaRelease,
    channels: Iterator[int],
) -> None:
    computation, shape = dynamic_slice.computation, dynamic_slice.shape
    all_gather = dynamic_slice.operands[0].operands[0]
    permute = _permutes(all_gather, release, channels)

    def zeros(size: int) -> Instruction:
        sizes = list(shape.dimensions)
        sizes[plan.dimension] = size
        scalar = array_shape(shape.element_type)
        zero = "false" if shape.element_type == "pred" else "0"
        value = computation.new("constant", scalar, literal=zero)
        filled = shape.with_dimensions(tuple(sizes))
        return computation.new("broadcast", filled, (value,), {"dimensions": "{}"})

    # The pieces of every group, one permute for each pair.
    made = [
        [
            zeros(piece.zeros)
            if piece.zeros
            else permute(piece.pairs)
            if piece.pairs
            else all_gather.operands[0]
            for piece in pieces
        ]
        for pieces in plan.pieces
    ]
    # Then, group by group, one permute for the pairs of all groups so far.
    final, together = made[0], [piece.pairs for piece in plan.pieces[0]]
    for pieces in plan.pieces[1:]:
        for k, piece in enumerate(pieces):
            if piece.pairs:
                together[k] = (*piece.pairs, *together[k])
                final[k] = permute(together[k])
    whole = computation.new(
        "concatenate", shape, final, {"dimensions": f"{{{plan.dimension}}}"}
    )
    # Readers take it, all others zeros.
    groups = groups_of(all_gather)
    mask = [0] * (len(groups) * len(groups[0]))
    for reader in plan.readers:
        mask[reader] = 1
    reads = _is_reader(computation, mask)
    other = zeros(shape.dimensions[plan.dimension])
    result = computation.new("select", shape, (reads, whole, other))
    derive(result, dynamic_slice)
    if release.keys_by_group:
        result.frontend_attributes = result.frontend_attributes.without(GROUP_KEY)
        dynamic_slice.set_attribute("frontend_attributes", None)
    computation.replace(dynamic_slice, result)


def _permutes(
    all_gather: Instruction, release: XlaRelease, channels: Iterator[int]
) -> Callable[[Pairs], Instruction]:
    """Makes permutes of an all-gather's operand."""
    operand, computation = all_gather.operands[0], all_gather.computation

    def permute(pairs: Pairs) -> Instruction:
        channel = all_gather.channel_id
        if not release.rewrites_keep_channels:
            channel = next(channels)
        made = computation.new(
            "collective-permute",
            operand.shape,
            (operand,),
            {
                "channel_id": str(channel),
                "source_target_pairs": SourceTargetPairs.of(pairs).to_text(),
            },
        )
        if release.keys_by_group and "frontend_attributes" in all_gather.attributes:
            key = all_gather.frontend_attributes.get(GROUP_KEY)
            if key is not None:
                attributes = made.frontend_attributes.with_value(GROUP_KEY, key)
                made.frontend_attributes = attributes
        return made

    return permute


def _is_reader(computation: Computation, mask: list[int]) -> Instruction:
    """A boolean: the element of the mask at the partition's id is 1."""
    wide, one_of = array_shape("s64"), array_shape("s64", (1,))
    listed = ", ".join(map(str, mask))
    table = computation.new(
        "constant", array_shape("s64", (len(mask),)), literal=f"{{{listed}}}"
    )
    partition = computation.new("partition-id", array_shape("u32"))
    element = computation.new(
        "dynamic-slice", one_of, (table, partition), {"dynamic_slice_sizes": "{1}"}
    )
    scalar = computation.new("reshape", wide, (element,))
    one = computation.new("constant", wide, literal="1")
    return computation.new(
        "compare", array_shape("pred"), (scalar, one), {"direction": "EQ"}
    )
