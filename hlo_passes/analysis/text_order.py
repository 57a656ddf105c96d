"""Restores text order, so that definitions come before uses.

    u = negate(g)        ->     g = get-tuple-element(c), index=0
    g = get-tuple-...           u = negate(g)

The order changes as little as it can: an instruction that is ready keeps its place, any
other comes directly after the last one that it waited for.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction


def restore_text_order(computation: Computation) -> bool:
    """Reorder until operands and control predecessors come first; True if any moved.

    O(n) when the order is right already, O(n log n) otherwise. Instructions on a cycle
    keep their places at the end.
    """
    order = computation.instructions
    position = {instruction: k for k, instruction in enumerate(order)}
    if _is_ordered(order, position):
        return False
    waiting: dict[Instruction, int] = {}
    ready: list[int] = []
    for k, instruction in enumerate(order):
        needed = len(_needs(instruction))
        waiting[instruction] = needed
        if not needed:
            ready.append(k)
    heapify(ready)
    sorted_order: list[Instruction] = []
    while ready:
        current = order[heappop(ready)]
        sorted_order.append(current)
        for follower in dict.fromkeys((*current.users, *current.control_successors)):
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(ready, position[follower])
    if len(sorted_order) < len(order):
        placed = set(sorted_order)
        sorted_order += [i for i in order if i not in placed]
    computation.set_order(sorted_order)
    return True


def _needs(instruction: Instruction) -> dict[Instruction, None]:
    return dict.fromkeys((*instruction.operands, *instruction.control_predecessors))


def _is_ordered(
    order: tuple[Instruction, ...], position: dict[Instruction, int]
) -> bool:
    for k, instruction in enumerate(order):
        for operand in instruction.operands:
            if position[operand] >= k:
                return False
        for predecessor in instruction.control_predecessors:
            if position[predecessor] >= k:
                return False
    return True
