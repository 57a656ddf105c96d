"""A new order into a serialised HloModuleProto, everything else byte for byte.

    schedule { sequences { key: 4 value { instruction_ids: [9, 7, 8] } } }
    ->
    schedule { sequences { key: 4 value { instruction_ids: [7, 9, 8] } } }

HLO text cannot carry all that XLA's GPU compiler puts into a scheduled module: an
`all-reduce-start` that aliases its operand, a `collective-permute-start` whose one
operand is a tuple of one. A scheduler changes nothing but the order, so the order alone
is written. Reads the wire format itself; jaxlib is not needed.

Source: openxla/xla `xla/service/hlo.proto`, the numbers of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import PassError
from hlo_passes.ir.module import Module

_MODULE_COMPUTATIONS: Final = 3
_MODULE_SCHEDULE: Final = 7
_SCHEDULE_SEQUENCES: Final = 1
_ENTRY_KEY: Final = 1
_ENTRY_VALUE: Final = 2
_SEQUENCE_IDS: Final = 1
_COMPUTATION_NAME: Final = 1
_COMPUTATION_INSTRUCTIONS: Final = 2
_COMPUTATION_ID: Final = 5
_INSTRUCTION_NAME: Final = 1
_INSTRUCTION_ID: Final = 35

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED32: Final = 5


class OrderLostError(PassError):
    """The order of a module cannot be written into the proto it came from."""

    default_code = "S004"


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message: its number, its value, and its bytes with the tag."""

    number: int
    varint: int
    payload: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Computation:
    """A computation of the proto: instruction name -> id."""

    name: str
    ids: dict[str, int]


def has_schedule(proto: bytes) -> bool:
    """Whether a serialised HloModuleProto has a schedule."""
    return any(field.number == _MODULE_SCHEDULE for field in _fields(proto))


def is_reordering(before: str, after: str) -> bool:
    """Whether two texts of a module differ in nothing but the order of their lines."""
    return sorted(before.splitlines()) == sorted(after.splitlines())


def with_order(proto: bytes, module: Module) -> bytes:
    """The proto with the module's order of instructions as its schedule.

    Args:
        proto: a serialised, scheduled HloModuleProto.
        module: what was read from it, in another order.

    Raises:
        OrderLostError: S004, the proto has no schedule, or other instructions.
    """
    computations = dict(
        _read_computation(field.payload)
        for field in _fields(proto)
        if field.number == _MODULE_COMPUTATIONS
    )
    parts = []
    found = False
    for field in _fields(proto):
        if field.number == _MODULE_SCHEDULE:
            found = True
            schedule = _reordered(field.payload, computations, module)
            parts.append(_delimited(_MODULE_SCHEDULE, schedule))
        else:
            parts.append(field.raw)
    if not found:
        raise OrderLostError(
            f"{module.name} was given without a schedule",
            hint="an order can replace a schedule: use stage=post-scheduler",
        )
    return b"".join(parts)


def _reordered(
    schedule: bytes, computations: dict[int, _Computation], module: Module
) -> bytes:
    parts = []
    for entry in _fields(schedule):
        if entry.number != _SCHEDULE_SEQUENCES:
            parts.append(entry.raw)
            continue
        key, sequence = 0, b""
        for field in _fields(entry.payload):
            if field.number == _ENTRY_KEY:
                key = field.varint
            elif field.number == _ENTRY_VALUE:
                sequence = field.payload
        ids = _new_ids(sequence, computations[key], module)
        packed = _delimited(_SEQUENCE_IDS, b"".join(_varint(i) for i in ids))
        value = _tag(_ENTRY_KEY, _VARINT) + _varint(key)
        value += _delimited(_ENTRY_VALUE, packed)
        parts.append(_delimited(_SCHEDULE_SEQUENCES, value))
    return b"".join(parts)


def _new_ids(sequence: bytes, known: _Computation, module: Module) -> list[int]:
    old = _read_ids(sequence)
    computation = module.computation(known.name)
    if computation is None:  # printed inside its caller: its order is not ours
        return old
    names = [instruction.name for instruction in computation.instructions]
    ids = [known.ids.get(name, -1) for name in names]
    if sorted(ids) != sorted(old):
        missing = sorted(known.ids.keys() - set(names)) or ["none"]
        new = sorted(set(names) - known.ids.keys()) or ["none"]
        raise OrderLostError(
            f"{known.name} has other instructions than XLA gave: "
            f"new {new[0]}, missing {missing[0]}"
        )
    return ids


def _read_computation(data: bytes) -> tuple[int, _Computation]:
    key, name = 0, ""
    ids: dict[str, int] = {}
    for field in _fields(data):
        if field.number == _COMPUTATION_NAME:
            name = field.payload.decode()
        elif field.number == _COMPUTATION_ID:
            key = field.varint
        elif field.number == _COMPUTATION_INSTRUCTIONS:
            instruction_name, number = "", 0
            for part in _fields(field.payload):
                if part.number == _INSTRUCTION_NAME:
                    instruction_name = part.payload.decode()
                elif part.number == _INSTRUCTION_ID:
                    number = part.varint
            ids[instruction_name] = number
    return key, _Computation(name, ids)


def _read_ids(sequence: bytes) -> list[int]:
    """The ids of a sequence, packed or one by one."""
    ids: list[int] = []
    for field in _fields(sequence):
        if not field.payload:
            ids.append(field.varint)
            continue
        at = 0
        while at < len(field.payload):
            value, at = _read_varint(field.payload, at)
            ids.append(value)
    return ids


def _fields(data: bytes) -> Iterator[_Field]:
    at, end = 0, len(data)
    while at < end:
        start = at
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        varint, payload = 0, b""
        if kind == _VARINT:
            varint, at = _read_varint(data, at)
        elif kind == _LENGTH_DELIMITED:
            length, at = _read_varint(data, at)
            payload = data[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise OrderLostError(f"wire type {kind} at byte {start} of a proto")
        if at > end:
            raise OrderLostError(f"a proto ends inside its field {number}")
        yield _Field(number, varint, payload, data[start:at])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise OrderLostError("a proto ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _delimited(number: int, payload: bytes) -> bytes:
    return _tag(number, _LENGTH_DELIMITED) + _varint(len(payload)) + payload
