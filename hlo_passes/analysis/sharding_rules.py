"""How the dimensions of an instruction's operands and results belong together.

    %d = f32[m,n] dot(f32[m,k] %a, f32[k,n] %b)       [0,2] [2,1] -> [0,1]
    %t = f32[4,8] transpose(f32[8,4] %x)              [0,1]       -> [1,0]
    %r = f32[24]  reshape(f32[4,6] %x)                [0] [1]     -> [0*1]

Dimensions with the same number are one index of the same loop: who divides one divides
all of them in the same way, and then no device needs what another one has, but for sums
over an index that the result lacks. A dimension of a reshape may be several indices,
the slowest first. A dimension without a number (one that a slice cuts, say) is not tied
to any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hlo_passes.analysis.reshapes import common_factors
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.sharding_splits import Split, Splits
from hlo_passes.ir.windows import (
    WindowDimension,
    parse_padding,
    parse_slice,
    parse_window,
)
from hlo_passes.whole_numbers import number_of_digits

#: The indices of one dimension, slowest first; of an array; of several arrays.
Indices = tuple[int, ...]
ArrayIndices = tuple[Indices, ...]

#: When a rule applies: what keeps all elements where they are, then what makes sums or
#: looks things up, last what makes larger arrays of smaller ones.
SAME, MIXED, LARGER = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Rule:
    """Which dimensions of operands and results are the same index.

    Attributes:
        operands: for each operand, the indices of its dimensions.
        results: the same for each array of the result.
        sizes: of the indices.
        forward: when divisions go from operands to results: SAME, MIXED or LARGER.
        backward: when they go from results to operands.
        mirrored: indices that run backwards in the results.
    """

    operands: tuple[ArrayIndices, ...]
    results: tuple[ArrayIndices, ...]
    sizes: tuple[int, ...]
    forward: int = SAME
    backward: int = SAME
    mirrored: frozenset[int] = frozenset()


def rule_of(instruction: Instruction) -> Rule | None:
    """The rule of an instruction that computes arrays of arrays; None for others."""
    if any(not operand.shape.is_array for operand in instruction.operands):
        return None
    if facts(instruction.opcode).is_elementwise:
        return _elementwise(instruction)
    make = _RULES.get(instruction.opcode)
    return None if make is None else make(instruction)


def handed_over(
    source: Splits, have: ArrayIndices, want: ArrayIndices, rule: Rule, mirror: bool
) -> list[Split | None]:
    """The divisions that one array of a rule suggests for the dimensions of another.

    Args:
        source: how the first one is divided.
        have: its indices.
        want: the indices of the other.
        rule: of both.
        mirror: whether one of them is a result, and the other is not.
    """
    known: dict[int, Split] = {}
    for split, indices in zip(source.dims, have, strict=True):
        if split is not None:
            known |= _taken_apart(split, indices, rule.sizes)
    if mirror:
        for index in rule.mirrored & known.keys():
            if rule.sizes[index] % known[index].parts:
                del known[index]
            else:
                known[index] = known[index].backwards()
    return [_put_together(known, indices, rule.sizes) for indices in want]


def _taken_apart(
    split: Split, indices: Indices, sizes: Sequence[int]
) -> dict[int, Split]:
    """The divisions of the indices that a dimension is made of; {} for none."""
    if len(indices) == 1:
        return {indices[0]: split}
    found: dict[int, Split] = {}
    parts, part_of = split.parts, split.part_of
    for index in indices:
        size = sizes[index]
        if size % parts == 0:
            found[index] = Split(parts, part_of)
            return found
        if parts % size:
            return {}
        parts //= size
        found[index] = Split(size, tuple(part // parts for part in part_of))
        part_of = tuple(part % parts for part in part_of)
    return {}


def _put_together(
    known: dict[int, Split], indices: Indices, sizes: Sequence[int]
) -> Split | None:
    """The division of a dimension of several indices, as far as it can be written."""
    parts, part_of = 1, ()
    for index in indices:
        split = known.get(index)
        if split is None or (len(indices) > 1 and sizes[index] % split.parts):
            break
        if parts == 1:
            parts, part_of = split.parts, split.part_of
        else:
            part_of = tuple(
                high * split.parts + low
                for high, low in zip(part_of, split.part_of, strict=True)
            )
            parts *= split.parts
        if split.parts != sizes[index]:
            break
    return Split(parts, part_of) if parts > 1 else None


# -- opcodes -------------------------------------------------------------------


def identity(rank_sizes: Sequence[int], operands: int = 1) -> Rule:
    """Arrays of the same sizes whose elements correspond."""
    array = tuple((k,) for k in range(len(rank_sizes)))
    return Rule((array,) * operands, (array,), tuple(rank_sizes))


def _elementwise(instruction: Instruction) -> Rule | None:
    if not instruction.shape.is_array:
        return None
    sizes = instruction.shape.dimensions
    array = tuple((k,) for k in range(len(sizes)))
    operands = tuple(
        array if operand.shape.dimensions == sizes else ((),) * operand.shape.rank
        for operand in instruction.operands
    )
    return Rule(operands, (array,), sizes)


def _broadcast(instruction: Instruction) -> Rule:
    sizes = instruction.shape.dimensions
    operand = tuple((d,) for d in instruction.integers("dimensions"))
    result = tuple((k,) for k in range(len(sizes)))
    return Rule((operand,), (result,), sizes, forward=LARGER)


def _transpose(instruction: Instruction) -> Rule:
    sizes = instruction.operands[0].shape.dimensions
    operand = tuple((k,) for k in range(len(sizes)))
    result = tuple((d,) for d in instruction.integers("dimensions"))
    return Rule((operand,), (result,), sizes)


def _reverse(instruction: Instruction) -> Rule:
    same = identity(instruction.shape.dimensions)
    backwards = frozenset(instruction.integers("dimensions"))
    # An order that others have, too, comes first.
    return Rule(same.operands, same.results, same.sizes, MIXED, MIXED, backwards)


def _reshape(instruction: Instruction) -> Rule:
    before = instruction.operands[0].shape.dimensions
    after = instruction.shape.dimensions
    sizes: list[int] = []
    operand: list[Indices] = []
    result: list[Indices] = []
    for (i, j), (next_i, next_j) in pairwise(common_factors(before, after)):
        left, right = _common_indices(before[i:next_i], after[j:next_j], sizes)
        operand += left
        result += right
    return Rule((tuple(operand),), (tuple(result),), tuple(sizes))


def _common_indices(
    before: Sequence[int], after: Sequence[int], sizes: list[int]
) -> tuple[list[Indices], list[Indices]]:
    """Cut two lists of sizes with one product into common indices, slowest first.

    Where the sizes have no common factors the rest has no index.
    """
    left: list[list[int]] = [[] for _ in before]
    right: list[list[int]] = [[] for _ in after]
    rest = [list(before), list(after)]
    i = j = 0
    while i < len(before) and j < len(after):
        if rest[0][i] == 1:
            i += 1
        elif rest[1][j] == 1:
            j += 1
        else:
            common = min(rest[0][i], rest[1][j])
            if common == 0 or rest[0][i] % common or rest[1][j] % common:
                break
            left[i].append(len(sizes))
            right[j].append(len(sizes))
            sizes.append(common)
            rest[0][i] //= common
            rest[1][j] //= common
    # A dimension whose faster part has no index is divided by its slower part alone:
    # give that part an index of its own, which nothing else has.
    for side, place, remaining in ((left, i, rest[0]), (right, j, rest[1])):
        for k in range(place, len(side)):
            if side[k] and remaining[k] != 1:
                side[k].append(len(sizes))
                sizes.append(remaining[k])
    return [tuple(each) for each in left], [tuple(each) for each in right]


def _dot(instruction: Instruction) -> Rule:
    lhs, rhs = (operand.shape.dimensions for operand in instruction.operands)
    batch = (
        instruction.integers("lhs_batch_dims"),
        instruction.integers("rhs_batch_dims"),
    )
    summed = (
        instruction.integers("lhs_contracting_dims"),
        instruction.integers("rhs_contracting_dims"),
    )
    left: dict[int, int] = {}
    right: dict[int, int] = {}
    sizes: list[int] = []
    for one, other in (*zip(*batch, strict=True), *zip(*summed, strict=True)):
        left[one] = right[other] = len(sizes)
        sizes.append(lhs[one])
    result = [left[d] for d in batch[0]]
    for numbers, dims in ((left, lhs), (right, rhs)):
        for d, size in enumerate(dims):
            if d not in numbers:
                numbers[d] = len(sizes)
                result.append(len(sizes))
                sizes.append(size)
    return Rule(
        (
            tuple((left[d],) for d in range(len(lhs))),
            tuple((right[d],) for d in range(len(rhs))),
        ),
        (tuple((k,) for k in result),),
        tuple(sizes),
        forward=MIXED,
        backward=MIXED,
    )


def _reduce(instruction: Instruction) -> Rule:
    count = len(instruction.operands) // 2
    sizes = instruction.operands[0].shape.dimensions
    array = tuple((k,) for k in range(len(sizes)))
    gone = instruction.integers("dimensions")
    result = tuple((k,) for k in range(len(sizes)) if k not in gone)
    return Rule(
        (array,) * count + ((),) * count,
        (result,) * count,
        sizes,
        forward=MIXED,
        backward=MIXED,
    )


def _kept(
    operands: Sequence[Sequence[int]],
    result: Sequence[int],
    is_kept: Callable[[int], bool],
    *,
    results: int = 1,
    when: int = SAME,
) -> Rule:
    """Arrays of one rank that agree in some dimensions; the others are not tied."""
    array = tuple((d,) if is_kept(d) else () for d in range(len(result)))
    given = tuple(array if len(o) == len(result) else ((),) * len(o) for o in operands)
    return Rule(given, (array,) * results, tuple(result), when, when)


def _slice(instruction: Instruction) -> Rule:
    before = instruction.operands[0].shape.dimensions
    ranges = parse_slice(instruction.attributes["slice"]).dimensions
    after = instruction.shape.dimensions
    return _kept([before], after, lambda d: ranges[d][2] == 1, when=MIXED)


def _pad(instruction: Instruction) -> Rule:
    after = instruction.shape.dimensions
    padded = parse_padding(instruction.attributes["padding"]).dimensions
    shapes = [operand.shape.dimensions for operand in instruction.operands]
    return _kept(shapes, after, lambda d: not padded[d][2], when=MIXED)


def _concatenate(instruction: Instruction) -> Rule:
    shapes = [operand.shape.dimensions for operand in instruction.operands]
    return _kept(shapes, instruction.shape.dimensions, lambda d: True, when=MIXED)


def _dynamic_slice(instruction: Instruction) -> Rule:
    before = instruction.operands[0].shape.dimensions
    after = instruction.shape.dimensions
    rule = _kept([before], after, lambda d: before[d] == after[d], when=MIXED)
    return _with_scalars(rule, len(instruction.operands) - 1)


def _dynamic_update_slice(instruction: Instruction) -> Rule:
    whole = instruction.shape.dimensions
    update = instruction.operands[1].shape.dimensions
    array = tuple((d,) for d in range(len(whole)))
    part = tuple((d,) if update[d] == whole[d] else () for d in range(len(whole)))
    rule = Rule((array, part), (array,), whole, SAME, SAME)
    return _with_scalars(rule, len(instruction.operands) - 2)


def _with_scalars(rule: Rule, count: int) -> Rule:
    return Rule(
        rule.operands + ((),) * count,
        rule.results,
        rule.sizes,
        rule.forward,
        rule.backward,
        rule.mirrored,
    )


def _sort(instruction: Instruction) -> Rule:
    sizes = instruction.operands[0].shape.dimensions
    count = len(instruction.operands)
    return _kept([sizes] * count, sizes, lambda d: True, results=count, when=MIXED)


def _reduce_window(instruction: Instruction) -> Rule:
    count = len(instruction.operands) // 2
    sizes = instruction.shape.at((0,) if instruction.shape.is_tuple else ()).dimensions
    window = parse_window(instruction.attributes.get("window", "{}")).dimensions
    before = instruction.operands[0].shape.dimensions
    rule = _kept(
        [before] * count,
        sizes,
        lambda d: window[d] == WindowDimension(1) and before[d] == sizes[d],
        results=count,
    )
    return _with_scalars(rule, count)


def _gather(instruction: Instruction) -> Rule:
    operand, indices = (o.shape.dimensions for o in instruction.operands)
    result = instruction.shape.dimensions
    offsets = instruction.integers("offset_dims")
    taken = instruction.integers("slice_sizes")
    gone = instruction.integers("collapsed_slice_dims")
    batch = instruction.integers("operand_batching_dims")
    indices_batch = instruction.integers("start_indices_batching_dims")
    vector = number_of_digits(instruction.attributes["index_vector_dim"])
    sizes = list(result)
    of_result = tuple((k,) for k in range(len(result)))
    # Dimensions of the indices are dimensions of the result, in order.
    places = iter([k for k in range(len(result)) if k not in offsets])
    of_indices = tuple(
        () if d == vector else (next(places),) for d in range(len(indices))
    )
    # So are those of the operand that are taken whole.
    window = iter(offsets)
    of_operand: list[Indices] = []
    for d, size in enumerate(operand):
        if d in gone or d in batch:
            pair = indices_batch[batch.index(d)] if d in batch else None
            of_operand.append(() if pair is None else of_indices[pair])
            continue
        place = next(window)
        of_operand.append((place,) if taken[d] == size else ())
    return Rule(
        (tuple(of_operand), of_indices), (of_result,), tuple(sizes), MIXED, MIXED
    )


def _scatter(instruction: Instruction) -> Rule:
    count = len(instruction.operands) // 2
    operand = instruction.operands[0].shape.dimensions
    indices = instruction.operands[count].shape.dimensions
    update = instruction.operands[count + 1].shape.dimensions
    window = instruction.integers("update_window_dims")
    gone = instruction.integers("inserted_window_dims")
    batch = instruction.integers("input_batching_dims")
    indices_batch = instruction.integers("scatter_indices_batching_dims")
    vector = number_of_digits(instruction.attributes["index_vector_dim"])
    sizes = list(operand)
    of_operand = tuple((k,) for k in range(len(operand)))
    of_update: list[Indices] = [()] * len(update)
    of_indices: list[Indices] = [()] * len(indices)
    # Windows that are as large as the operand belong to it.
    places = iter(window)
    for d, size in enumerate(operand):
        if d not in gone and d not in batch:
            place = next(places)
            of_update[place] = (d,) if update[place] == size else ()
    # The other dimensions of the updates are those of the indices.
    others = iter([k for k in range(len(update)) if k not in window])
    for d in range(len(indices)):
        if d == vector:
            continue
        place = next(others)
        if d in indices_batch:
            index = batch[indices_batch.index(d)]
        else:
            index = len(sizes)
            sizes.append(indices[d])
        of_update[place] = of_indices[d] = (index,)
    return Rule(
        (of_operand,) * count + (tuple(of_indices),) + (tuple(of_update),) * count,
        (of_operand,) * count,
        tuple(sizes),
        MIXED,
        MIXED,
    )


_RULES: Final[dict[str, Callable[[Instruction], Rule | None]]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "scatter": _scatter,
    "slice": _slice,
    "sort": _sort,
    "transpose": _transpose,
}
