"""Which dimensions a reshape leaves alone.

    [4,6,5] -> [4,2,3,5]         0 is 0, and 2 is 3
    [1,8]   -> [8]               1 is 0; only a dimension of size 1 goes

Source: openxla/xla `xla/util.cc` (CommonFactors), `xla/shape_util.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

from hlo_passes.ir.instruction import Instruction


def common_factors(
    before: tuple[int, ...], after: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Where both lists of sizes can be cut so that pieces have equal products.

    A cut is a place in either list; the first is (0, 0), the last one the two lengths.
    As many cuts are made as possible; sizes of 1 are pieces of their own.
    """
    ends = len(before), len(after)
    if before == after:
        return [(k, k) for k in range(len(before) + 1)]
    # Sizes that agree from the start are pieces each.
    i = j = 0
    cuts: list[tuple[int, int]] = []
    while i < ends[0] and j < ends[1] and before[i] == after[j]:
        cuts.append((i, j))
        i, j = i + 1, j + 1
    rest = prod(before[i:]), prod(after[j:])
    if rest[0] != rest[1]:
        return [(0, 0), ends]
    if rest[0] == 0:
        return [*cuts, (i, j), ends]
    # The list whose piece is smaller goes on; if none is, that of the smaller size.
    left = right = 1
    while True:
        if left == right and (not cuts or i > cuts[-1][0] or j > cuts[-1][1]):
            cuts.append((i, j))
        has_i, has_j = i < ends[0], j < ends[1]
        if not has_i and not has_j:
            return cuts
        even = left == right
        next_i = left < right or (
            has_i and (not has_j or (even and before[i] <= after[j]))
        )
        next_j = right < left or (
            has_j and (not has_i or (even and after[j] <= before[i]))
        )
        if next_i:
            left, i = left * before[i], i + 1
        if next_j:
            right, j = right * after[j], j + 1


def unmodified_dimensions(
    before: tuple[int, ...], after: tuple[int, ...]
) -> dict[int, int]:
    """Dimensions that a reshape leaves alone: their number after -> before."""
    cuts = common_factors(before, after)
    return {
        j: i
        for (i, j), (next_i, next_j) in pairwise(cuts)
        if next_i - i == 1 and next_j - j == 1
    }


def changes_only_ones(reshape: Instruction) -> bool:
    """Whether a reshape only adds or removes dimensions of size 1."""
    if reshape.opcode != "reshape":
        return False
    before, after = reshape.operands[0].shape.dimensions, reshape.shape.dimensions
    return [n for n in before if n != 1] == [n for n in after if n != 1]


def source_behind(
    value: Instruction,
    is_passed: Callable[[Instruction], bool],
    known: dict[Instruction, Instruction],
) -> Instruction:
    """What is at the start of a chain of instructions with one operand each.

    Args:
        value: where the chain ends.
        is_passed: whether an instruction belongs to the chain.
        known: what was found so far, so that long chains are walked once.
    """
    path: list[Instruction] = []
    while value not in known and is_passed(value):
        path.append(value)
        value = value.operands[0]
    source = known.get(value, value)
    known.update(dict.fromkeys(path, source))
    return source
