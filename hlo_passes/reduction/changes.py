"""What a pass changed, as parts of the module before it.

changed_instructions(before, after)     by computation: changed, merged, removed
slices(before, after)                   modules around them, small and large
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.reduction.extract import DECORATION, extract
from hlo_passes.reduction.shrink import is_small, shrunk

#: How many operands and users away from the changed instructions a slice reaches.
_REACHES = (1, 0, 2)


def changed_instructions(
    before: Module, after: Module
) -> dict[Computation, list[Instruction]]:
    """Instructions of `before` that were changed or removed."""
    found: dict[Computation, list[Instruction]] = {}
    for computation in before.computations:
        other = after.computation(computation.name)
        theirs = {} if other is None else {i.name: i for i in other.instructions}
        for instruction in computation.instructions:
            twin = theirs.get(instruction.name)
            if twin is None or _says(instruction) != _says(twin):
                found.setdefault(computation, []).append(instruction)
    return found


def _says(instruction: Instruction) -> tuple[object, ...]:
    return (
        instruction.opcode,
        instruction.shape.text,
        tuple(o.name for o in instruction.operands),
        instruction.literal,
        tuple(
            (name, text)
            for name, text in instruction.attributes.items()
            if name not in DECORATION
        ),
    )


def slices(before: Module, after: Module) -> Iterator[Module]:
    """Modules around what changed: all of a computation's changes, halves, quarters.

    Arrays are made small where the text allows it; nothing runs for that.
    """
    parts = list(changed_instructions(before, after).items())
    while parts:
        smaller: list[tuple[Computation, list[Instruction]]] = []
        for computation, changed in parts:
            for reach in _REACHES:
                keep = _around(changed, reach)
                module = extract(before, computation, keep, drop=DECORATION)
                if module is not None:
                    yield smallest(module)
            if len(changed) > 1:
                half = len(changed) // 2
                smaller.append((computation, changed[:half]))
                smaller.append((computation, changed[half:]))
        parts = smaller


def smallest(module: Module) -> Module:
    """The module with arrays as small as the verifier lets them be."""
    while not is_small(module):
        following = next(shrunk(module), None)
        if following is None:
            return module
        module = following
    return module


def _around(changed: list[Instruction], reach: int) -> set[Instruction]:
    found = set(changed)
    for _ in range(reach):
        found |= {o for i in found for o in i.operands}
        found |= {u for i in found for u in i.users}
    return found
