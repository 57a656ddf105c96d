"""Which results of a reduction kernel share work, and which have their own blocks.

    a, p    ->  reduce(a * broadcast(p))
    b, p    ->  reduce(b * broadcast(p))     jax 0.10.2: one group; jax 0.12: two
    a       ->  reduce(a), reduce(sin(a))    one group

Results that nothing joins are computed side by side: the kernel has its blocks once per
group. A constant or scalar never joins two reductions. In jax 0.12 the broadcast of a
parameter does not join them either, nor does the parameter through it.

Source: openxla/xla `backends/gpu/codegen/emitters/reduction_base.cc` (Aug 2026); what
jax 0.12 does was found from the grids that its estimator logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph

#: A result by its number, or an instruction.
_Member: TypeAlias = "int | Instruction"


def disjoint_groups(
    graph: FusedGraph, is_reduction: list[bool], *, broadcasts_join: bool
) -> int:
    """Number of disjoint groups of results.

    Args:
        graph: the fused computation.
        is_reduction: per result, whether a reduction kernel computes it.
        broadcasts_join: whether a parameter that is broadcast into two reductions puts
            them into one group: True up to jax 0.10.2, False from 0.12 on.
    """
    if len(graph.roots) == 1:
        return 1
    groups = _Groups([*range(len(graph.roots)), *graph.instructions])
    # A result that is not a reduction may overwrite what another result reads.
    groups.join(k for k, is_real in enumerate(is_reduction) if not is_real)
    reached = _reached(graph, is_reduction, broadcasts_join)
    # What joins all results that it reaches is in one group with them. So are its
    # users, since they reach some of these results.
    joins: dict[Instruction, bool] = {}
    for instruction in graph.instructions:
        if instruction not in reached:
            continue
        below = _operands(instruction, broadcasts_join)
        joined = [operand for operand in below if joins.get(operand)]
        is_exempt = _is_broadcast_scalar(instruction) or (
            not broadcasts_join and _is_broadcast_parameter(instruction)
        )
        joins[instruction] = bool(joined) or not is_exempt
        groups.join((instruction, *joined))
        if not joins[instruction]:
            groups.join(k for k in reached[instruction] if k is not None)
    for k, root in enumerate(graph.roots):
        if joins.get(root):
            groups.join((k, root))
    return len({groups.find(k) for k in range(len(graph.roots))})


class _Groups:
    """Results by number, and instructions, that are in one group."""

    def __init__(self, members: Iterable[_Member]) -> None:
        self._parent = {member: member for member in members}

    def find(self, member: _Member) -> _Member:
        """The member that stands for a group."""
        parent = self._parent
        while parent[member] != member:
            parent[member] = member = parent[parent[member]]
        return member

    def join(self, members: Iterable[_Member]) -> None:
        """Make one group of the groups of some members."""
        first: _Member | None = None
        for member in members:
            found = self.find(member)
            first = found if first is None else first
            self._parent[found] = first


def _reached(
    graph: FusedGraph, is_reduction: list[bool], broadcasts_join: bool
) -> dict[Instruction, tuple[int | None, int | None]]:
    """Of an instruction, the first results of both kinds that it feeds, by number.

    An instruction that does not join all results still joins one reduction and those
    that are none.
    """
    numbers: dict[Instruction, list[int]] = {}
    for k, root in enumerate(graph.roots):
        numbers.setdefault(root, []).append(k)
    found: dict[Instruction, tuple[int | None, int | None]] = {}

    def add(instruction: Instruction, result: int | None) -> None:
        if result is None:
            return
        reduction, other = found.get(instruction, (None, None))
        if is_reduction[result]:
            reduction = result if reduction is None else min(reduction, result)
        else:
            other = result if other is None else min(other, result)
        found[instruction] = reduction, other

    for instruction in reversed(graph.instructions):
        for k in numbers.get(instruction, ()):
            add(instruction, k)
        for operand in _operands(instruction, broadcasts_join):
            for result in found.get(instruction, ()):
                add(operand, result)
    return found


def _operands(
    instruction: Instruction, broadcasts_join: bool
) -> tuple[Instruction, ...]:
    """What reaches the results that an instruction reaches."""
    if not broadcasts_join and _is_broadcast_parameter(instruction):
        return ()
    return instruction.operands


def _is_broadcast_scalar(instruction: Instruction) -> bool:
    """A constant or scalar, possibly broadcast."""
    if instruction.shape.is_scalar or instruction.opcode == "constant":
        return True
    return instruction.opcode == "broadcast" and (
        instruction.operands[0].shape.is_scalar
        or instruction.operands[0].opcode == "constant"
    )


def _is_broadcast_parameter(instruction: Instruction) -> bool:
    """A broadcast of a parameter, possibly seen in another shape."""
    if instruction.opcode != "broadcast":
        return False
    source = instruction.operands[0]
    while source.opcode == "bitcast":
        source = source.operands[0]
    return source.opcode == "parameter"
