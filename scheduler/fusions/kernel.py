"""The kernel that a fusion becomes, and its grid.

    reduction, transpose, loop (several results), scatter, concatenate, loop

Source: openxla/xla `hlo_fusion_analysis.cc`, `codegen/fusions.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.gpu_config import fusion_kind, triton_tiles
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import (
    FusedGraph,
    dimensions_of,
    is_elementwise,
    minor_to_major,
)
from hlo_passes.scheduler.fusions.heroes import Heroes
from hlo_passes.scheduler.fusions.launch_dimensions import (
    LaunchDimensions,
    ceil_div,
    loop_launch,
    loop_unroll,
)
from hlo_passes.scheduler.fusions.reduction import (
    is_real_reduction,
    reduction_dimensions,
    reduction_launch,
)
from hlo_passes.scheduler.fusions.reduction_groups import disjoint_groups
from hlo_passes.scheduler.fusions.scatter import scatter_launch
from hlo_passes.scheduler.fusions.transpose import (
    TiledTranspose,
    tiled_transpose,
    transpose_launch,
)
from hlo_passes.scheduler.hardware.target import Target

_MOST_CONCATENATE_OPERANDS: Final = 4
_MEMCPY_THREADS: Final = 128
_TRITON: Final = "__triton"
_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel.

    Attributes:
        emitter: 'reduction', 'transpose', 'loop', 'concatenate', 'scatter', 'sort',
            'memcpy', 'in-place-update' or 'triton'.
        launch: its grid.
    """

    emitter: str
    launch: LaunchDimensions


def triton_kernel(fusion: Instruction, graph: FusedGraph) -> Kernel | None:
    """The kernel of a Triton fusion; None for a fusion of another kind."""
    if not fusion_kind(fusion).startswith(_TRITON):
        return None
    tiles = triton_tiles(fusion)
    if tiles is None:
        elements = graph.first_result.element_count
        blocks = max(1, ceil_div(elements, _MEMCPY_THREADS))
        return Kernel("triton", LaunchDimensions(blocks, _MEMCPY_THREADS))
    sizes, warps = tiles
    # A result of higher rank than its tile counts only its leading dimensions.
    dimensions = graph.roots[0].shape.dimensions
    blocks = math.prod(
        ceil_div(dimension, size)
        for dimension, size in zip(dimensions, sizes, strict=False)
        if size > 0
    )
    return Kernel("triton", LaunchDimensions(blocks, warps * _WARP))


def kernel_of(
    graph: FusedGraph, target: Target, *, broadcasts_join: bool = True
) -> Kernel:
    """The kernel that XLA emits for a fused computation.

    `broadcasts_join` is False from jax 0.12 on; `reduction_groups` explains it.
    """
    heroes = [*map(Heroes(graph).of, graph.roots)]
    real = [
        is_real_reduction(root, hero)
        for root, hero in zip(graph.roots, heroes, strict=True)
    ]
    if any(real) and _fit_together(graph, heroes, real):
        first = heroes[real.index(True)]
        groups = disjoint_groups(graph, real, broadcasts_join=broadcasts_join)
        launch = reduction_launch(
            graph, heroes, reduction_dimensions(first), target, groups
        )
        return Kernel("reduction", launch)
    transposes = _consistent_transposes(graph, heroes)
    if transposes:
        return Kernel("transpose", transpose_launch(transposes, target))
    if len(graph.roots) == 1:
        root, hero = graph.roots[0], heroes[0]
        if root.opcode == "scatter":
            return Kernel("scatter", scatter_launch(graph, root, target))
        if root.opcode == "sort":
            return Kernel("sort", loop_launch(graph.first_result.element_count, 1))
        if (
            hero.opcode == "concatenate"
            and not root.shape.is_tuple
            and len(hero.operands) <= _MOST_CONCATENATE_OPERANDS
        ):
            return Kernel("concatenate", _concatenate_launch(graph, hero, target))
    return _loop_kernel(graph, target)


def reduction_hero(graph: FusedGraph) -> Instruction | None:
    """The reduction that the kernel is built around; None for any other kernel."""
    heroes = [*map(Heroes(graph).of, graph.roots)]
    real = [
        is_real_reduction(root, hero)
        for root, hero in zip(graph.roots, heroes, strict=True)
    ]
    if any(real) and _fit_together(graph, heroes, real):
        return heroes[real.index(True)]
    return None


def _fit_together(
    graph: FusedGraph, heroes: list[Instruction], real: list[bool]
) -> bool:
    """Whether one reduction kernel can produce all results."""
    first = heroes[real.index(True)]
    wanted = reduction_dimensions(first)
    elements = first.operands[0].shape.element_count
    for root, hero, is_real in zip(graph.roots, heroes, real, strict=True):
        if root is first:
            continue
        if not is_real:
            if root.shape.element_count != elements:
                return False
        elif reduction_dimensions(hero) != wanted:
            return False
    return True


def _consistent_transposes(
    graph: FusedGraph, heroes: list[Instruction]
) -> list[TiledTranspose]:
    """The tiled transposes of all results; [] if they do not fit together."""
    found: list[TiledTranspose] = []
    others: list[Instruction] = []
    operand: Instruction | None = None
    for root, hero in zip(graph.roots, heroes, strict=True):
        tiled = tiled_transpose(hero)
        if tiled is None:
            others.append(root)
            continue
        if found and (tiled.result, tiled.permutation) != (
            found[0].result,
            found[0].permutation,
        ):
            return []
        operand = operand or hero.operands[0]
        found.append(tiled)
    if operand is None:
        return []
    for root in others:
        if root.shape.element_count != operand.shape.element_count:
            return []
    return found


def _concatenate_launch(
    graph: FusedGraph, concatenate: Instruction, target: Target
) -> LaunchDimensions:
    (dimension,) = dimensions_of(concatenate)
    sizes = [o.shape.dimensions[dimension] for o in concatenate.operands]
    largest = concatenate.operands[sizes.index(max(sizes))].shape.element_count
    unroll = math.gcd(loop_unroll(graph, largest, target), *sizes)
    return loop_launch(largest, unroll)


def _loop_kernel(graph: FusedGraph, target: Target) -> Kernel:
    elements = graph.first_result.element_count
    if all(_is_plain_copy(root) for root in graph.roots):
        blocks = max(1, ceil_div(elements, _MEMCPY_THREADS))
        return Kernel("memcpy", LaunchDimensions(blocks, _MEMCPY_THREADS))
    updates = [_updated(root) for root in graph.roots]
    if all(u is not None and _in_place(u, graph) for u in updates) and updates[0]:
        size = updates[0].operands[1].shape.element_count
        launch = loop_launch(size, loop_unroll(graph, size, target))
        return Kernel("in-place-update", launch)
    return Kernel("loop", loop_launch(elements, loop_unroll(graph, elements, target)))


def _is_plain_copy(root: Instruction) -> bool:
    return (
        root.opcode == "copy"
        and root.operands[0].opcode == "parameter"
        and root.operands[0].shape.layout == root.shape.layout
    )


def _updated(root: Instruction) -> Instruction | None:
    """The dynamic-update-slice that a result is, possibly through one bitcast."""
    if root.opcode == "bitcast":
        root = root.operands[0]
    return root if root.opcode == "dynamic-update-slice" else None


def _in_place(update: Instruction, graph: FusedGraph) -> bool:
    """Whether the updated parameter is read only where it is overwritten."""
    users = graph.users(update)
    if len(users) > 1 or any(u.opcode != "bitcast" or graph.users(u) for u in users):
        return False
    source = update.operands[0]
    if source.opcode == "bitcast":
        source = source.operands[0]
    if graph.contains(source):
        return False
    shape = update.operands[1].shape
    seen = {source: None, update: None}
    queue = [source]
    for instruction in queue:
        for user in graph.users(instruction):
            if not _reads_in_step(user, update, shape.element_count):
                return False
            if user not in seen:
                seen[user] = None
                queue.append(user)
    return True


def _reads_in_step(user: Instruction, update: Instruction, elements: int) -> bool:
    if user is update:
        return True
    if (
        user.opcode == "dynamic-slice"
        and user.operands[0] is update.operands[0]
        and user.shape == update.operands[1].shape
    ):
        return elements == 1 or user.operands[1:] == update.operands[2:]
    return is_elementwise(user) or user.opcode in ("bitcast", "tuple")


# -- coalescing ----------------------------------------------------------------


def is_coalesced(graph: FusedGraph, emitter: str) -> bool:
    """Whether neighboring threads read neighboring elements."""
    if emitter == "transpose":
        return True
    return not any(
        _moves_minor(i) and not _comes_from_broadcast(i.operands[0])
        for i in graph.instructions
    )


def _moves_minor(instruction: Instruction) -> bool:
    """Whether the fastest dimension above size one changes."""
    if instruction.opcode not in ("copy", "transpose"):
        return False
    operand, result = instruction.operands[0].shape, instruction.shape
    if not operand.is_array:
        return False

    def sized(shape) -> list[int]:
        return [d for d in minor_to_major(shape) if shape.dimensions[d] > 1]

    before, after = sized(operand), sized(result)
    if not before or not after:
        return False
    if instruction.opcode == "copy":
        return before[0] != after[0]
    return dimensions_of(instruction)[after[0]] != before[0]


def _comes_from_broadcast(instruction: Instruction) -> bool:
    while instruction.opcode not in ("broadcast", "iota"):
        if len(instruction.operands) != 1:
            return False
        if instruction.opcode != "bitcast" and not is_elementwise(instruction):
            return False
        instruction = instruction.operands[0]
    return True
