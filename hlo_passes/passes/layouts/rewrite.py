"""Writes chosen layouts into a computation, with the copies that they need.

    %n = f32[4,8]{1,0} negate(%x)                    %x is f32[4,8]{1,0}
    %t = f32[8,4]{1,0} transpose(%n)
    ->
    %copy = f32[4,8]{0,1} copy(%x)
    %n = f32[4,8]{0,1} negate(%copy)
    %t = f32[8,4]{1,0} transpose(%n)                 moves nothing in memory

A copy that no longer changes a layout goes. One that never did stays: it is there for
another reason. Layouts that differ in nothing but the place of dimensions of size 1 are
made equal by a reshape, which moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Layout, Shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.layouts.problem import Choice, Chosen, Group, read_by_fixed
from hlo_passes.passes.layouts.ties import (
    MOVING,
    Order,
    dimensions_in,
    order_of,
)

#: What a copy takes over from the array that it copies, as in XLA's layout assignment.
_HANDED_ON: Final = ("metadata", "sharding")


def rewrite(
    computation: Computation, groups: Sequence[Group], chosen: Chosen, report: Report
) -> None:
    """Give instructions their layouts, and let each read its operands in the right one.

    Args:
        computation: the one.
        groups: all that the choices are members of.
        chosen: orders of the axes.
        report: counts what changes.
    """
    choices = {choice.instruction: choice for choice in chosen}
    given = {group.array: group.array.shape for group in groups}
    wanted: dict[tuple[Instruction, int], Shape] = {
        (user, k): read_by_fixed(user, k)
        for group in groups
        for user, k in group.reads
        if user not in choices
    }
    superfluous: list[Instruction] = []
    for instruction in post_order(computation):
        choice = choices.get(instruction)
        if choice is None:
            continue
        if _is_superfluous(choice, chosen[choice], given):
            superfluous.append(instruction)
            layout = instruction.operands[0].shape.layout
        elif not choice.tie.is_shown(chosen[choice], instruction.shape):
            layout = choice.tie.layout(chosen[choice], instruction.shape.rank)
        else:
            continue
        if layout != instruction.shape.layout:
            computation.set_shape(instruction, instruction.shape.with_layout(layout))
            report.count("layouts-changed")
    operands: dict[Instruction, dict[int, Instruction]] = {}
    for group in groups:
        reads: list[_Read] = []
        for user, k in group.reads:
            choice = choices.get(user)
            if choice is None:
                shape = wanted[user, k]
                read = _Read(user, k, order_of(shape), shape.layout)
            else:
                side = choice.tie.operands[k] or ()
                layout = user.shape.layout if choice.tie.is_equal else None
                read = _Read(user, k, dimensions_in(side, chosen[choice]), layout)
            reads.append(read)
        if group.array.is_root:
            shape = given[group.array]
            reads.append(_Read(None, 0, order_of(shape), shape.layout))
        for read, source in _sources(group.array, reads, report):
            if read.user is None:
                computation.set_root(source)
            elif source is not group.array:
                operands.setdefault(read.user, {})[read.operand] = source
    for user, changed in operands.items():
        computation.set_operands(
            user, (changed.get(k, o) for k, o in enumerate(user.operands))
        )
    for copy in superfluous:
        if not copy.removed and computation.replace(copy, copy.operands[0]):
            report.count("copies-removed")


def _is_superfluous(
    choice: Choice, order: Order, given: Mapping[Instruction, Shape]
) -> bool:
    """Whether a copy changed the layout, and no longer does."""
    copy = choice.instruction
    if copy.opcode != "copy":
        return False
    source, side = copy.operands[0], choice.tie.operands[0]
    if source not in given or side is None:
        return False
    has_moved = order_of(given[source]) != order_of(copy.shape)
    return has_moved and order_of(source.shape) == dimensions_in(side, order)


@dataclass(frozen=True, slots=True)
class _Read:
    """One reader of an array, None for the caller, who reads the root.

    Attributes:
        user: the one.
        operand: as which of its operands.
        order: of the dimensions that it wants.
        layout: that it wants to the letter, None where the order is enough.
    """

    user: Instruction | None
    operand: int
    order: Order
    layout: Layout | None

    @property
    def moves(self) -> bool:
        """Whether it can change the order itself."""
        return self.user is not None and self.user.opcode in MOVING


def _sources(
    array: Instruction, reads: Sequence[_Read], report: Report
) -> Iterator[tuple[_Read, Instruction]]:
    """Every reader with what it reads: the array, or a copy.

    A reader that can move the array does so itself unless others read the same copy.
    """
    written = order_of(array.shape)
    readers: dict[Order, dict[Instruction | None, None]] = {}
    for read in reads:
        readers.setdefault(read.order, {})[read.user] = None
    in_order = {written: array}
    views: dict[tuple[Instruction, Layout], Instruction] = {}
    for read in reads:
        if read.order not in in_order:
            if read.moves and len(readers[read.order]) == 1:
                continue
            layout = read.layout or _reordered(array.shape, read.order)
            in_order[read.order] = _added("copy", array, layout)
            report.count("copies-inserted")
        source = in_order[read.order]
        if read.layout not in (None, source.shape.layout):
            assert read.layout is not None
            view = views.get((source, read.layout))
            if view is None:
                view = _added("reshape", source, read.layout)
                views[source, read.layout] = view
            source = view
        yield read, source


def _added(opcode: str, array: Instruction, layout: Layout) -> Instruction:
    """The array in another layout, directly after it."""
    described = {
        name: array.attributes[name] for name in _HANDED_ON if name in array.attributes
    }
    return array.computation.new(
        opcode, array.shape.with_layout(layout), (array,), described, after=array
    )


def _reordered(shape: Shape, order: Order) -> Layout:
    """A layout with this order of the dimensions larger than 1, the others in place."""
    assert shape.layout is not None
    rest = iter(reversed(order))
    return Layout(
        tuple(next(rest) if d in order else d for d in shape.layout.minor_to_major)
    )
