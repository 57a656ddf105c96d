"""A key that equal instructions share, so that each is priced once.

    %fusion.7 = ... fusion(...), calls=%body.7    same key as    %fusion.9 ... %body.9

if the bodies are equal except for names. Metadata never counts.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES

#: Attributes that do not change the work: where it comes from, names of callees (their
#: bodies count), which slice of an operand is taken (its size counts), identities.
_NO_WORK: Final = frozenset(
    {*CALLEE_ATTRIBUTES, "metadata", "slice", "channel_id", "control-predecessors"}
)


class Fingerprints:
    """Keys of the instructions of one module, while the module is unchanged."""

    def __init__(self) -> None:
        """Start without a module."""
        self._module: Module | None = None
        self._version = -1
        self._bodies: dict[Computation, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[Instruction, Hashable] = {}

    def key(self, instruction: Instruction) -> Hashable:
        """Shapes, opcode and attributes of an instruction, bodies by their content."""
        module = instruction.computation.module
        if module is not self._module or module.version != self._version:
            self._module, self._version = module, module.version
            self._bodies.clear()
            self._keys.clear()
        known = self._keys.get(instruction)
        if known is None:
            known = self._keys[instruction] = self._key(instruction)
        return known

    def _key(self, instruction: Instruction) -> Hashable:
        return (
            instruction.opcode,
            instruction.shape.text,
            *[o.shape.text for o in instruction.operands],
            # A value that is used twice is read once from memory.
            _repetition(instruction),
            instruction.mentions("channel_id")
            and "channel_id" in instruction.attributes,
            instruction.attribute_text(_NO_WORK),
            *map(self._body, instruction.called_computations),
        )

    def _body(self, body: Computation) -> int:
        known = self._bodies.get(body)
        if known is not None:
            return known
        places: dict[Instruction, int] = {}
        rows: list[Hashable] = []
        for k, instruction in enumerate(body.instructions):
            places[instruction] = k
            rows.append(
                (
                    instruction.opcode,
                    instruction.shape.text,
                    instruction.literal if instruction.opcode == "parameter" else None,
                    tuple([places.get(o, -1) for o in instruction.operands]),
                    instruction.attribute_text(_NO_WORK),
                    tuple([self._body(c) for c in instruction.called_computations]),
                )
            )
        key = (places[body.root], tuple(rows))
        number = self._numbers.setdefault(key, len(self._numbers))
        self._bodies[body] = number
        return number


def _repetition(instruction: Instruction) -> Hashable:
    operands = instruction.operands
    if len(operands) < 2 or len(set(operands)) == len(operands):
        return None
    first: dict[Instruction, int] = {}
    return tuple(first.setdefault(o, k) for k, o in enumerate(operands))
