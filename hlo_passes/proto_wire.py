"""The wire format of protocol buffers: splits and joins the fields of messages.

    08 96 01        field 1, a varint: 150
    12 03 61 62 63  field 2, three bytes: 'abc'

Nothing here knows what a field means; `proto_edit.py` does. Reading only finds fields;
a value is copied when it is asked for.

It is written by hand on purpose: no package carries XLA's schema, and the bytes of
fields that nobody changed must stay as they are, unknown ones included.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from hlo_passes.errors import ParseError
from hlo_passes.source import Location

VARINT: Final = 0
FIXED_64, LENGTH_DELIMITED, _FIXED_32 = 1, 2, 5
_FIXED_BYTES: Final = {FIXED_64: 8, _FIXED_32: 4}
_UINT64: Final = (1 << 64) - 1
#: The file of errors: who calls knows its name.
UNNAMED: Final = "<proto>"
#: The varints of one byte.
_SHORT: Final = tuple(bytes([number]) for number in range(0x80))


class Field(NamedTuple):
    """The place of a field: its number, its wire type, and offsets into the bytes.

    `start` is the offset of its key, `value` that of what it holds (after the length,
    where there is one), `end` that of the next field.
    """

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def _broken(at: int) -> ParseError:
    # A length that is too long leads beyond any file.
    place = f"at byte {at}" if at < _UINT64 else "beyond its end"
    return ParseError(
        f"broken protocol buffer {place}",
        code="P042",
        location=Location(UNNAMED, 1, 1),
    )


def fields(data: bytes, start: int = 0, end: int | None = None) -> list[Field]:
    """The fields of the message in data[start:end], in order; P042 if it is not one."""
    stop = len(data) if end is None else end
    found: list[Field] = []
    # `Field(...)` itself, without the call around it: there are many.
    append, new = found.append, tuple.__new__
    at = start
    try:
        while at < stop:
            first = at
            key = data[at]
            at += 1
            if key & 0x80:
                key, at = varint(data, first)
            wire_type = key & 7
            if wire_type == LENGTH_DELIMITED:
                length = data[at]
                at += 1
                if length & 0x80:
                    length, at = varint(data, at - 1)
                value, at = at, at + length
            elif wire_type == VARINT:
                value = at
                while data[at] & 0x80:
                    at += 1
                at += 1
            elif wire_type in _FIXED_BYTES:
                value, at = at, at + _FIXED_BYTES[wire_type]
            else:
                raise _broken(first)
            append(new(Field, (key >> 3, wire_type, first, value, at)))
    except IndexError:
        raise _broken(at) from None
    if at != stop:
        raise _broken(at)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def find_number(data: bytes, start: int, end: int, wanted: int) -> int:
    """The last integer field of that number in a message; 0 where it is not there.

    It finds what `fields` would find, without keeping anything: every instruction needs
    its id, and only few need more.
    """
    at, found = start, 0
    while at < end:
        key = data[at]
        at += 1
        if key & 0x80:
            key, at = varint(data, at - 1)
        wire_type = key & 7
        if wire_type == LENGTH_DELIMITED:
            length = data[at]
            at += 1
            if length & 0x80:
                length, at = varint(data, at - 1)
            at += length
        elif wire_type == VARINT:
            if key >> 3 == wanted:
                found, at = varint(data, at)
                continue
            while data[at] & 0x80:
                at += 1
            at += 1
        else:
            at += _FIXED_BYTES[wire_type]
    return found


def held(found: Iterable[Field]) -> list[Field]:
    """The fields that hold bytes, a string or a message.

    A field of another wire type than its number has is an unknown one: protocol buffers
    keep it and read nothing from it.
    """
    return [field for field in found if field.wire_type == LENGTH_DELIMITED]


def numbers(data: bytes, found: Iterable[Field]) -> list[int]:
    """The values of a repeated integer field, packed or not."""
    values: list[int] = []
    for field in found:
        if field.wire_type not in (VARINT, LENGTH_DELIMITED):
            continue  # an unknown one, as in `held`
        at = field.value
        while at < field.end:
            value, at = varint(data, at)
            values.append(value)
    return values


def double(data: bytes, field: Field) -> float:
    """The value of a field that holds a double; ValueError for one that does not."""
    if field.wire_type != FIXED_64:
        msg = f"field {field.number} does not hold a double"
        raise ValueError(msg)
    return struct.unpack_from("<d", data, field.value)[0]


def encoded_varint(number: int) -> bytes:
    """An integer as a varint; negative ones as 64-bit two's complement."""
    if 0 <= number < len(_SHORT):
        return _SHORT[number]
    rest = number & _UINT64
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def varint_field(number: int, value: int, *, always: bool = False) -> bytes:
    """A field that holds an integer; nothing for 0, unless `always` (map entries)."""
    if value == 0 and not always:
        return b""
    return encoded_varint(number << 3 | VARINT) + encoded_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, a string or a message."""
    key = encoded_varint(number << 3 | LENGTH_DELIMITED)
    return key + encoded_varint(len(value)) + value


def double_field(number: int, value: float) -> bytes:
    """A field that holds a double, also for 0."""
    return encoded_varint(number << 3 | FIXED_64) + struct.pack("<d", value)


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """A repeated integer field; nothing when there are none."""
    packed = b"".join([encoded_varint(v) for v in values])
    return bytes_field(number, packed) if packed else b""
