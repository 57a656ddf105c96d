"""How the layouts of an instruction's operands and result hang together.

    %t = f32[4,8] transpose(%x), dimensions={1,0}     axes: 0, 1
         result's dimensions (0), (1)                 operand's (1), (0)
    %s = f32[8] reduce(%x, %zero), dimensions={1}     axes: 0, 1
         result's (0), ()                             operand's (0), (1)
    %r = f32[2,4,8] reshape(f32[8,8] %x)              axes: 0, 1
         result's (0,1), (2)                          operand's (0), (1)

An order of the axes, slowest in memory first, gives the order of the dimensions of the
result and of every operand. With orders from one order of the axes, the instruction
transposes nothing in memory. Dimensions of size 1 have no place in memory and count
only to make layouts equal in text.

What collectives demand follows openxla/xla `xla/service/layout_assignment.cc` and
`xla/backends/gpu/transforms/layout_assignment.cc` (August 2026): operand and result
have one layout, and the dimension that is gathered, scattered or split is the slowest.
With `constrain_layout=true`, and where equal channel ids tie modules together, XLA
takes the layout as given.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from math import factorial
from typing import Final

from hlo_passes.analysis.effects import channels_carry_meaning, has_control_edges
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Layout, Shape
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: Dimensions larger than 1, slowest in memory first; or axes, likewise.
Order = tuple[int, ...]
#: The dimensions of an operand or a result that form each axis, slowest first.
Side = tuple[Order, ...]

#: Not element by element, and still with one layout for operands and result: the
#: operands that have it, None for all.
_ONE_LAYOUT: Final[dict[str, int | None]] = {
    "all-gather": None,
    "all-reduce": None,
    "all-to-all": None,
    "collective-broadcast": None,
    "collective-permute": None,
    "concatenate": None,
    "constant": None,
    "dynamic-slice": 1,
    "dynamic-update-slice": 2,
    "iota": None,
    "opt-barrier": None,
    "pad": 1,
    "ragged-all-to-all": 2,
    "reduce-scatter": None,
    "reduce-window": 1,
    "reverse": None,
    "slice": None,
}
#: Collectives that join or split arrays along the first of `dimensions`.
_ALONG_A_DIMENSION: Final = frozenset({"all-gather", "all-to-all", "reduce-scatter"})
#: Orders among which a layout does not decide that are looked at.
_MOST_SHOWN: Final = 24
#: What can move an array to another layout by itself, so that no copy is needed before.
MOVING: Final = frozenset({"copy", "reshape", "transpose"})


@dataclass(frozen=True, slots=True)
class Tie:
    """The layouts that one instruction may have.

    Attributes:
        axes: how many there are.
        result: the result's dimensions by axis.
        operands: those of every operand, None for one with a single layout.
        slowest: the axis that must be the slowest in memory, None for any.
        given: the order of the axes that the given layouts show.
        named: the dimensions by axis that operands and result have in common, where
            they have one layout.
        is_equal: whether XLA wants that layout of all with the same text.
    """

    axes: int
    result: Side
    operands: tuple[Side | None, ...]
    given: Order
    slowest: int | None = None
    named: Side = ()
    is_equal: bool = False

    @property
    def joins_dimensions(self) -> bool:
        """Whether some dimensions must stay next to each other."""
        return any(len(dims) > 1 for side in self._sides() for dims in side)

    @property
    def leaves_out_axes(self) -> bool:
        """Whether an operand's order, or the result's, leaves that of axes open."""
        return any(not dims for side in self._sides() for dims in side)

    def _sides(self) -> Iterator[Side]:
        yield self.result
        yield from (side for side in self.operands if side is not None)

    def allows(self, order: Order) -> bool:
        """Whether the axes may lie in this order."""
        return self.slowest is None or not order or order[0] == self.slowest

    def is_shown(self, order: Order, result: Shape) -> bool:
        """Whether the result's layout says that the axes lie in this order."""
        larger = dimensions_in(self.named or self.result, order)
        return _shown(result, larger) == larger

    def layout(self, order: Order, rank: int) -> Layout:
        """The result's layout when the axes lie in this order.

        Dimensions of size 1 come second, so that a slowest one stays the slowest.
        """
        larger = dimensions_in(self.named or self.result, order)
        others = [d for d in range(rank) if d not in larger]
        return Layout((*larger[:0:-1], *others[::-1], *larger[:1]))


def dimensions_in(side: Side, order: Order) -> Order:
    """The order of one side's dimensions that an order of the axes gives."""
    return tuple(d for axis in order for d in side[axis])


def orders_for(side: Side, wanted: Order, most: int) -> list[Order] | None:
    """The orders of the axes that give one side an order of its dimensions.

    Returns:
        [] where none does, None where there are more than `most`.
    """
    axis_of = {d: axis for axis, dims in enumerate(side) for d in dims}
    found: list[int] = []
    rest = list(wanted)
    while rest:
        axis = axis_of[rest[0]]
        size = len(side[axis])
        if tuple(rest[:size]) != side[axis]:
            return []
        found.append(axis)
        del rest[:size]
    orders = [tuple(found)]
    if factorial(len(side)) // factorial(len(found)) > most:
        return None
    for axis, dims in enumerate(side):
        if not dims:
            orders = [
                (*order[:k], axis, *order[k:])
                for order in orders
                for k in range(len(order) + 1)
            ]
    return orders


def all_orders(tie: Tie, most: int) -> list[Order] | None:
    """All allowed orders of the axes; None where there are more than `most`."""
    free = [axis for axis in range(tie.axes) if axis != tie.slowest]
    if factorial(len(free)) > most:
        return None
    first = () if tie.slowest is None else (tie.slowest,)
    return [(*first, *rest) for rest in permutations(free)]


def _shown(shape: Shape, dimensions: Container[int]) -> Order:
    """The order that a layout shows of some dimensions."""
    assert shape.layout is not None
    return tuple(d for d in reversed(shape.layout.minor_to_major) if d in dimensions)


def order_of(shape: Shape) -> Order:
    """How the dimensions larger than 1 of an array lie in memory."""
    return _shown(shape, [d for d, size in enumerate(shape.dimensions) if size != 1])


def is_plain(shape: Shape) -> bool:
    """Whether an array has a layout of which only the order can matter."""
    return (
        shape.is_array
        and shape.layout is not None
        and not shape.is_dynamic
        and 0 not in shape.dimensions
        and shape.layout == Layout(shape.layout.minor_to_major)
    )


def has_choice(shape: Shape) -> bool:
    """Whether an array can lie in memory in several ways."""
    return is_plain(shape) and sum(size != 1 for size in shape.dimensions) > 1


def tie_of(instruction: Instruction) -> Tie | None:
    """The layouts that an instruction may have; None where it keeps those given."""
    shapes = [operand.shape for operand in instruction.operands]
    if not all(is_plain(s) for s in (instruction.shape, *shapes)):
        return None
    if not any(has_choice(s) for s in (instruction.shape, *shapes)):
        return None
    opcode = instruction.opcode
    if unknown_attribute(instruction) is not None:
        return None
    if opcode == "transpose":
        return _of_transpose(instruction)
    if opcode == "broadcast":
        return _of_broadcast(instruction)
    if opcode == "reduce":
        return _of_reduce(instruction)
    if opcode == "reshape":
        return _of_reshape(instruction)
    if opcode in _ONE_LAYOUT or facts(opcode).is_elementwise:
        return _of_one_layout(instruction)
    return None


def _of_one_layout(instruction: Instruction) -> Tie | None:
    shape, opcode = instruction.shape, instruction.opcode
    if not _is_free(instruction):
        return None
    arrays = [
        o.shape if o.shape.dimensions else None
        for o in instruction.operands[: _ONE_LAYOUT.get(opcode)]
    ]
    shapes = [shape, *(s for s in arrays if s is not None)]
    if any(s.rank != shape.rank for s in shapes):
        return None
    large = [d for d in range(shape.rank) if any(s.dimensions[d] != 1 for s in shapes)]
    place = {d: axis for axis, d in enumerate(large)}
    tie = Tie(
        axes=len(large),
        result=_each(large, shape),
        operands=tuple(None if s is None else _each(large, s) for s in arrays),
        given=(),
        slowest=place.get(_slowest_dimension(instruction)),
        named=tuple((d,) for d in large),
        is_equal=opcode != "copy",
    )
    # Dimensions of size 1 in one array may show another order than in the next.
    shown = [tuple(place[d] for d in _shown(s, place)) for s in shapes]
    shown += orders_for(tie.result, order_of(shape), most=_MOST_SHOWN) or []
    fitting = [
        order
        for order in shown
        if tie.allows(order) and dimensions_in(tie.result, order) == order_of(shape)
    ]
    if not fitting:
        return None
    sides = zip(tie.operands, arrays, strict=True)
    reads = [(side, order_of(s)) for side, s in sides if side is not None and s]
    given = next(
        (o for o in fitting if all(dimensions_in(s, o) == read for s, read in reads)),
        fitting[0],
    )
    return replace(tie, given=given)


def _each(dimensions: list[int], shape: Shape) -> Side:
    return tuple((d,) if shape.dimensions[d] != 1 else () for d in dimensions)


def _slowest_dimension(instruction: Instruction) -> int:
    """The dimension along which a collective joins or splits; -1 for none."""
    if instruction.opcode == "ragged-all-to-all":
        return 0
    if instruction.opcode in _ALONG_A_DIMENSION:
        return instruction.integers("dimensions")[0]
    return -1


def _is_free(instruction: Instruction) -> bool:
    """Whether XLA would choose the layout; not for a copy that others wait for."""
    opcode = instruction.opcode
    if opcode == "copy":
        return not has_control_edges(instruction)
    if not facts(opcode).is_collective:
        return True
    if instruction.attributes.get("constrain_layout") == "true":
        return False
    between_modules = opcode == "all-reduce" and instruction.channel_id is not None
    return not (
        between_modules and channels_carry_meaning(instruction.computation.module)
    )


def _of_transpose(transpose: Instruction) -> Tie:
    shape, permutation = transpose.shape, transpose.integers("dimensions")
    large = [d for d in range(shape.rank) if shape.dimensions[d] != 1]
    return Tie(
        axes=len(large),
        result=tuple((d,) for d in large),
        operands=(tuple((permutation[d],) for d in large),),
        given=tuple(large.index(d) for d in order_of(shape)),
    )


def _of_broadcast(broadcast: Instruction) -> Tie | None:
    shape, dimensions = broadcast.shape, broadcast.integers("dimensions")
    operand = broadcast.operands[0].shape
    large = [d for d in range(shape.rank) if shape.dimensions[d] != 1]
    side = tuple((dimensions.index(d),) if d in dimensions else () for d in large)
    given = tuple(large.index(d) for d in order_of(shape))
    if dimensions_in(side, given) != order_of(operand):
        return None
    return Tie(
        axes=len(large),
        result=tuple((d,) for d in large),
        operands=(side,),
        given=given,
    )


def _of_reduce(reduce: Instruction) -> Tie | None:
    """Of one array; where several are reduced, the result is a tuple."""
    operand, gone = reduce.operands[0].shape, reduce.integers("dimensions")
    kept = [d for d in range(operand.rank) if d not in gone]
    large = [d for d in range(operand.rank) if operand.dimensions[d] != 1]
    result = tuple((kept.index(d),) if d in kept else () for d in large)
    given = tuple(large.index(d) for d in order_of(operand))
    if dimensions_in(result, given) != order_of(reduce.shape):
        return None
    return Tie(
        axes=len(large),
        result=result,
        operands=(tuple((d,) for d in large), None),
        given=given,
    )


def _of_reshape(reshape: Instruction) -> Tie | None:
    """An axis is the smallest run of dimensions that is whole on both sides."""
    shape, operand = reshape.shape, reshape.operands[0].shape
    result, source = _runs(shape, operand), _runs(operand, shape)
    orders = orders_for(result, order_of(shape), most=1)
    if not orders:
        return None
    return Tie(axes=len(result), result=result, operands=(source,), given=orders[0])


def always_moves(instruction: Instruction) -> bool:
    """Whether it is a reshape that moves its operand, in whatever order that lies."""
    if instruction.opcode != "reshape" or tie_of(instruction) is not None:
        return False
    shape, operand = instruction.shape, instruction.operands[0].shape
    if not is_plain(shape) or not is_plain(operand):
        return False
    return not orders_for(_runs(shape, operand), order_of(shape), most=1)


def _runs(shape: Shape, other: Shape) -> Side:
    """Runs of dimensions larger than 1, cut where both products of sizes agree."""
    borders, product = set(), 1
    for size in other.dimensions:
        product *= size
        borders.add(product)
    runs: list[list[int]] = []
    product, is_whole = 1, True
    for d, size in enumerate(shape.dimensions):
        if size == 1:
            continue
        if is_whole:
            runs.append([])
        runs[-1].append(d)
        product *= size
        is_whole = product in borders
    return tuple(tuple(run) for run in runs)
