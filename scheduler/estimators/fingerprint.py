"""A key that equal instructions share, so that each is priced once.

    %fusion.7 = ... fusion(...), calls=%body.7    same key as    %fusion.9 ... %body.9

when the bodies are the same but for names. Metadata never counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

#: What does not change the work: where it comes from, names of callees (their bodies
#: count), which slice of an operand is taken (its size counts), identities.
_NO_WORK: Final = re.compile(
    r", (?:metadata=\{[^{}]*\}"
    r"|(?:to_apply|calls|body|condition|select|scatter)=%?[^\s,{}]+"
    r"|slice=\{[^{}]*\}"
    r"|channel_id=\d+"
    r"|control-predecessors=\{[^{}]*\})"
)
_HAS_CHANNEL: Final = "channel_id="


class Fingerprints:
    """Keys of the instructions of one module, as long as the module is unchanged."""

    def __init__(self) -> None:
        """No module seen yet."""
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
        text = attribute_text(instruction)
        return (
            instruction.opcode,
            instruction.shape.text,
            *(o.shape.text for o in instruction.operands),
            # The same value twice is read once from memory.
            _repetition(instruction),
            _HAS_CHANNEL in text,
            _strip(text),
            *map(self._body, self._callees(instruction, text)),
        )

    @staticmethod
    def _callees(instruction: Instruction, text: str) -> tuple[Computation, ...]:
        if "=%" not in text and "to_apply" not in text and "calls" not in text:
            return ()
        return instruction.called_computations

    def _body(self, body: Computation) -> int:
        known = self._bodies.get(body)
        if known is not None:
            return known
        places: dict[Instruction, int] = {}
        rows: list[Hashable] = []
        for k, instruction in enumerate(body.instructions):
            places[instruction] = k
            text = attribute_text(instruction)
            callees = self._callees(instruction, text) if text else ()
            rows.append(
                (
                    instruction.opcode,
                    instruction.shape.text,
                    instruction.literal if instruction.opcode == "parameter" else None,
                    tuple([places.get(o, -1) for o in instruction.operands]),
                    _strip(text) if text else "",
                    tuple([self._body(c) for c in callees]),
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


def attribute_text(instruction: Instruction) -> str:
    """The attributes as they stand in the text, when nobody has touched them."""
    if instruction._attributes is None or instruction._text is not None:
        return instruction._tail
    return "".join(f", {n}={v}" for n, v in instruction._attributes.items())


@functools.lru_cache(maxsize=1 << 16)
def _strip(text: str) -> str:
    return _NO_WORK.sub("", text) if "=" in text else text
