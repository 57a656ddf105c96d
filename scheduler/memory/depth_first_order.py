"""The depth-first scheduler: post order that visits the widely used operand first.

    r = f(a, b)      a leads to values with many users, b to few: a's side comes first

Source: openxla/xla `hlo/transforms/simplifiers/hlo_memory_scheduler.cc`,
`hlo/ir/hlo_instruction.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_passes.analysis.post_order import post_order
from hlo_passes.scheduler.memory.value_sizes import ValueSizes

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction


def depth_first_order(computation: Computation, sizes: ValueSizes) -> list[Instruction]:
    """The order of one computation. `sizes` holds the values of its module."""
    rank = _ranks(computation, sizes)
    root = computation.root
    dead = [
        i
        for i in computation.instructions
        if not i._users and not i.control_successors and i is not root
    ]
    order: list[Instruction] = []
    opened: set[Instruction] = set()
    placed: set[Instruction] = set()
    for start in (*dead, root):
        stack = [start]
        while stack:
            current = stack[-1]
            if current in placed:
                stack.pop()
            elif current in opened:
                stack.pop()
                placed.add(current)
                order.append(current)
            else:
                opened.add(current)
                children = [
                    i
                    for i in (*current.operands, *current._control_predecessors)
                    if i not in placed
                ]
                children.sort(key=rank.__getitem__, reverse=True)
                stack += children
    return order


def _ranks(
    computation: Computation, sizes: ValueSizes
) -> dict[Instruction, tuple[int, int, str]]:
    """Sort keys, least first: many extra users, then many bytes, then by name.

    Both sums count all paths, so they are limited to the total that exists.
    """
    most_users = len(computation.instructions)
    seen_bytes = 0
    extra_users: dict[Instruction, int] = {}
    total_bytes: dict[Instruction, int] = {}
    for instruction in post_order(computation):
        if instruction.opcode in ("parameter", "constant"):
            extra_users[instruction] = total_bytes[instruction] = 0
            continue
        own_bytes = sum(sizes.bytes_of(v) for v in sizes.defined(instruction))
        seen_bytes += own_bytes
        operands = dict.fromkeys(instruction.operands)
        extra_users[instruction] = min(
            max(instruction.user_count - 1, 0) + sum(extra_users[o] for o in operands),
            most_users,
        )
        total_bytes[instruction] = min(
            own_bytes + sum(total_bytes[o] for o in operands), seen_bytes
        )
    return {
        i: (-extra_users[i], -total_bytes[i], i.name) for i in computation.instructions
    }
