"""Operands before users, in the order that XLA's own post order has.

    p = parameter(0)           roots in list order: what has no user
    n = negate(p)              operands from first to last, each once
    ROOT a = add(n, p)         control predecessors count as edges; they come first,
                               the last listed one first

The order decides which collectives share a batch, so it is exactly XLA's.
Source: openxla/xla `xla/hlo/ir/hlo_computation.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction


def post_order(
    computation: Computation, order: Iterable[Instruction] | None = None
) -> tuple[Instruction, ...]:
    """All instructions, operands and control predecessors before what needs them.

    Args:
        computation: the graph.
        order: the list that is searched for roots; text order when not given.

    Instructions on a cycle of control edges still appear once each.
    """
    listed = computation.instructions if order is None else order
    found: list[Instruction] = []
    done: set[Instruction] = set()
    for instruction in listed:
        if not instruction._users:
            found += post_order_from(instruction, done)
    return tuple(found)


def post_order_from(root: Instruction, done: set[Instruction]) -> list[Instruction]:
    """What `root` needs and is not in `done`, then `root`; all of it joins `done`."""
    if root in done:
        return []
    found: list[Instruction] = []
    opened: set[Instruction] = set()
    stack = [root]
    while stack:
        current = stack[-1]
        if current not in opened:
            opened.add(current)
            stack += [o for o in reversed(current.operands) if o not in done]
            stack += [p for p in current._control_predecessors if p not in done]
        else:
            stack.pop()
            if current not in done:
                done.add(current)
                found.append(current)
    return found


def changing_post_order(computation: Computation) -> Iterator[Instruction]:
    """The post order of a computation that changes while it is walked.

    As XLA's rewriting visitors go: the operands of an instruction are those that it has
    when it is reached first, so that what replaces one for a later reader is visited.
    """
    done: set[Instruction] = set()
    opened: set[Instruction] = set()
    for root in computation.instructions:
        stack = [] if root._users or root.removed else [root]
        while stack:
            current = stack[-1]
            if current not in opened:
                opened.add(current)
                stack += [o for o in reversed(current.operands) if o not in done]
                stack += [p for p in current._control_predecessors if p not in done]
                continue
            stack.pop()
            if current not in done and not current.removed:
                done.add(current)
                yield current
