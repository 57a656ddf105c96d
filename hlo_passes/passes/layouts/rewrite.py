"""Writes chosen layouts into a computation, with the copies that they need.

    %n = f32[4,8]{1,0} negate(%x)                    %x is f32[4,8]{1,0}
    %t = f32[8,4]{1,0} transpose(%n)
    ->
    %copy = f32[4,8]{0,1} copy(%x)
    %n = f32[4,8]{0,1} negate(%copy)
    %t = f32[8,4]{1,0} transpose(%n)                 moves nothing in memory

A copy into a layout that nobody reads goes. One that changes no layout stays: it is
there for another reason. Layouts that differ in nothing but the place of dimensions of
size 1 are made equal by a reshape, which moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Layout, Shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.layouts.problem import (
    Chosen,
    Group,
    read_by_fixed,
    reads_of,
)
from hlo_passes.passes.layouts.ties import (
    MOVING,
    Order,
    always_moves,
    dimensions_in,
    is_plain,
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
        groups: of some parts.
        chosen: orders of the axes, for all their choices.
        report: counts what changes.
    """
    choices = {choice.instruction: choice for choice in chosen}
    origin = {copy: group.array for group in groups for copy in group.copies}
    # Arrays without a choice have layouts, too, which may have to agree in text.
    arrays = dict.fromkeys(group.array for group in groups) | dict.fromkeys(
        array
        for instruction in choices
        for array in (instruction, *instruction.operands)
        if array not in origin and is_plain(array.shape) and array.shape.rank > 1
    )
    reads = reads_of(computation, arrays, origin)
    root_of = origin.get(computation.root, computation.root)
    result = computation.root.shape
    fixed = {
        (user, k): read_by_fixed(user, k)
        for readers in reads.values()
        for user, k in readers
        if user not in choices
    }

    def reading(user: Instruction, k: int, array: Instruction) -> _Read:
        if always_moves(user):
            return _Read(user, k, order_of(array.shape), None)
        choice = choices.get(user)
        if choice is None:
            shape = fixed[user, k]
            return _Read(user, k, order_of(shape), shape.layout)
        order = dimensions_in(choice.tie.operands[k] or (), chosen[choice])
        layout = user.shape.layout if choice.tie.is_equal else None
        return _Read(user, k, order, layout, moves=user.opcode in MOVING)

    for instruction, choice in choices.items():
        if not choice.tie.is_shown(chosen[choice], instruction.shape):
            layout = choice.tie.layout(chosen[choice], instruction.shape.rank)
            shape = instruction.shape.with_layout(layout)
            computation.set_shape(instruction, shape)
            report.count("layouts-changed")
    copies_of = {group.array: group.copies for group in groups}
    operands: dict[Instruction, dict[int, Instruction]] = {}
    for array, readers in reads.items():
        wanted = [reading(user, k, array) for user, k in readers]
        if root_of is array:
            wanted.append(_Read(None, 0, order_of(result), result.layout))
        kept = copies_of.get(array, [])
        for read, source in _sources(array, wanted, kept, report):
            if read.user is None:
                computation.set_root(source)
            else:
                operands.setdefault(read.user, {})[read.operand] = source
    for user, changed in operands.items():
        computation.set_operands(
            user, (changed.get(k, o) for k, o in enumerate(user.operands))
        )
    for copy in reversed(origin):
        if not copy.user_count and copy is not computation.root:
            computation.remove(copy)
            report.count("copies-removed")
    restore_text_order(computation)


@dataclass(frozen=True, slots=True)
class _Read:
    """One reader of an array, None for the caller, who reads the root.

    Attributes:
        user: the one.
        operand: as which of its operands.
        order: of the dimensions that it wants.
        layout: that it wants to the letter, None where the order is enough.
        moves: whether it can change the order itself.
    """

    user: Instruction | None
    operand: int
    order: Order
    layout: Layout | None
    moves: bool = False


def _sources(
    array: Instruction,
    reads: Sequence[_Read],
    copies: Sequence[Instruction],
    report: Report,
) -> Iterator[tuple[_Read, Instruction]]:
    """Every reader with what it reads: the array, or a copy, old or new.

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
                yield read, array
                continue
            old = next((c for c in copies if order_of(c.shape) == read.order), None)
            if old is not None:
                array.computation.set_operands(old, (array,))
                in_order[read.order] = old
            else:
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
