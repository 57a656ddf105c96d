"""Variants of XLA's ReplaceInstruction that single passes need.

replace_relaying_control(old, new)     the control edges of `old` go to `new`
"""

from __future__ import annotations

from hlo_passes.analysis.post_order import post_order_from
from hlo_passes.ir.instruction import Instruction


def replace_relaying_control(old: Instruction, new: Instruction) -> bool:
    """`Computation.replace`, with the control edges handed on to `new`.

    False, and nothing done, when the shardings of the two clash or the edges would
    close a cycle.
    """
    sharding, other = old.attributes.get("sharding"), new.attributes.get("sharding")
    if sharding is not None and other is not None and sharding != other:
        return False
    computation = old.computation
    predecessors = [p for p in old.control_predecessors if p is not new]
    successors = [s for s in old.control_successors if s is not new]
    if any(_needs(p, new) for p in predecessors):
        return False
    computation.drop_control_edges(old)
    for predecessor in predecessors:
        computation.add_control_edge(predecessor, new)
    for successor in successors:
        computation.add_control_edge(new, successor)
    return computation.replace(old, new)


def _needs(instruction: Instruction, other: Instruction) -> bool:
    """Whether `other` must run before `instruction`."""
    return other in post_order_from(instruction, set())
