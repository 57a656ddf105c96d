"""The instruction that decides which kernel a fusion becomes.

    root = f32[64,128] convert(%t)
    %t   = bf16[64,128] transpose(%p)     the hero: everything below is elementwise

Source: openxla/xla `codegen/ir_emission_utils.cc`, `gpu/ir_emission_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import (
    FusedGraph,
    is_elementwise,
    reshape_is_bitcast,
    transpose_is_bitcast,
)
from hlo_passes.scheduler.fusions.transpose import is_tiled_transpose

_MOST_OPERANDS = 3


def find_hero(root: Instruction, graph: FusedGraph) -> Instruction:
    """The hero of a result; the result itself if there is none."""
    hero = root
    while is_intermediate(hero, most_operands=1) and graph.contains(hero.operands[0]):
        hero = hero.operands[0]
    for matches in (is_tiled_transpose, _is_concatenate):
        found = _find_single(hero, graph, matches)
        if found is not None:
            return found
    return hero if hero.opcode == "reduce" else root


def is_intermediate(instruction: Instruction, most_operands: int) -> bool:
    """Whether it works element by element in place, without a new order in memory."""
    if not 1 <= len(instruction.operands) <= most_operands:
        return False
    opcode = instruction.opcode
    if opcode == "copy":
        return instruction.shape == instruction.operands[0].shape
    if is_elementwise(instruction) or opcode == "bitcast":
        return True
    if opcode == "reshape":
        return reshape_is_bitcast(instruction)
    return opcode == "transpose" and transpose_is_bitcast(instruction)


def _is_concatenate(instruction: Instruction) -> bool:
    return instruction.opcode == "concatenate"


def _find_single(
    start: Instruction, graph: FusedGraph, matches: Callable[[Instruction], bool]
) -> Instruction | None:
    """The only match that intermediate ops lead to, if all its users are such ops."""
    found: Instruction | None = None
    seen = {start: None}
    queue = [start]
    for instruction in queue:
        if matches(instruction):
            if found is not None:
                return None
            found = instruction
            continue
        if not is_intermediate(instruction, _MOST_OPERANDS):
            continue
        for operand in instruction.operands:
            if operand not in seen and graph.contains(operand):
                seen[operand] = None
                queue.append(operand)
    if found is None or not _feeds_only_intermediates(found, graph):
        return None
    return found


def _feeds_only_intermediates(hero: Instruction, graph: FusedGraph) -> bool:
    seen = dict.fromkeys(graph.users(hero))
    queue = list(seen)
    for instruction in queue:
        if instruction.opcode != "tuple" and not is_intermediate(
            instruction, _MOST_OPERANDS
        ):
            return False
        for user in graph.users(instruction):
            if user not in seen:
                seen[user] = None
                queue.append(user)
    return True
