"""HloModuleProto as bytes: the places of its computations, instructions and frames.

    module = ModuleProto(data)
    module.computations["main"].instructions["add.1"].bytes_of(OPERANDS)

Only what proto_edit.py asks for is decoded; all other field values stay bytes.

Source: openxla/xla `xla/service/hlo.proto` and `xla/xla_data.proto` (field numbers),
`xla/service/computation_placer.cc` (the device assignment of a module without one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from hlo_passes import proto_wire as wire
from hlo_passes.errors import ParseError
from hlo_passes.proto_wire import Field
from hlo_passes.source import Location

_T = TypeVar("_T")

# HloProto
HELD_MODULE = 1
# HloModuleProto
MODULE_NAME, ENTRY_NAME, COMPUTATIONS, MODULE_ID, ENTRY_ID, SCHEDULE = 1, 2, 3, 5, 6, 7
INPUT_OUTPUT_ALIAS, DEVICE_ASSIGNMENT, STACK_FRAMES = 8, 15, 17
_SPMD_OUTPUT_SHARDING = 12
#: Fields that an HloProto does not have; its 3 is the buffer assignment.
MODULE_ONLY = frozenset(range(2, 32)) - {3}
# HloComputationProto
COMPUTATION_NAME, INSTRUCTIONS, SHAPE, COMPUTATION_ID, ROOT_ID = 1, 2, 4, 5, 6
IS_FUSION, THREAD = 7, 8
# HloInstructionProto
NAME, OPCODE, RESULT, METADATA, LITERAL = 1, 2, 3, 7, 8
ID, OPERANDS, CONTROL, CALLED = 35, 36, 37, 38
BACKEND_CONFIG, BACKEND_CONFIG_PAYLOAD = 43, 99
# HloScheduleProto, its map of computation id -> InstructionSequence
SEQUENCES, KEY, VALUE, INSTRUCTION_IDS = 1, 1, 2, 1
# DeviceAssignmentProto
_REPLICA_COUNT, _COMPUTATION_COUNT, _COMPUTATION_DEVICES = 1, 2, 3
_REPLICA_DEVICE_IDS = 1
# OpMetadata
_STACK_FRAME_ID = 15
# StackFrameIndexProto, its FileLocation and StackFrame
_FILE_NAMES, _FUNCTION_NAMES, _FILE_LOCATIONS, _FRAMES = 1, 2, 3, 4
_LOCATION_FILE, _LOCATION_FUNCTION, _LOCATION_PLACE = 1, 2, (3, 4, 5, 6)
_FRAME_LOCATION, _FRAME_PARENT = 1, 2

#: The key of field 1, a string.
_OPENS_WITH_NAME = bytes([NAME << 3 | wire.LENGTH_DELIMITED])

#: The opcode field of a generic async-start, whole.
_ASYNC_START = wire.bytes_field(OPCODE, b"async-start")

#: An instruction that keeps XLA's printer from leaving out its computation: its name,
#: and its shape, a ShapeProto with the element type TOKEN.
_STOPPER = "hlo_passes_printed"
_TOKEN = wire.varint_field(2, 17)

#: The contents of a frame: file, function, lines and columns, the frame around it.
Frame = tuple[object, ...]


def by_number(found: Sequence[Field]) -> dict[int, list[Field]]:
    """Fields by their number, in order."""
    table: dict[int, list[Field]] = {}
    for field in found:
        number = field[0]
        if number in table:
            table[number].append(field)
        else:
            table[number] = [field]
    return table


def _row(table: Sequence[_T], number: int, missing: _T) -> _T:
    """A row of a table of stack frames, whose numbers begin with 1.

    XLA takes a row that is not there for an empty one.
    """
    return table[number - 1] if 1 <= number <= len(table) else missing


def _whole(data: bytes, places: Sequence[Field]) -> bytes:
    """Fields as they are in the bytes, keys included."""
    if len(places) == 1:
        return data[places[0].start : places[0].end]
    return b"".join([data[f.start : f.end] for f in places])


def _number(data: bytes, table: dict[int, list[Field]], number: int) -> int:
    """An integer field, of several the last; 0 where it is not there."""
    found = [f for f in table.get(number, ()) if f.wire_type == wire.VARINT]
    return wire.varint(data, found[-1].value)[0] if found else 0


def opening_name(data: bytes, at: int = 0) -> str:
    """The name of a module, computation or instruction that starts at an offset.

    It is field 1 of all of them, and XLA writes fields in order; '' without one.
    """
    if data[at : at + 1] != _OPENS_WITH_NAME:
        return ""
    length, start = wire.varint(data, at + 1)
    return data[start : start + length].decode(errors="replace")


def device_counts(data: bytes) -> tuple[int, int]:
    """Replicas and partitions of a module's device assignment; (1, 1) without one."""
    table = _device_assignment(data)
    replicas = _number(data, table, _REPLICA_COUNT)
    return replicas or 1, _number(data, table, _COMPUTATION_COUNT) or 1


def says_partitioned(data: bytes) -> bool:
    """Whether the partitioner noted in a module that it has divided it.

    XLA's text leaves the note out, and so does a proto made from text.
    """
    return any(field.number == _SPMD_OUTPUT_SHARDING for field in wire.fields(data))


def with_device_counts(data: bytes, replicas: int, partitions: int) -> bytes:
    """The module with XLA's own device assignment of so many; without one for 1 x 1.

    Partition p of replica r runs on device p * replicas + r.
    """
    table = by_number(wire.fields(data))
    fields = {n: _whole(data, f) for n, f in table.items() if n != DEVICE_ASSIGNMENT}
    if replicas * partitions > 1:
        assignment = wire.varint_field(_REPLICA_COUNT, replicas)
        assignment += wire.varint_field(_COMPUTATION_COUNT, partitions)
        assignment += b"".join(
            wire.bytes_field(
                _COMPUTATION_DEVICES,
                wire.packed_field(_REPLICA_DEVICE_IDS, range(first, first + replicas)),
            )
            for first in range(0, replicas * partitions, replicas)
        )
        fields[DEVICE_ASSIGNMENT] = wire.bytes_field(DEVICE_ASSIGNMENT, assignment)
    return in_order(fields)


def in_order(fields: dict[int, bytes]) -> bytes:
    """Fields, keys included, by their numbers, as XLA writes them."""
    return b"".join([fields[number] for number in sorted(fields)])


def device_ids(data: bytes) -> list[int]:
    """Ids of the devices that a module runs on; none without a device assignment."""
    ids = []
    for partition in wire.held(_device_assignment(data).get(_COMPUTATION_DEVICES, ())):
        table = by_number(wire.fields(data, partition.value, partition.end))
        ids += wire.numbers(data, table.get(_REPLICA_DEVICE_IDS, ()))
    return ids


def _device_assignment(data: bytes) -> dict[int, list[Field]]:
    # Several of one message are one, with the fields of all.
    parts: list[Field] = []
    for field in wire.held(wire.fields(data)):
        if field.number == DEVICE_ASSIGNMENT:
            parts += wire.fields(data, field.value, field.end)
    return by_number(parts)


def without_sugar(data: bytes) -> tuple[bytes, str]:
    """A module that XLA prints with all its computations, and a name to strip.

    XLA's printer writes an async-start whose computation is one instruction as
    `all-to-all-start` and leaves the computation out, so the text may mean two protos.
    No option prevents that, but a second instruction in the computation does. Remove
    the lines with its name from the text again. The name is '' where there was nothing
    to do.
    """
    if _ASYNC_START not in data:
        return data, ""
    module = ModuleProto(data)
    called = {
        number: None
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.bytes_of(OPCODE) == _ASYNC_START
        for number in instruction.called
    }
    name = _STOPPER
    while name.encode() in data:
        name += "_"
    numbers = {
        number: 1 + max(i.id for i in computation.instructions.values())
        for number, computation in module.computations_by_id.items()
        if number in called
    }
    parts = []
    for field in (f for fields in module.fields.values() for f in fields):
        if field.wire_type != wire.LENGTH_DELIMITED:
            parts.append(data[field.start : field.end])
        elif field.number == COMPUTATIONS:
            parts.append(_with_stopper(ComputationProto(data, field), numbers, name))
        elif field.number == SCHEDULE:
            parts.append(_with_scheduled_stoppers(data, field, numbers))
        else:
            parts.append(data[field.start : field.end])
    return b"".join(parts), name


def _with_stopper(
    computation: ComputationProto, numbers: dict[int, int], name: str
) -> bytes:
    """A computation, with its stopper if it has one; `numbers` by its id."""
    number = numbers.get(computation.id)
    if number is None:
        return computation.whole
    stopper = b"".join(
        (
            wire.bytes_field(NAME, f"{name}.{computation.id}".encode()),
            wire.bytes_field(OPCODE, b"after-all"),
            wire.bytes_field(RESULT, _TOKEN),
            wire.varint_field(ID, number),
        )
    )
    content = computation.data[computation.place.value : computation.place.end]
    content += wire.bytes_field(INSTRUCTIONS, stopper)
    return wire.bytes_field(COMPUTATIONS, content)


def _scheduled(data: bytes, schedule: Field) -> list[Field]:
    """The entries of a schedule, one for each computation; unknown fields are none."""
    found = wire.held(wire.fields(data, schedule.value, schedule.end))
    return [field for field in found if field.number == SEQUENCES]


def _with_scheduled_stoppers(
    data: bytes, schedule: Field, numbers: dict[int, int]
) -> bytes:
    """The schedule, with the stoppers at the end of their computations."""
    entries = b""
    for entry in _scheduled(data, schedule):
        parts = by_number(wire.fields(data, entry.value, entry.end))
        key = _number(data, parts, KEY)
        if key not in numbers:
            entries += data[entry.start : entry.end]
            continue
        sequence = b"".join(
            data[f.value : f.end] for f in wire.held(parts.get(VALUE, ()))
        )
        sequence += wire.packed_field(INSTRUCTION_IDS, [numbers[key]])
        content = wire.varint_field(KEY, key, always=True) + wire.bytes_field(
            VALUE, sequence
        )
        entries += wire.bytes_field(SEQUENCES, content)
    return wire.bytes_field(SCHEDULE, entries)


@dataclass(frozen=True)
class _Part:
    """A message inside the module's: its fields, split but not read.

    Attributes:
        data: the module.
        place: of the part in it.
    """

    data: bytes
    place: Field

    @cached_property
    def fields(self) -> dict[int, list[Field]]:
        """Fields by number."""
        return by_number(wire.fields(self.data, self.place.value, self.place.end))

    @property
    def whole(self) -> bytes:
        """Its bytes in the message that it is part of, key included."""
        return self.data[self.place.start : self.place.end]

    @property
    def name(self) -> str:
        """Its name, without `%`."""
        return opening_name(self.data, self.place.value)

    def bytes_of(self, number: int) -> bytes:
        """All occurrences of a field, keys included; b'' when it is not there."""
        return _whole(self.data, self.fields.get(number, ()))


def local_id(number: int) -> int:
    """The lower half of an instruction's id, which tells it apart in its computation.

    XLA reads no more of it (`HloInstruction::CalculateLocalId`); the upper half is the
    computation's number in what XLA writes, and anything in what others write.
    """
    return number & 0xFFFFFFFF


class InstructionProto(_Part):
    """One instruction."""

    @cached_property
    def id(self) -> int:
        """Unique in the module."""
        return wire.find_number(self.data, self.place.value, self.place.end, ID)

    @property
    def opcode(self) -> str:
        """As XLA prints it, sugar apart."""
        places = wire.held(self.fields.get(OPCODE, ()))
        return self.data[places[-1].value : places[-1].end].decode() if places else ""

    @property
    def operands(self) -> list[int]:
        """Ids of the operands."""
        return wire.numbers(self.data, self.fields.get(OPERANDS, ()))

    @property
    def called(self) -> list[int]:
        """Ids of the computations that it calls."""
        return wire.numbers(self.data, self.fields.get(CALLED, ()))


class ComputationProto(_Part):
    """One computation."""

    @cached_property
    def id(self) -> int:
        """Unique in the module."""
        return _number(self.data, self.fields, COMPUTATION_ID)

    @property
    def root_id(self) -> int:
        """Id of the instruction that is the result."""
        return _number(self.data, self.fields, ROOT_ID)

    @cached_property
    def instructions(self) -> dict[str, InstructionProto]:
        """Instructions by name, in the proto's order."""
        found = [
            InstructionProto(self.data, f)
            for f in wire.held(self.fields.get(INSTRUCTIONS, ()))
        ]
        return {i.name: i for i in found}


class ModuleProto:
    """A serialized HloModuleProto, split into computations."""

    def __init__(self, data: bytes) -> None:
        """Split `data`; P042 when it is not a message."""
        self.data = data
        self.fields = by_number(wire.fields(data))

    def bytes_of(self, number: int) -> bytes:
        """All occurrences of a field, keys included; b'' when it is not there."""
        return _whole(self.data, self.fields.get(number, ()))

    @cached_property
    def computations(self) -> dict[str, ComputationProto]:
        """Computations by name, in the proto's order."""
        found = [
            ComputationProto(self.data, f)
            for f in wire.held(self.fields.get(COMPUTATIONS, ()))
        ]
        return {c.name: c for c in found}

    @cached_property
    def computations_by_id(self) -> dict[int, ComputationProto]:
        """Computations by id."""
        return {c.id: c for c in self.computations.values()}

    @cached_property
    def sequences(self) -> dict[int, Field]:
        """The schedule: the places of its entries, by computation id.

        XLA skips the entries of computations that are not there.
        """
        table: dict[int, Field] = {}
        for schedule in wire.held(self.fields.get(SCHEDULE, ())):
            for entry in _scheduled(self.data, schedule):
                parts = by_number(wire.fields(self.data, entry.value, entry.end))
                key = _number(self.data, parts, KEY)
                if key in self.computations_by_id:
                    table[key] = entry
        return table

    def sequence(self, computation: ComputationProto) -> list[InstructionProto]:
        """Instructions as text has them: in the schedule's order, else the proto's."""
        entry = self.sequences.get(computation.id)
        if entry is None:
            return list(computation.instructions.values())
        by_id = {local_id(i.id): i for i in computation.instructions.values()}
        ids: list[int] = []
        for part in wire.held(wire.fields(self.data, entry.value, entry.end)):
            if part.number == VALUE:
                found = wire.fields(self.data, part.value, part.end)
                ids += wire.numbers(
                    self.data, [f for f in found if f.number == INSTRUCTION_IDS]
                )
        return [by_id[local_id(number)] for number in ids]

    # -- stack frames -------------------------------------------------------

    @cached_property
    def frames(self) -> list[Frame]:
        """Stack frames by their contents; the frame of id n is at n - 1."""
        tables: dict[int, list[Field]] = {}
        for index in wire.held(self.fields.get(STACK_FRAMES, ())):
            for field in wire.held(wire.fields(self.data, index.value, index.end)):
                tables.setdefault(field.number, []).append(field)
        files = self._strings(tables.get(_FILE_NAMES, ()))
        functions = self._strings(tables.get(_FUNCTION_NAMES, ()))
        locations: list[Frame] = []
        for field in tables.get(_FILE_LOCATIONS, ()):
            parts = by_number(wire.fields(self.data, field.value, field.end))
            place = (_number(self.data, parts, n) for n in _LOCATION_PLACE)
            file = _number(self.data, parts, _LOCATION_FILE)
            function = _number(self.data, parts, _LOCATION_FUNCTION)
            names = (_row(files, file, ""), _row(functions, function, ""))
            locations.append((*names, *place))
        parts_of = [
            by_number(wire.fields(self.data, f.value, f.end))
            for f in tables.get(_FRAMES, ())
        ]
        found: dict[int, Frame] = {0: ()}
        for number in range(1, len(parts_of) + 1):
            # Parents may come after their children: walk up to what is known.
            path = [number]
            while path[-1] not in found:
                parts = _row(parts_of, path[-1], {})
                path.append(_number(self.data, parts, _FRAME_PARENT))
                if len(path) > len(parts_of) + 1:
                    raise ParseError(
                        "a stack frame of this proto is around itself",
                        code="P254",
                        location=Location(wire.UNNAMED, 1, 1),
                    )
            for inner in reversed(path[:-1]):
                parts = _row(parts_of, inner, {})
                place = _number(self.data, parts, _FRAME_LOCATION)
                location = _row(locations, place, ())
                around = found[_number(self.data, parts, _FRAME_PARENT)]
                found[inner] = (location, around)
        return [found[number] for number in range(1, len(parts_of) + 1)]

    @cached_property
    def frame_ids(self) -> dict[Frame, int]:
        """The id of a frame by its contents."""
        return {frame: k for k, frame in reversed([*enumerate(self.frames, 1)])}

    def _strings(self, found: Sequence[Field]) -> list[bytes]:
        return [self.data[f.value : f.end] for f in found]

    def metadata_of(self, proto: InstructionProto, target: ModuleProto) -> bytes:
        """The metadata of an instruction of this module, with `target`'s frame ids.

        XLA numbers frames anew whenever it reads a module. A frame that `target` does
        not have is left out.
        """
        written = b""
        for place in wire.held(proto.fields.get(METADATA, ())):
            content = b""
            for field in wire.fields(self.data, place.value, place.end):
                if (field.number, field.wire_type) != (_STACK_FRAME_ID, wire.VARINT):
                    content += self.data[field.start : field.end]
                    continue
                number, _ = wire.varint(self.data, field.value)
                known = 0
                if 0 < number <= len(self.frames):
                    known = target.frame_ids.get(self.frames[number - 1], 0)
                content += wire.varint_field(_STACK_FRAME_ID, known)
            written += wire.bytes_field(METADATA, content)
        return written
