"""Which instructions may be fused without any two fusions waiting for each other.

    %e = exponential(%x)         level 2
    %d = dot(%e, %w)             level 1
    %a = add(%d, %e)             level 0: %e and %a are apart, since %d is in between
    %n = negate(%e)              level 0, and raised to 2: it may be with %e

Each instruction has a level, at least that of every user, and more than that of a user
unless both are elementwise and alike. A block is what hangs together on one level. So
no way leads out of a block and back, nor from one block through another one of the same
level, and whatever the fusions inside of blocks are, they never form a ring.

Levels are first as low as they can be. Then blocks are raised to the level of what they
read, with all that they wait for, where that does not wait for it in turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from hlo_passes.ir.instruction import Instruction

#: Instructions that one block may raise with it; beyond that it stays.
_MOST_RAISED: Final = 2000

#: What instructions of one block have in common.
Key = Hashable
_Blocks = dict[Instruction, list[Instruction]]
_Levels = dict[Instruction, int]


def blocks_of(
    order: Sequence[Instruction], keys: Mapping[Instruction, Key]
) -> Mapping[Instruction, list[Instruction]]:
    """The block of each instruction that may be fused.

    Args:
        order: all instructions of a computation, operands first.
        keys: of those that may be fused; only equal ones are joined.
    """
    levels = _lowest_levels(order, keys)
    blocks: _Blocks = {instruction: [instruction] for instruction in keys}
    edges = [
        (operand, instruction)
        for instruction in order
        for operand in dict.fromkeys(instruction.operands)
        if _goes_on(operand, instruction, keys)
    ]
    # What is near is joined first.
    edges.sort(key=lambda edge: levels[edge[0]] - levels[edge[1]])
    for operand, instruction in edges:
        one, other = blocks[operand], blocks[instruction]
        if one is other:
            continue
        raised = _raised(other, one, levels, blocks, keys)
        if raised is None:
            continue
        levels.update(raised)
        _merge(one, other, blocks)
    # What reached one level on the way is one block, too.
    for operand, instruction in edges:
        one, other = blocks[operand], blocks[instruction]
        if one is not other and levels[operand] == levels[instruction]:
            _merge(one, other, blocks)
    return blocks


def _merge(one: list[Instruction], other: list[Instruction], blocks: _Blocks) -> None:
    few, many = sorted((one, other), key=len)
    many += few
    for each in few:
        blocks[each] = many


def _goes_on(
    operand: Instruction, user: Instruction, keys: Mapping[Instruction, Key]
) -> bool:
    return operand in keys and keys[operand] == keys.get(user)


def _lowest_levels(
    order: Sequence[Instruction], keys: Mapping[Instruction, Key]
) -> _Levels:
    levels: _Levels = {}
    for instruction in reversed(order):
        level = 0
        for user in instruction.users:
            level = max(level, levels[user] + (not _goes_on(instruction, user, keys)))
        for successor in instruction.control_successors:
            level = max(level, levels.get(successor, 0) + 1)
        levels[instruction] = level
    return levels


def _raised(
    block: Sequence[Instruction],
    beside: Sequence[Instruction],
    levels: _Levels,
    blocks: _Blocks,
    keys: Mapping[Instruction, Key],
) -> _Levels | None:
    """Levels with which one block is on the level of another; None if they cannot be.

    Blocks rise as a whole. `beside` stays, so that nothing may ask it to rise.
    """
    wanted_level = levels[beside[0]]
    if levels[block[0]] > wanted_level:
        return None  # it has been raised further for something else
    wanted: _Levels = {}
    staying = blocks[beside[0]]
    work = [(each, wanted_level) for each in block]
    while work:
        instruction, level = work.pop()
        if max(levels[instruction], wanted.get(instruction, 0)) >= level:
            continue
        own = blocks.get(instruction)
        if own is staying or len(wanted) >= _MOST_RAISED:
            return None
        wanted[instruction] = level
        work += [(other, level) for other in own or ()]
        work += _needs(instruction, level, keys)
    return wanted


def _needs(
    instruction: Instruction, level: int, keys: Mapping[Instruction, Key]
) -> Iterator[tuple[Instruction, int]]:
    for operand in instruction.operands:
        yield operand, level + (not _goes_on(operand, instruction, keys))
    for predecessor in instruction.control_predecessors:
        yield predecessor, level + 1
