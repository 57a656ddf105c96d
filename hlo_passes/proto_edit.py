"""The proto that a module came from, changed where the module was changed.

    proto ------------------------> text -> Module -> passes -> Module'
      |                                                            |
      `--- bytes of whatever did not change, new bytes for the rest'---> proto'

HLO text does not hold all of an HloModuleProto: shardings of parameters and results,
the device assignment, profiles, payloads, NaN bits and the ids of instructions are
lost on the way through it, large constants are left out of it. So nothing that a pass
left alone is written again. An untouched module keeps its bytes. A computation that was
only reordered has a new schedule and nothing else. An instruction whose text changed
keeps every field in which XLA's protos of its old and its new text agree; one that was
reinserted under another name (proto_came_back.py) keeps them all. A copied constant
whose value is left out gets it from the one that it was copied from. Ids do not change;
new instructions and computations have the next free ones.

XLA reads a `reduce-scatter-start` in the text of a changed module as an async-start
with a computation that has no text. Such a computation is called hidden here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

from hlo_passes import proto_messages as messages
from hlo_passes import proto_wire as wire
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.left_out import LEFT_OUT, LeftOut
from hlo_passes.ir.module import Module
from hlo_passes.proto_came_back import NAME, OPERANDS, GoneInstructions
from hlo_passes.proto_messages import (
    ComputationProto,
    InstructionProto,
    ModuleProto,
    local_id,
)
from hlo_passes.text.printer import instruction_text, operands_text

#: Fields of an instruction that are written from the IR, or by rules of their own.
_REBUILT: Final = frozenset(
    (
        messages.NAME,
        messages.METADATA,
        messages.ID,
        messages.OPERANDS,
        messages.CONTROL,
        messages.CALLED,
    )
)

#: Fields of a module that come from the IR.
_FROM_IR: Final = (
    messages.MODULE_NAME,
    messages.ENTRY_NAME,
    messages.COMPUTATIONS,
    messages.ENTRY_ID,
    messages.SCHEDULE,
)

#: Fields that stay unchanged, whatever XLA's parser makes of them.
_KEPT: Final = frozenset((messages.MODULE_ID, messages.STACK_FRAMES))

#: An instruction's id carries its computation's in the upper half.
_COMPUTATION_SHIFT: Final = 32

#: HLO text -> serialized HloModuleProto, through XLA's parser.
TextToProto = Callable[[str], bytes]


def edited(
    module: Module,
    data: bytes,
    text_to_proto: TextToProto,
    rewritten: Callable[[bytes], bytes],
) -> bytes:
    """The module's proto after the changes.

    Args:
        module: read from the text of `data`, then changed.
        data: the serialized HloModuleProto that it was read from.
        text_to_proto: reads text, for the fields of what is new.
        rewritten: gives the proto that XLA writes of one that it has read.

    Raises:
        UnsupportedHloError: S015, a new constant whose value the text leaves out.
    """
    if module.is_as_read:
        return data
    editor = _Editor(module, data, text_to_proto)
    if not editor.is_named_as_read():
        # XLA renames what text cannot name: go on with the proto that XLA writes.
        editor = _Editor(module, rewritten(data), text_to_proto)
    return editor.module()


class _Editor:
    """Assembles the bytes of one changed module."""

    def __init__(self, module: Module, data: bytes, text_to_proto: TextToProto) -> None:
        assert module.source is not None
        self.now = module
        self.old = ModuleProto(data)
        self._source_text = module.source.text
        self._text_to_proto = text_to_proto
        self._ids = {name: c.id for name, c in self.old.computations.items()}
        self._shown = dict.fromkeys(c.name for c in module.computations)
        for name in self._shown:
            self._new_id(name)
        self._instruction_ids: dict[Computation, dict[Instruction, int]] = {}
        self._gone: dict[Computation, GoneInstructions] = {}
        self._computations: list[bytes] = []
        self._sequences: list[bytes] = []

    def module(self) -> bytes:
        """The whole proto."""
        for computation in self._in_proto_order():
            self._add(computation)
        entry = self.now.entry.name
        fields = self._header_fields()
        fields |= {
            messages.MODULE_NAME: wire.bytes_field(
                messages.MODULE_NAME, self.now.name.encode()
            ),
            messages.ENTRY_NAME: wire.bytes_field(messages.ENTRY_NAME, entry.encode()),
            messages.COMPUTATIONS: b"".join(self._computations),
            messages.ENTRY_ID: wire.varint_field(messages.ENTRY_ID, self._ids[entry]),
        }
        if self.now.is_scheduled:
            fields[messages.SCHEDULE] = wire.bytes_field(
                messages.SCHEDULE, b"".join(self._sequences)
            )
        return messages.in_order(fields)

    def is_named_as_read(self) -> bool:
        """Whether the proto and the text that was read agree on names.

        Only those are asked of which something is written: names say which id each
        instruction has. The others keep their bytes.
        """
        lines = self._source_lines
        for computation in self.now.computations:
            old = self.old.computations.get(computation.name)
            if old is None or not self._is_written(computation):
                continue
            names = dict.fromkeys(old.instructions)
            at = computation.line
            while at < len(lines) and not lines[at].startswith("}"):
                found = NAME.match(lines[at])
                if found and names.pop(found[1], found[1]) is not None:
                    return False
                at += 1
            if names:
                return False
        return True

    def _is_written(self, computation: Computation) -> bool:
        """Whether new bytes are written of it, its first order included."""
        return computation.touched or (self.now.is_scheduled and not self.old.sequences)

    def _in_proto_order(self) -> list[Computation]:
        """Computations in the order that the proto had, callees before callers.

        Only a computation that was changed can call what came after it, or is new.
        """
        rank = {name: k for k, name in enumerate(self.old.computations)}
        order: dict[Computation, None] = {}
        for first in sorted(
            self.now.computations, key=lambda c: rank.get(c.name, len(rank))
        ):
            # Explicit stack: (computation, whether its callees are in the order).
            stack = [(first, False)]
            while stack:
                computation, ready = stack.pop()
                if computation in order:
                    continue
                if ready or not computation.touched:
                    order[computation] = None
                    continue
                stack.append((computation, True))
                for instruction in reversed(computation.instructions):
                    callees = reversed(instruction.called_computations)
                    stack += [(callee, False) for callee in callees]
        return list(order)

    # -- the module's text, old and new, as XLA reads it ---------------------

    @cached_property
    def _written(self) -> ModuleProto:
        return ModuleProto(self._text_to_proto(self.now.to_text()))

    @cached_property
    def _read(self) -> ModuleProto:
        return ModuleProto(self._text_to_proto(self._source_text))

    @cached_property
    def _written_instructions(self) -> dict[Instruction, InstructionProto]:
        """XLA's protos of the instructions as they are now.

        XLA's parser numbers instructions in the order of the text. It renames some
        (those whose name a hidden computation took first), so names do not identify
        them.
        """
        table = {}
        for computation in self.now.computations:
            if computation.touched:
                protos = _in_text_order(self._written.computations[computation.name])
                table.update(zip(computation.instructions, protos, strict=True))
        return table

    @cached_property
    def _read_instructions(self) -> dict[tuple[str, str], InstructionProto]:
        """XLA's protos of the instructions as they were, by computation and name."""
        table = {}
        for computation in self.now.computations:
            old = self.old.computations.get(computation.name)
            if computation.touched and old is not None:
                protos = _in_text_order(self._read.computations[old.name])
                names = (i.name for i in self.old.sequence(old))
                for name, proto in zip(names, protos, strict=True):
                    table[old.name, name] = proto
        return table

    # -- header -------------------------------------------------------------

    def _header_fields(self) -> dict[int, bytes]:
        """All fields except those that come from the IR."""
        before, after = self.old, self.old
        if self.now.header_touched:
            before, after = self._read, self._written
        numbers = dict.fromkeys((*self.old.fields, *before.fields, *after.fields))
        kept = {}
        for number in numbers:
            if number in _FROM_IR:
                continue
            new = after.bytes_of(number)
            same = number in _KEPT or new == before.bytes_of(number)
            kept[number] = self.old.bytes_of(number) if same else new
        return kept

    # -- computations -------------------------------------------------------

    def _new_id(self, name: str) -> int:
        """The id of a computation; the next free one for a name that is new."""
        if name not in self._ids:
            self._ids[name] = max(self._ids.values(), default=0) + 1
        return self._ids[name]

    def _add(self, computation: Computation) -> None:
        """Add a computation and its sequence, after the hidden ones that it calls."""
        name = computation.name
        old = self.old.computations.get(name)
        if old is not None and (
            not computation.touched or _is_only_reordered(computation, old)
        ):
            self._computations.append(old.whole)
        else:
            self._computations.append(self._rewritten(computation, old))
        if not self.now.is_scheduled:
            return
        sequence = self.old.sequences.get(self._ids[name])
        if sequence is not None and not computation.touched:
            self._sequences.append(self.old.data[sequence.start : sequence.end])
        elif sequence is not None or self._is_newly_scheduled(computation):
            ids = self._ids_of_instructions(computation)
            order = [ids[i] for i in computation.instructions]
            self._sequences.append(_sequence(self._ids[name], order))

    def _rewritten(
        self, computation: Computation, old: ComputationProto | None
    ) -> bytes:
        ids = self._ids_of_instructions(computation)
        instructions = [
            self._instruction(i, old, ids) for i in computation.instructions
        ]
        signed = old
        if old is None or not self._is_signed_as(computation, old):
            signed = self._written.computations[computation.name]
        assert signed is not None
        return _computation(
            computation.name,
            instructions,
            number=self._ids[computation.name],
            root=ids[computation.root],
            signed=signed,
            other_fields=old or signed,
        )

    def _is_signed_as(self, computation: Computation, old: ComputationProto) -> bool:
        """Whether parameters and root are unchanged."""
        if computation.source_head is not None:
            return True
        parameters = [i for i in computation.instructions if i.opcode == "parameter"]
        before = [i for i in old.instructions.values() if i.opcode == "parameter"]
        if {p.name for p in parameters if p.is_as_read} != {
            p.name for p in before
        } or len(parameters) != len(before):
            return False
        alike = self._gone_from(computation, old).alike(computation.root)
        root = local_id(old.root_id)
        return any(local_id(proto.id) == root for proto in alike)

    def _ids_of_instructions(self, computation: Computation) -> dict[Instruction, int]:
        known = self._instruction_ids.get(computation)
        if known is not None:
            return known
        old = self.old.computations.get(computation.name)
        given = {n: p.id for n, p in old.instructions.items()} if old else {}
        first = self._ids[computation.name] << _COMPUTATION_SHIFT
        largest = max(given.values(), default=first)
        upper = largest - local_id(largest)
        free = 1 + max(map(local_id, given.values()), default=-1)
        ids: dict[Instruction, int] = {}
        for instruction in computation.instructions:
            number = given.get(instruction.name)
            if number is None:
                number = upper + free
                free += 1
            ids[instruction] = number
        self._instruction_ids[computation] = ids
        return ids

    def _is_newly_scheduled(self, computation: Computation) -> bool:
        if self.old.sequences and computation.name in self.old.computations:
            return False
        written = self._written
        return written.computations[computation.name].id in written.sequences

    # -- hidden computations ------------------------------------------------

    def _add_hidden(self, hidden: ComputationProto) -> int:
        """Add a hidden computation that XLA's parser made; its id here."""
        name = _fresh(hidden.name, self._ids)
        number = self._new_id(name)
        first = number << _COMPUTATION_SHIFT
        ids = {p.id: first + k for k, p in enumerate(hidden.instructions.values())}
        instructions = []
        for proto in hidden.instructions.values():
            name_here = self._hidden_name(proto.name)
            operands = [ids[o] for o in proto.operands]
            content = _but_rebuilt(proto) | {
                messages.NAME: wire.bytes_field(messages.NAME, name_here.encode()),
                messages.METADATA: self._written.metadata_of(proto, self.old),
                messages.ID: wire.varint_field(messages.ID, ids[proto.id]),
                messages.OPERANDS: wire.packed_field(messages.OPERANDS, operands),
                messages.CALLED: wire.packed_field(
                    messages.CALLED, self._called_ids(proto)
                ),
            }
            instructions.append(
                wire.bytes_field(messages.INSTRUCTIONS, messages.in_order(content))
            )
        self._computations.append(
            _computation(
                name,
                instructions,
                number=number,
                root=ids[hidden.root_id],
                signed=hidden,
                other_fields=hidden,
            )
        )
        if hidden.id in self._written.sequences:
            self._sequences.append(_sequence(number, list(ids.values())))
        return number

    @cached_property
    def _names_taken(self) -> dict[str, None]:
        """Names of all instructions, given to hidden ones included."""
        names = (i.name for c in self.now.computations for i in c.instructions)
        return dict.fromkeys(names)

    def _hidden_name(self, stem: str) -> str:
        name = _fresh(stem, self._names_taken)
        self._names_taken[name] = None
        return name

    # -- instructions -------------------------------------------------------

    def _instruction(
        self,
        instruction: Instruction,
        old_computation: ComputationProto | None,
        ids: dict[Instruction, int],
    ) -> bytes:
        name = instruction.name
        old = old_computation and old_computation.instructions.get(name)
        # An instruction that did not change keeps its bytes; one with other operands
        # keeps all others.
        if old is not None and instruction.is_as_read:
            return old.whole
        if old is not None and self._reads_others(instruction):
            content = {number: old.bytes_of(number) for number in old.fields}
            content[messages.OPERANDS] = wire.packed_field(
                messages.OPERANDS, [ids[o] for o in instruction.operands]
            )
            return wire.bytes_field(messages.INSTRUCTIONS, messages.in_order(content))
        # A new one with the text of one that was removed takes over its fields.
        if old is None and old_computation is not None:
            gone = self._gone_from(instruction.computation, old_computation)
            content = gone.content_of(instruction)
            if content is not None and self._calls_shown(gone.alike(instruction)[0]):
                content |= self._place_fields(instruction, ids)
                return wire.bytes_field(
                    messages.INSTRUCTIONS, messages.in_order(content)
                )
        # Otherwise XLA's parser has read its text; what text cannot say comes from the
        # old one, if the opcode is the same.
        new = self._written_instructions[instruction]
        metadata = self._written.metadata_of(new, self.old)
        value = self._left_out_value(instruction, new)
        if value is not None:
            content = _but_rebuilt(new) | {messages.LITERAL: value}
        elif old is not None and old.bytes_of(messages.OPCODE) == new.bytes_of(
            messages.OPCODE
        ):
            before = self._read_instructions[instruction.computation.name, name]
            content = _merged(old, before, new)
            if metadata == self._read.metadata_of(before, self.old):
                metadata = old.bytes_of(messages.METADATA)
        else:
            _require_value(instruction)
            content = _but_rebuilt(new)
        content |= self._place_fields(instruction, ids)
        content |= {
            messages.METADATA: metadata,
            messages.CALLED: wire.packed_field(messages.CALLED, self._called_ids(new)),
        }
        return wire.bytes_field(messages.INSTRUCTIONS, messages.in_order(content))

    def _left_out_value(
        self, instruction: Instruction, new: InstructionProto
    ) -> bytes | None:
        """The literal of a copied constant that text leaves out; None for others."""
        literal = instruction.literal
        if instruction.opcode != "constant" or not isinstance(literal, LeftOut):
            return None
        place = literal.computation, literal.constant
        if place == (instruction.computation.name, instruction.name):
            return None
        before = self._read_instructions[place]
        if before.bytes_of(messages.RESULT) != new.bytes_of(messages.RESULT):
            return None
        source = self.old.computations[literal.computation]
        return source.instructions[literal.constant].bytes_of(messages.LITERAL)

    def _reads_others(self, instruction: Instruction) -> bool:
        """Whether only its operands changed, as far as its text shows."""
        if not instruction.line or not instruction.operands:
            return False
        now = instruction_text(instruction)
        was = self._source_lines[instruction.line - 1]
        start = now.index(f" {instruction.opcode}(") + len(instruction.opcode) + 2
        end = start + len(operands_text(instruction, {}))
        tail = now[end:]
        return (
            was.startswith(now[:start])
            and was.endswith(tail)
            and OPERANDS.fullmatch(was, start, len(was) - len(tail)) is not None
        )

    def _gone_from(
        self, computation: Computation, old: ComputationProto
    ) -> GoneInstructions:
        known = self._gone.get(computation)
        if known is None:
            known = GoneInstructions(computation, old, self._source_lines)
            self._gone[computation] = known
        return known

    def _calls_shown(self, proto: InstructionProto) -> bool:
        """Whether the text shows all computations that an old instruction calls."""
        computations = self.old.computations_by_id
        return all(computations[number].name in self._shown for number in proto.called)

    def _place_fields(
        self, instruction: Instruction, ids: dict[Instruction, int]
    ) -> dict[int, bytes]:
        """Name, id and edges of an instruction, from the IR."""
        operands = [ids[o] for o in instruction.operands]
        predecessors = [ids[p] for p in instruction.control_predecessors]
        name = instruction.name.encode()
        return {
            messages.NAME: wire.bytes_field(messages.NAME, name),
            messages.ID: wire.varint_field(messages.ID, ids[instruction]),
            messages.OPERANDS: wire.packed_field(messages.OPERANDS, operands),
            messages.CONTROL: wire.packed_field(messages.CONTROL, predecessors),
        }

    @cached_property
    def _source_lines(self) -> list[str]:
        return self._source_text.split("\n")

    def _called_ids(self, written: InstructionProto) -> list[int]:
        """The ids of computations that a written instruction calls, in XLA's order."""
        numbers = []
        for called in written.called:
            callee = self._written.computations_by_id[called]
            if callee.name in self._shown:
                numbers.append(self._ids[callee.name])
            else:
                numbers.append(self._add_hidden(callee))
        return numbers


def _computation(
    name: str,
    instructions: Sequence[bytes],
    *,
    number: int,
    root: int,
    signed: ComputationProto,
    other_fields: ComputationProto,
) -> bytes:
    body = [
        wire.bytes_field(messages.COMPUTATION_NAME, name.encode()),
        *instructions,
        signed.bytes_of(messages.SHAPE),
        wire.varint_field(messages.COMPUTATION_ID, number),
        wire.varint_field(messages.ROOT_ID, root),
        other_fields.bytes_of(messages.IS_FUSION),
        other_fields.bytes_of(messages.THREAD),
    ]
    return wire.bytes_field(messages.COMPUTATIONS, b"".join(body))


def _sequence(computation_id: int, order: Sequence[int]) -> bytes:
    """An entry of the schedule."""
    entry = wire.varint_field(messages.KEY, computation_id, always=True)
    ids = wire.packed_field(messages.INSTRUCTION_IDS, order)
    entry += wire.bytes_field(messages.VALUE, ids)
    return wire.bytes_field(messages.SEQUENCES, entry)


def _in_text_order(computation: ComputationProto) -> list[InstructionProto]:
    """Instructions of a computation that XLA's parser made, in text order."""
    return sorted(computation.instructions.values(), key=lambda i: i.id)


def _fresh(stem: str, taken: Iterable[str]) -> str:
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}.{number}"
    return name


def _require_value(instruction: Instruction) -> None:
    if instruction.opcode == "constant" and LEFT_OUT in (instruction.literal or ""):
        raise UnsupportedHloError(
            f"%{instruction.name} is new and its value is not written out",
            code="S015",
            hint="a pass must keep the constants it was given",
        )


def _but_rebuilt(proto: InstructionProto) -> dict[int, bytes]:
    return {n: proto.bytes_of(n) for n in proto.fields if n not in _REBUILT}


def _is_only_reordered(computation: Computation, old: ComputationProto) -> bool:
    """Whether it has the same untouched instructions, in whatever order."""
    instructions = computation.instructions
    known = old.instructions
    return len(instructions) == len(known) and all(
        i.is_as_read and i.name in known for i in instructions
    )


def _merged(
    old: InstructionProto, before: InstructionProto, new: InstructionProto
) -> dict[int, bytes]:
    """Fields of `old`, except those in which `new` differs from `before`."""
    config = messages.BACKEND_CONFIG
    configured = before.bytes_of(config) != new.bytes_of(config)
    content = {}
    for number in (*old.fields, *before.fields, *new.fields):
        if number in _REBUILT:
            continue
        value = new.bytes_of(number)
        same = value == before.bytes_of(number)
        if number == messages.BACKEND_CONFIG_PAYLOAD:
            same = not configured
        content[number] = old.bytes_of(number) if same else value
    return content
