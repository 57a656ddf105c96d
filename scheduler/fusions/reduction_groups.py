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

from collections.abc import Iterator

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph


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
    parent = list(range(len(graph.roots)))

    def find(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    def join(results: list[int]) -> None:
        for k in results[1:]:
            parent[find(k)] = find(results[0])

    # A result that is not a reduction may overwrite what another result reads.
    join([k for k, is_real in enumerate(is_reduction) if not is_real])
    for instruction, results in _reached(graph, broadcasts_join).items():
        if _is_broadcast_scalar(instruction) or (
            not broadcasts_join and _is_broadcast_parameter(instruction)
        ):
            results = _with_one_reduction(results, is_reduction)
        join(results)
    return len({find(k) for k in range(len(parent))})


def _reached(graph: FusedGraph, broadcasts_join: bool) -> dict[Instruction, list[int]]:
    """Instruction -> the results that it joins, by number."""
    reached: dict[Instruction, list[int]] = {}
    for k, root in enumerate(graph.roots):
        seen = {root: None}
        queue = [root]
        for instruction in queue:
            reached.setdefault(instruction, []).append(k)
            if not broadcasts_join and _is_broadcast_parameter(instruction):
                continue
            for operand in instruction.operands:
                if operand not in seen:
                    seen[operand] = None
                    queue.append(operand)
    return reached


def _with_one_reduction(results: list[int], is_reduction: list[bool]) -> list[int]:
    """All results except the reductions after the first."""

    def kept() -> Iterator[int]:
        has_reduction = False
        for k in results:
            if not (is_reduction[k] and has_reduction):
                yield k
            has_reduction = has_reduction or is_reduction[k]

    return [*kept()]


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
