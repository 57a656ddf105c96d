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

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Layout, Shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.layouts.problem import (
    Choice,
    Chosen,
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


def rewrite(computation: Computation, chosen: Chosen, report: Report) -> None:
    """Give instructions their layouts, and let each read its operands in the right one.

    Args:
        computation: the one.
        chosen: orders of the axes, for all choices of some parts.
        report: counts what changes.
    """
    choices = {choice.instruction: choice for choice in chosen}
    arrays = dict.fromkeys(
        array
        for instruction in choices
        for array in (instruction, *instruction.operands)
        if is_plain(array.shape) and array.shape.rank > 1
    )
    reads = reads_of(computation, arrays)
    given = {array: array.shape for array in reads}
    fixed = {
        (user, k): read_by_fixed(user, k)
        for readers in reads.values()
        for user, k in readers
        if user not in choices
    }

    def reading(user: Instruction, k: int) -> _Read:
        choice = choices.get(user)
        if choice is None:
            shape = fixed[user, k]
            return _Read(user, k, order_of(shape), shape.layout)
        order = dimensions_in(choice.tie.operands[k] or (), chosen[choice])
        layout = user.shape.layout if choice.tie.is_equal else None
        return _Read(user, k, order, layout, moves=user.opcode in MOVING)

    moving = _moving_copies(choices)
    _lay_out(computation, chosen, moving, report)
    operands: dict[Instruction, dict[int, Instruction]] = {}
    for array, readers in reads.items():
        wanted = [reading(user, k) for user, k in readers if not always_moves(user)]
        if array.is_root:
            shape = given[array]
            wanted.append(_Read(None, 0, order_of(shape), shape.layout))
        for read, source in _sources(array, wanted, report):
            if read.user is None:
                computation.set_root(source)
            elif source is not array:
                operands.setdefault(read.user, {})[read.operand] = source
    for user, changed in operands.items():
        computation.set_operands(
            user, (changed.get(k, o) for k, o in enumerate(user.operands))
        )
    for copy in moving:
        _remove_if_superfluous(copy, report)


def _moving_copies(choices: Mapping[Instruction, Choice]) -> dict[Instruction, None]:
    """Copies that change a layout; any other is there for another reason."""
    return {
        i: None
        for i in choices
        if i.opcode == "copy" and order_of(i.shape) != order_of(i.operands[0].shape)
    }


def _lay_out(
    computation: Computation,
    chosen: Chosen,
    moving: Container[Instruction],
    report: Report,
) -> None:
    """Give instructions the layouts chosen."""
    choices = {choice.instruction: choice for choice in chosen}
    for instruction in post_order(computation):
        choice = choices.get(instruction)
        if choice is None or choice.tie.is_shown(chosen[choice], instruction.shape):
            continue
        layout = choice.tie.layout(chosen[choice], instruction.shape.rank)
        if instruction in moving:
            source = instruction.operands[0].shape
            if order_of(source) == order_of(source.with_layout(layout)):
                layout = source.layout
        computation.set_shape(instruction, instruction.shape.with_layout(layout))
        report.count("layouts-changed")


def _remove_if_superfluous(copy: Instruction, report: Report) -> None:
    """Remove a copy that no longer changes the layout."""
    if copy.removed:
        return
    (source,) = copy.operands
    if order_of(source.shape) != order_of(copy.shape):
        return
    if source.shape != copy.shape:
        assert copy.shape.layout is not None
        source = _added("reshape", source, copy.shape.layout)
    if copy.computation.replace(copy, source):
        report.count("copies-removed")


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
