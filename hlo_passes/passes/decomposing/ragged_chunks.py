"""Cuts a ragged dispatch, the work of the experts and the combination into chunks.

%d = f32[64,8] ragged-all-to-all(%x, %zeros, %o, %s, %p, %q)      dispatch
%h = f32[4,16,8] dot(reshape(%d), %w), lhs_batch_dims={0}, ...    experts
%c = f32[48,8] ragged-all-to-all(reshape(%h), ...)                combination
->  the rows below 32, which are those of experts 0 and 1; likewise the others:
%d.0 = f32[32,8] ragged-all-to-all(%x, %zeros.0, %o.0, %s.0, %p.0, %q.0)
%h.0 = f32[2,16,8] dot(reshape(%d.0), slice(%w)), ...
%c.0 = f32[48,8] ragged-all-to-all(reshape(%h.0), ...)
%c   = f32[48,8] ragged-all-to-all(reshape(%h.1), %c.0, ...)

The program computes from the tables which rows a chunk moves, whatever the tables say.
If an update lands on the rows from p to p + s, its part in a chunk lands on the rows
from clamp(low, p, high) to clamp(low, p + s, high). This part starts as many rows later
in the input. One all-to-all tells receivers the new sizes of all chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.analysis.reachability import ancestors, descendants
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.ir.windows import Slice
from hlo_passes.passes.asynchrony.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
)
from hlo_passes.passes.decomposing.row_parts import (
    Cuts,
    cuts_of,
    rows_of,
    together,
    write_part,
)
from hlo_passes.passes.rewriting.constants import scalar
from hlo_passes.passes.rewriting.copies import copy_of, derive

_RAGGED: Final = "ragged-all-to-all"
#: Types of offsets in which a difference may be below zero.
_SIGNED: Final = ("s32", "s64")


@dataclass(frozen=True, slots=True)
class Site:
    """A dispatch, its combination, and what lies between.

    Attributes:
        dispatch: sends rows to experts.
        combination: sends the rows back.
        cuts: how to cut what the experts compute.
        members: the number of members of each group.
    """

    dispatch: Instruction
    combination: Instruction
    cuts: Cuts
    members: int


def site_of(dispatch: Instruction) -> Site | str:
    """The site that a dispatch begins, or why it stays; '' without a combination."""
    after = descendants([dispatch])
    follow = [
        i
        for i in dispatch.computation.instructions
        if i.opcode == _RAGGED and i in after and i is not dispatch
    ]
    combination = next((i for i in follow if i.operands[0] in after), None)
    if combination is None:
        return ""
    members = members_of_each_group(dispatch, dispatch.computation.module)
    for ragged in (dispatch, combination):
        if obstacle := _obstacle(ragged, members):
            which = (
                "" if ragged is dispatch else f"is combined by %{ragged.name}, which "
            )
            return which + obstacle
    if any(operand in after for operand in combination.operands[1:]):
        return f"is combined by %{combination.name} in places that depend on it"
    before = ancestors([combination.operands[0]]) | {combination.operands[0]}
    between = [
        i
        for i in dispatch.computation.instructions
        if i in after and i in before and i is not dispatch
    ]
    if any(i.control_predecessors or i.control_successors for i in between):
        return "is followed by what has control edges"
    cuts = cuts_of(dispatch, 0, between)
    if isinstance(cuts, str):
        return f"stays: {cuts}"
    if cuts.values[combination.operands[0]]:
        return f"is combined by %{combination.name} in another order of rows"
    if cuts.units == 1:
        return "has one expert, and rows that are not cut alike"
    return Site(dispatch, combination, cuts, members)


def _obstacle(ragged: Instruction, members: int) -> str:
    tables = ragged.operands[2].shape
    if ragged.control_predecessors or ragged.control_successors:
        return "has control edges"
    if (
        not members
        or members_of_each_group(ragged, ragged.computation.module) != members
    ):
        return "has groups of different sizes"
    if tables.element_count % members or not tables.element_count:
        return "has another number of updates than devices"
    if any(o.shape.element_type not in _SIGNED for o in ragged.operands[2:]):
        return "has offsets that are neither s32 nor s64"
    if "sharding" in ragged.attributes:
        return "has a sharding"
    return ""


def chunk_limits(units: int, chunks: int) -> list[int]:
    """Where chunks of nearly the same size begin, and the end; the first are longer."""
    size, longer = divmod(units, chunks)
    return [k * size + min(k, longer) for k in range(chunks + 1)]


def write_chunks(site: Site, chunks: int, channels: Iterator[int]) -> list[Instruction]:
    """Replace dispatch, experts and combination with chunks; returns all that is new.

    The new instructions are the last ones of the computation; the caller restores the
    text order (`restore_text_order`). The new ragged all-to-alls have new channel ids
    if the old ones have any. They have the descriptions of the old ones, except for
    their scheduling group.

    Args:
        site: the site, as `site_of` finds it.
        chunks: the number of chunks; at least two, at most `site.cuts.units`.
        channels: new channel ids.
    """
    return _Chunks(site, chunks, channels).write()


class _Chunks:
    """Writes one site."""

    def __init__(self, site: Site, chunks: int, channels: Iterator[int]) -> None:
        self.site = site
        self.computation = site.dispatch.computation
        self.channels = channels
        self.made: list[Instruction] = []
        self.limits = chunk_limits(site.cuts.units, chunks)

    def write(self) -> list[Instruction]:
        site, cuts = self.site, self.site.cuts
        dispatch, combination = site.dispatch, site.combination
        there = self._tables(dispatch, dispatch.shape, of_output=True)
        back = self._tables(combination, combination.operands[0].shape, of_output=False)
        source, output = dispatch.operands[:2]
        parts: list[dict[Instruction, Instruction]] = []
        combined = combination.operands[1]
        for k, (low, high) in enumerate(
            zip(self.limits, self.limits[1:], strict=False)
        ):
            room = rows_of(output, 0, low, high, cuts.units, self.made)
            sent = self._like(dispatch, (source, room, *there[k]), room.shape)
            parts.append(write_part(cuts, sent, low, high, self.made))
            rows = parts[-1][combination.operands[0]]
            operands = (rows, combined, *back[k])
            combined = self._like(combination, operands, combination.shape)
        # What others read of the values between is put together.
        inside = {*cuts.values, combination}
        for value, dimension in cuts.values.items():
            if value is self.computation.root or not inside.issuperset(value.users):
                whole = together([part[value] for part in parts], dimension, value)
                self.made.append(whole)
                for user in value.users:
                    if user not in inside:
                        self.computation.replace_operand(user, value, whole)
                if value is self.computation.root:
                    self.computation.set_root(whole)
        self.computation.replace_uses(combination, combined)
        self.computation.remove_with_dead_operands(combination)
        return self.made

    def _tables(
        self, ragged: Instruction, rows: Shape, *, of_output: bool
    ) -> list[list[Instruction]]:
        """The four tables of each chunk: of rows of the output, or of the input."""
        starts, sizes, places, _ = ragged.operands[2:]
        own, other = (places, starts) if of_output else (starts, places)
        step = rows.dimensions[0] // self.site.cuts.units
        ends = self._make("add", own.shape, own, sizes)
        found: list[list[Instruction]] = []
        for low, high in zip(self.limits, self.limits[1:], strict=False):
            bounds = [self._number(own, limit * step) for limit in (low, high)]
            first = self._make("clamp", own.shape, bounds[0], own, bounds[1])
            behind = self._make("clamp", own.shape, bounds[0], ends, bounds[1])
            size = self._make("subtract", own.shape, behind, first)
            later = self._make("subtract", own.shape, first, own)
            moved = self._make("add", own.shape, other, later)
            before = self._make("broadcast", own.shape, bounds[0], dimensions="{}")
            inside = self._make("subtract", own.shape, first, before)
            pair = (moved, size, inside) if of_output else (inside, size, moved)
            found.append(list(pair))
        received = self._exchanged(ragged, [tables[1] for tables in found])
        return [[*a, b] for a, b in zip(found, received, strict=True)]

    def _exchanged(
        self, ragged: Instruction, sizes: Sequence[Instruction]
    ) -> list[Instruction]:
        """What is received in each chunk, where these are sent."""
        shape, members = sizes[0].shape, self.site.members
        updates = shape.element_count // members
        one = array_shape(shape.element_type, (members, updates))
        wide = one.with_dimensions((members, len(sizes) * updates))
        rows = [self._make("reshape", one, size) for size in sizes]
        together = self._make("concatenate", wide, *rows, dimensions="{1}")
        attributes = {
            name: text
            for name, text in ragged.attributes.items()
            if name in ("channel_id", "replica_groups")
        }
        if "channel_id" in attributes:
            attributes["channel_id"] = str(next(self.channels))
        attributes = in_print_order({**attributes, "dimensions": "{0}"}, "all-to-all")
        arrived = self._make("all-to-all", wide, together, **attributes)
        self._describe(arrived, ragged)
        found: list[Instruction] = []
        for k in range(len(sizes)):
            ranges = Slice(((0, members, 1), (k * updates, (k + 1) * updates, 1)))
            cut = self._make("slice", one, arrived, slice=ranges.to_text())
            found.append(self._make("reshape", shape, cut))
        return found

    def _like(
        self, ragged: Instruction, operands: Sequence[Instruction], shape: Shape
    ) -> Instruction:
        changes: dict[str, str] = {}
        if ragged.channel_id is not None:
            changes["channel_id"] = str(next(self.channels))
        new = copy_of(ragged, operands, shape, changes)
        self._describe(new, ragged)
        self.made.append(new)
        return new

    def _describe(self, new: Instruction, ragged: Instruction) -> None:
        """As the old one, without its group: whoever schedules finds new ones."""
        derive(new, ragged)
        if new.mentions(GROUP_ANNOTATION):
            kept = new.frontend_attributes.without(GROUP_ANNOTATION)
            new.frontend_attributes = kept

    def _number(self, table: Instruction, number: int) -> Instruction:
        constant = scalar(self.computation, table.shape.element_type, number)
        self.made.append(constant)
        return constant

    def _make(
        self, opcode: str, shape: Shape, *operands: Instruction, **attributes: str
    ) -> Instruction:
        new = self.computation.new(opcode, shape, operands, attributes)
        self.made.append(new)
        return new
