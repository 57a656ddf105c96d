"""Variants of XLA's ReplaceInstruction that some passes need.

relay_control(old, new)                the control edges of `old` are `new`'s, too
take_place(old, new)                   so are its users; `old` is removed
replace_relaying_control(old, new)     `Computation.replace`, control edges included
"""

from __future__ import annotations

from hlo_passes.analysis.post_order import post_order_from
from hlo_passes.ir.instruction import Instruction


def relay_control(
    old: Instruction, first: Instruction, last: Instruction | None = None
) -> None:
    """Let `first` wait for what `old` waits for, and what waits for `old` for `last`.

    One instruction is both when `last` is not given.
    """
    computation = old.computation
    for predecessor in old.control_predecessors:
        computation.add_control_edge(predecessor, first)
    for successor in old.control_successors:
        computation.add_control_edge(last or first, successor)


def take_place(old: Instruction, new: Instruction) -> None:
    """Give the control edges and users of `old` to `new`, which stays as it is."""
    relay_control(old, new)
    old.computation.replace_uses(old, new)
    old.computation.remove(old)


def replace_relaying_control(old: Instruction, new: Instruction) -> bool:
    """`Computation.replace`, which also moves the control edges to `new`.

    It returns False, and does nothing, if the shardings of the two clash or the edges
    would close a cycle.
    """
    sharding, other = old.spelling_of("sharding"), new.spelling_of("sharding")
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
