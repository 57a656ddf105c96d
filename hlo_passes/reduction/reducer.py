"""Finds, step by step, the smallest module for which a predicate still holds.

    reduce_module(module, fails)

    instructions   in halves, quarters, ...: what is removed becomes a parameter
    results        fewer of them
    computations   a callee's body alone; calls and loops are removed with their
    instruction by-passes      an operand of the same shape in place of an instruction
    decorations    metadata, shardings, frontend attributes, backend configs sizes
    smaller arrays

Every step proposes modules; the first for which the predicate holds is the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.reduction.extract import DECORATION, extract, whole
from hlo_passes.reduction.shrink import element_count, is_small, shrunk

Predicate = Callable[[Module], bool]
_ATTRIBUTES: Final = (*sorted(DECORATION), "frontend_attributes", "backend_config")


def reduce_module(module: Module, fails: Predicate) -> Module:
    """The smallest module found for which `fails` holds; it must hold for `module`."""
    while True:
        size = _size(module)
        for step in (_bodies, _fewer, _results, _bypassed, _undecorated, _smaller):
            module = _take(module, step, fails)
        if _size(module) >= size:
            return module


def _size(module: Module) -> tuple[int, int, int]:
    """The measure of a module: instructions, elements, characters."""
    return (
        module.instruction_count,
        element_count(module),
        len(module.to_canonical_text()),
    )


def _take(
    module: Module,
    step: Callable[[Module], Iterator[Module | None]],
    fails: Predicate,
) -> Module:
    """Apply a step as long as it finds something smaller."""
    found = True
    while found:
        found = False
        size = _size(module)
        for candidate in step(module):
            if candidate is not None and _size(candidate) < size and fails(candidate):
                module, found = candidate, True
                break
    return module


def _work(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode != "parameter"]


def _outputs(module: Module) -> list[Instruction]:
    """Whose values are the result: elements of a tuple at the root, or the root."""
    root = module.entry.root
    if root.opcode == "tuple" and root.operands:
        return [o for o in dict.fromkeys(root.operands) if o.opcode != "parameter"]
    return [root]


def _bodies(module: Module) -> Iterator[Module | None]:
    """A computation that the entry calls, alone: the fault may be inside."""
    graph = build_call_graph(module)
    for computation in graph.post_order:
        callers = graph.callers_of(computation)
        if callers and all(map(runs_callees, callers)):
            keep = [i for i in computation.instructions if i.opcode != "parameter"]
            yield extract(module, computation, keep)


def _fewer(module: Module) -> Iterator[Module | None]:
    """Without a half, a quarter, ... of the instructions of the entry."""
    work = _work(module)
    length = max(1, len(work) // 2)
    while True:
        for at in range(0, len(work), length):
            gone = set(work[at : at + length])
            yield extract(module, module.entry, [i for i in work if i not in gone])
            # The other way around: these alone.
            if length > 1:
                yield extract(module, module.entry, gone)
        if length == 1:
            return
        length = max(1, length // 2)


def _results(module: Module) -> Iterator[Module | None]:
    """Fewer results, without what only the others need."""
    outputs = _outputs(module)
    length = max(1, len(outputs) // 2)
    while len(outputs) > 1:
        for at in range(0, len(outputs), length):
            some = outputs[at : at + length]
            yield extract(module, module.entry, _needed(some), some)
        if length == 1:
            return
        length = max(1, length // 2)


def _needed(outputs: list[Instruction]) -> list[Instruction]:
    """What the outputs depend on, themselves included."""
    seen = dict.fromkeys(outputs)
    for instruction in list(seen):
        work = [instruction]
        while work:
            for operand in work.pop().operands:
                if operand not in seen:
                    seen[operand] = None
                    work.append(operand)
    return list(seen)


def _bypassed(module: Module) -> Iterator[Module | None]:
    """One instruction less: its users read an operand of its shape."""
    for instruction in reversed(_work(module)):
        for operand in dict.fromkeys(instruction.operands):
            if operand.shape.compatible(instruction.shape):
                yield _without(module, instruction, operand)


def _without(
    module: Module, instruction: Instruction, operand: Instruction
) -> Module | None:
    copy = whole(module)
    if copy is None:
        return None
    gone, instead = (copy.entry.find(i.name) for i in (instruction, operand))
    if gone is None or instead is None:
        return None
    copy.entry.drop_control_edges(gone)
    copy.entry.replace_uses(gone, instead)
    return extract(copy, copy.entry, [i for i in _work(copy) if i is not gone])


def _undecorated(module: Module) -> Iterator[Module | None]:
    """Without attributes that say nothing about values."""
    yield whole(module, drop=_ATTRIBUTES)
    for name in _ATTRIBUTES:
        yield whole(module, drop=(name,))


def _smaller(module: Module) -> Iterator[Module | None]:
    if not is_small(module):
        yield from shrunk(module)
