"""Collectives that XLA:TPU cuts into fusions, so that products run beside them.

    %s = (...) fusion(%x), calls=%begins          all-gather, then AsyncCollectiveStart
    %f = (...) fusion(..., %y, %z), calls=%both   a product, and the same all-gather
    %d = ... fusion(...), calls=%ends             all-gather, then AsyncCollectiveDone

The three hold one all-gather. It is in flight from %s to %d, as if they were its start
and done, and what runs between them is computed meanwhile. %d belongs to the %s that
its operands come from, through tuples, loops and fusions that pass them on.
v5e does that to its all-gathers, after its scheduler (`docs/tpu.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

Half = Literal["", "start", "done"]
_HALVES: Final[dict[str, Half]] = {
    '"AsyncCollectiveStart"': "start",
    '"AsyncCollectiveDone"': "done",
}


@dataclass(slots=True)
class Continuations:
    """The collectives of one computation that are fusions.

    Attributes:
        done_of: the fusion that ends one, by the fusion that begins it.
        start_of: the other way round.
        between: fusions that pass one on, and compute beside it.
        alone: fusions that begin or end one whose other half is not here.
    """

    done_of: dict[Instruction, Instruction] = field(default_factory=dict)
    start_of: dict[Instruction, Instruction] = field(default_factory=dict)
    between: set[Instruction] = field(default_factory=set)
    alone: dict[Instruction, Half] = field(default_factory=dict)

    def __contains__(self, fusion: Instruction) -> bool:
        """Whether a fusion begins or ends a collective."""
        return fusion in self.done_of or fusion in self.start_of or fusion in self.alone


def continuations(computation: Computation) -> Continuations:
    """Fusions of a computation that begin and end a collective, in pairs.

    Complexity: linear in the computation and in the bodies of its fusions, as long as
    a fusion passes on a few collectives.
    """
    found = Continuations()
    for instruction in computation.instructions:
        half = half_of_cut(instruction)
        if half == "start":
            found.alone[instruction] = half
        elif half == "done":
            start, passed = _origin(instruction)
            if found.alone.get(start) == "start":
                del found.alone[start]
                found.done_of[start], found.start_of[instruction] = instruction, start
                found.between |= passed
            else:
                found.alone[instruction] = half
    return found


def half_of_cut(fusion: Instruction) -> Half:
    """Whether a fusion begins or ends a collective; '' for anything else."""
    if fusion.opcode != "fusion" or not fusion.mentions("kCustom"):
        return ""
    for body in fusion.called_computations:
        for instruction in body.instructions:
            if instruction.opcode == "custom-call":
                target = instruction.attributes.get("custom_call_target", "")
                if target in _HALVES:
                    return _HALVES[target]
    return ""


def _origin(end: Instruction) -> tuple[Instruction, set[Instruction]]:
    """The fusion where the first operand of an end comes from, and those between."""
    passed: set[Instruction] = set()
    value: Instruction = end
    before, path = end.operands[0] if end.operands else None, ()
    while before is not None:
        if value.opcode == "fusion" and value is not end:
            passed.add(value)
        value = before
        before, path = _passed_on(value, path)
    return value, passed


def _passed_on(
    value: Instruction, path: tuple[int, ...]
) -> tuple[Instruction | None, tuple[int, ...]]:
    """Where an element of a result comes from unchanged; None if it is made here."""
    operands, opcode = value.operands, value.opcode
    if not operands:
        return None, ()
    if opcode == "get-tuple-element":
        return operands[0], (value.tuple_index, *path)
    if opcode in ("while", "bitcast", "opt-barrier"):
        return operands[0], path
    if not path:
        return None, ()
    if opcode == "tuple" and path[0] < len(operands):
        return operands[path[0]], path[1:]
    if opcode == "fusion" and value.called_computations:
        root = value.called_computations[0].root
        if root.opcode == "tuple" and path[0] < len(root.operands):
            inner = root.operands[path[0]]
            number = inner.parameter_number if inner.opcode == "parameter" else -1
            if 0 <= number < len(operands):
                return operands[number], path[1:]
    return None, ()
