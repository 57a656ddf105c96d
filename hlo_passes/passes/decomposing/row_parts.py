"""Cuts a computation that works row by row into parts, each for some of the rows.

%h = f32[4,8,32] dot(%x, %w), lhs_batch_dims={0}, rhs_batch_dims={0}, ...
%r = f32[4,8,32] maximum(%h, %zeros)
->  the rows 0 to 1 of 4:
%a = f32[2,8,32] dot(%x.a, slice(%w, 0:2)), ...
%b = f32[2,8,32] maximum(%a, slice(%zeros, 0:2))

`cuts_of` finds the dimension along which each value must be cut so that parts do not
need one another; `write_part` writes one part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.windows import Slice, parse_slice
from hlo_passes.passes.rewriting.copies import copy_of

#: Opcodes that are cut like what works element by element.
_LIKE_ELEMENTWISE: Final = frozenset({"copy", "reduce-precision", "opt-barrier"})


@dataclass(frozen=True, slots=True)
class Cuts:
    """Along which dimension each value is cut.

    Attributes:
        values: the values that are cut, with the dimension of each; the first value is
            given, and all others are computed from it in this order.
        outside: what the values read besides, with the dimension along which it is cut;
            None if each part needs all of it.
        units: the number of equal units into which all of the values can be cut.
    """

    values: Mapping[Instruction, int]
    outside: Mapping[tuple[Instruction, int], int | None]
    units: int


def cuts_of(
    first: Instruction, dimension: int, computed: Sequence[Instruction]
) -> Cuts | str:
    """How to cut values that are computed from the first one, or why that fails.

    Args:
        first: the first value, which is cut.
        dimension: the dimension along which the first value is cut.
        computed: the other values in text order; each reads the first one or another of
            these.
    """
    values: _Values = {first: dimension}
    outside: _Outside = {}
    for instruction in computed:
        cut = _rule_of(instruction)(instruction, values, outside)
        if cut is None:
            return f"%{instruction.name} ({instruction.opcode}) mixes rows"
        values[instruction] = cut
    sizes = [value.shape.dimensions[at] for value, at in values.items()]
    return Cuts(values, outside, math.gcd(*sizes))


_Values: TypeAlias = "dict[Instruction, int]"
_Outside: TypeAlias = "dict[tuple[Instruction, int], int | None]"
_Rule: TypeAlias = "Callable[[Instruction, _Values, _Outside], int | None]"


def _rule_of(instruction: Instruction) -> _Rule:
    opcode = instruction.opcode
    if facts(opcode).is_elementwise or opcode in _LIKE_ELEMENTWISE:
        return _elementwise
    return _RULES.get(opcode, _unknown)


def _unknown(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    return None


def _elementwise(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    if not instruction.shape.is_array:
        return None
    found = {values[o] for o in instruction.operands if o in values}
    if len(found) != 1:
        return None
    (cut,) = found
    if cut >= instruction.shape.rank:  # a bitcast-convert joins what is cut
        return None
    for place, operand in enumerate(instruction.operands):
        if operand in values:
            continue
        # A clamp has scalars as bounds, a select may have one as predicate.
        outside[instruction, place] = cut if operand.shape.rank else None
    return cut


def _dot(instruction: Instruction, values: _Values, outside: _Outside) -> int | None:
    """Along a batch dimension, or one that the dot keeps of one operand."""
    batch = [instruction.integers(f"{side}_batch_dims") for side in ("lhs", "rhs")]
    summed = [
        instruction.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")
    ]
    sides = [k for k, o in enumerate(instruction.operands) if o in values]
    cuts = [values[instruction.operands[side]] for side in sides]
    if len(instruction.operands) != len(batch):
        return None
    places = [
        batch[side].index(cut) if cut in batch[side] else None
        for side, cut in zip(sides, cuts, strict=True)
    ]
    if None not in places:
        if len(set(places)) != 1 or places[0] is None:
            return None
        for side in {0, 1} - set(sides):
            outside[instruction, side] = batch[side][places[0]]
        return places[0]
    if len(sides) != 1 or cuts[0] in summed[sides[0]]:
        return None
    (side,), (cut,) = sides, cuts
    kept = [
        [
            d
            for d in range(operand.shape.rank)
            if d not in batch[k] and d not in summed[k]
        ]
        for k, operand in enumerate(instruction.operands)
    ]
    outside[instruction, 1 - side] = None
    before = len(batch[0]) + (len(kept[0]) if side else 0)
    return before + kept[side].index(cut)


def _broadcast(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    (operand,) = instruction.operands
    return instruction.integers("dimensions")[values[operand]]


def _transpose(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    (operand,) = instruction.operands
    return instruction.integers("dimensions").index(values[operand])


def _reshape(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    """The dimension that begins where the cut one does, and is part of it or more."""
    (operand,) = instruction.operands
    cut, sizes = values[operand], operand.shape.dimensions
    before, size = math.prod(sizes[:cut]), sizes[cut]
    reached = 1
    for dimension, other in enumerate(instruction.shape.dimensions):
        if reached == before and other > 1:
            return dimension if not (size % other and other % size) else None
        reached *= other
    return None


def _reduce(instruction: Instruction, values: _Values, outside: _Outside) -> int | None:
    if len(instruction.operands) != len(("operand", "start")):
        return None
    operand, start = instruction.operands
    dimensions = instruction.integers("dimensions")
    if start in values or values[operand] in dimensions:
        return None
    outside[instruction, 1] = None
    return values[operand] - sum(d < values[operand] for d in dimensions)


def _concatenate(
    instruction: Instruction, values: _Values, outside: _Outside
) -> int | None:
    cut = _elementwise(instruction, values, outside)
    return None if cut == instruction.integers("dimensions")[0] else cut


def _slice(instruction: Instruction, values: _Values, outside: _Outside) -> int | None:
    (operand,) = instruction.operands
    cut = values[operand]
    is_whole = operand.shape.dimensions[cut] == instruction.shape.dimensions[cut]
    return cut if is_whole else None


_RULES: Final[dict[str, _Rule]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "dot": _dot,
    "reduce": _reduce,
    "reshape": _reshape,
    "slice": _slice,
    "transpose": _transpose,
}


def write_part(
    cuts: Cuts,
    given: Instruction,
    low: int,
    high: int,
    made: list[Instruction],
) -> dict[Instruction, Instruction]:
    """Write the units from `low` to below `high` of all values but the first.

    Args:
        cuts: how the values are cut.
        given: this part of the first value.
        low: the number of the first unit.
        high: the number of the first unit after the part.
        made: receives the new instructions.

    Returns:
        The part of each value.
    """
    first, *computed = cuts.values
    parts = {first: given}
    sliced: dict[tuple[Instruction, int | None], Instruction] = {}
    for instruction in computed:
        operands: list[Instruction] = []
        for place, operand in enumerate(instruction.operands):
            cut = cuts.outside.get((instruction, place))
            if operand in parts:
                operands.append(parts[operand])
            elif cut is None:
                operands.append(operand)
            else:
                if (operand, cut) not in sliced:
                    sliced[operand, cut] = rows_of(
                        operand, cut, low, high, cuts.units, made
                    )
                operands.append(sliced[operand, cut])
        cut = cuts.values[instruction]
        size = instruction.shape.dimensions[cut] // cuts.units * (high - low)
        shape = _resized(instruction.shape, cut, size)
        changes = _other_attributes(instruction, cut, shape)
        parts[instruction] = copy_of(instruction, operands, shape, changes)
        made.append(parts[instruction])
    return parts


def rows_of(
    value: Instruction,
    dimension: int,
    low: int,
    high: int,
    units: int,
    made: list[Instruction],
) -> Instruction:
    """Cut out units `low` to below `high` of the `units` along a dimension."""
    shape = value.shape
    step = shape.dimensions[dimension] // units
    smaller = _resized(shape, dimension, (high - low) * step)
    if value.opcode == "broadcast" and dimension not in value.integers("dimensions"):
        part = copy_of(value, value.operands, smaller)
    else:
        ranges = [(0, size, 1) for size in shape.dimensions]
        ranges[dimension] = (low * step, high * step, 1)
        attributes = {"slice": Slice(tuple(ranges)).to_text()}
        part = value.computation.new("slice", smaller, (value,), attributes)
    made.append(part)
    return part


def together(
    parts: Iterable[Instruction], dimension: int, whole: Instruction
) -> Instruction:
    """Join all parts of a value again, in their order."""
    attributes = {"dimensions": f"{{{dimension}}}"}
    return whole.computation.new("concatenate", whole.shape, tuple(parts), attributes)


def _resized(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = size
    return shape.with_dimensions(tuple(sizes))


def _other_attributes(
    instruction: Instruction, dimension: int, shape: Shape
) -> dict[str, str]:
    """What says how large the result is."""
    if instruction.opcode != "slice":
        return {}
    ranges = list(parse_slice(instruction.attributes["slice"]).dimensions)
    ranges[dimension] = (0, shape.dimensions[dimension], 1)
    return {"slice": Slice(tuple(ranges)).to_text()}
