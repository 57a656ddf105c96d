"""Instructions that a pass removed and reinserted under another name.

    Before:  %all-gather.3 = f32[64]{0} all-gather(%p), channel_id=1, dimensions={0}
    After:   %all-gather = f32[64]{0} all-gather(%p), channel_id=1, dimensions={0}

A collective that was made asynchronous and then synchronous again is an example. If the
text of a new instruction equals that of a removed one, except for name and operands,
the new one takes over its proto. XLA's parser is not needed then, and nothing is lost
that text cannot express. A backend config in JSON that only the new one has is added.
"""

from __future__ import annotations

import re
from typing import Final

from hlo_passes import proto_messages as messages
from hlo_passes import proto_wire as wire
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.proto_messages import ComputationProto, InstructionProto
from hlo_passes.text.printer import instruction_text, operands_text

#: The text between the parentheses: names, as XLA prints them.
OPERANDS: Final = re.compile(r"(?:%[\w.-]+|, |/\*index=\d+\*/)*")

#: Fields that differ between two instructions with the same text.
OF_ITS_PLACE: Final = frozenset(
    (messages.NAME, messages.ID, messages.OPERANDS, messages.CONTROL)
)

#: `  ROOT %name = `, with which a line of XLA's text begins.
NAME: Final = re.compile(r" *(?:ROOT )?%([\w.-]+) = ")

#: The text of these may leave their value out.
_WITHOUT_VALUE: Final = "constant"

_Text = tuple[str, str]
#: Old instructions, and the fields that only a new one has.
_Alike = tuple[list[InstructionProto], dict[int, bytes]]


class GoneInstructions:
    """Instructions that a computation had when it was read and no longer has."""

    def __init__(
        self, computation: Computation, old: ComputationProto, lines: list[str]
    ) -> None:
        """`lines` are the text that the module was read from."""
        kept = {i.name for i in computation.instructions}
        gone = {n: p for n, p in old.instructions.items() if n not in kept}
        self._by_text: dict[_Text, list[InstructionProto]] = {}
        self._known: dict[Instruction, _Alike] = {}
        at = computation.line
        while gone and at < len(lines) and not lines[at].startswith("}"):
            found = NAME.match(lines[at])
            proto = gone.pop(found[1], None) if found else None
            text = proto and _without_names(lines[at], proto.opcode)
            if proto and text:
                self._by_text.setdefault(text, []).append(proto)
            at += 1

    def alike(self, instruction: Instruction) -> list[InstructionProto]:
        """Old ones that differ only in name, operands and a new backend config."""
        return self._alike(instruction)[0]

    def content_of(self, instruction: Instruction) -> dict[int, bytes] | None:
        """Fields by number, all but `OF_ITS_PLACE`; None if it did not come back.

        It is also None if instructions with the same text differ in fields that text
        cannot express.
        """
        same, added = self._alike(instruction)
        contents = [
            {n: i.bytes_of(n) for n in i.fields if n not in OF_ITS_PLACE} for i in same
        ]
        if not same or any(content != contents[0] for content in contents[1:]):
            return None
        return contents[0] | added

    def _alike(self, instruction: Instruction) -> _Alike:
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self._find(instruction)
        return known

    def _find(self, instruction: Instruction) -> _Alike:
        """Old ones with the same text, and fields that they lack."""
        if instruction.opcode == _WITHOUT_VALUE or not instruction.operands:
            return [], {}
        line = instruction_text(instruction)
        spelled = operands_text(instruction, instruction.computation.spelled_elements)
        begin = line.index(f" {instruction.opcode}(") + len(instruction.opcode) + 2
        found = NAME.match(line)
        assert found is not None
        head, tail = line[found.end() : begin], line[begin + len(spelled) :]
        same = self._by_text.get((head, tail))
        if same is not None:
            return same, {}
        config = instruction.attributes.get("backend_config", "")
        if not config.startswith("{"):  # a quoted one has escapes, which XLA reads
            return [], {}
        same = self._by_text.get(
            (head, tail.removesuffix(f", backend_config={config}"))
        )
        written = wire.bytes_field(messages.BACKEND_CONFIG, config.encode())
        return same or [], {messages.BACKEND_CONFIG: written}


def _without_names(line: str, opcode: str) -> _Text | None:
    """The text before and after the operands, without the name."""
    name = NAME.match(line)
    begin = line.find(f" {opcode}(")
    if name is None or begin < 0:
        return None
    begin += len(opcode) + 2
    operands = OPERANDS.match(line, begin)
    assert operands is not None  # it also matches the empty text
    return line[name.end() : begin], line[operands.end() :]
