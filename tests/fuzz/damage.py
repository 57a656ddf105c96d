"""Ways to damage the bytes of a file that is not HLO text.

    damaged, how = damage(rng, data, other, WIRE)

Some know nothing of the format, some know protocol buffers, JSON or tokens of text, so
that what they make is read further than to its first byte.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Any, Final

from hlo_passes import proto_wire as wire
from hlo_passes.errors import HloError

#: (source of random numbers, the bytes, those of another file of the kind) -> bytes.
Damage = Callable[[random.Random, bytes, bytes], bytes]

#: Numbers at and beyond the borders of the types that files are read into.
NUMBERS: Final = (
    "0", "-0", "1", "-1", "2", "7", "127", "128", "255", "256", "65536", "2147483647",
    "2147483648", "-2147483649", "4294967296", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e15",
    "1e16", "1e308", "1e309", "-1e309", "1e-320", "0.1", "-0.5", "1.5", ".5", "5.",
    "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "-Infinity", "0x10", "0xfffffffff",
    "1_000", "٣", "true", "null", '"7"', "1" * 400, "9" * 5000, "1e999999999", "007",
)  # fmt: skip
#: Pieces that one of the formats uses, in any other.
PIECES: Final = (
    b"{", b"}", b"[", b"]", b"<", b">", b":", b",", b";", b"=", b'"', b"'", b"\\",
    b"\\u0000", b"\\ud800", b"\\777", b"\\xff", b"\x00", b"\x1b[31m", b"\r", b"\n",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85", b"#", b"//", b"/*", b"(",
    b")", b"x", b"-", b"+", b"%", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b" ", b"\t",
)  # fmt: skip
#: 512 MiB of zeros in half a megabyte: members follow each other.
BOMB: Final = gzip.compress(bytes(1 << 24), mtime=0) * 32

_TOKEN: Final = re.compile(rb"[\w.+-]+|\"[^\"\n]*\"|[^\w\s]|\s+")
_NUMBER: Final = re.compile(rb"-?\d[\d.eE+-]*")
_DEPTHS: Final = (3, 70, 110, 300, 1100, 5000, 50_000)


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


# -- bytes ---------------------------------------------------------------------


def flip(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Turn one to eight bits over."""
    out = bytearray(data)
    for _k in range(rng.choice((1, 1, 1, 2, 8)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def truncate(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Cut the end off."""
    return data[: _place(rng, data)]


def leave_out(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Leave some bytes out."""
    at = _place(rng, data)
    return data[:at] + data[at + rng.choice((1, 1, 2, 4, 16, 64)) :]


def repeat(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Put a part twice, or a hundred times."""
    first, last = sorted((_place(rng, data), _place(rng, data)))
    last = min(last, first + 400)
    return data[:last] + data[first:last] * rng.choice((1, 1, 1, 2, 100)) + data[last:]


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Go on with another file from somewhere."""
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def insert_bytes(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Put random bytes somewhere."""
    at = _place(rng, data)
    return data[:at] + rng.randbytes(rng.choice((1, 1, 2, 8, 64))) + data[at:]


def insert_piece(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Put a piece of a grammar somewhere."""
    at = _place(rng, data)
    return data[:at] + rng.choice(PIECES) + data[at:]


def only_noise(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Nothing but random bytes, of random length."""
    return rng.randbytes(rng.choice((0, 1, 2, 10, 200)))


BYTES: Final[tuple[Damage, ...]] = (
    flip, flip, truncate, leave_out, repeat, splice, insert_bytes, insert_piece,
    only_noise,
)  # fmt: skip


# -- gzip ----------------------------------------------------------------------


def zip_and_flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A gzip of it with bits turned over."""
    return flip(rng, gzip.compress(data, mtime=0), other)


def zip_and_cut(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A gzip of it that ends early."""
    return truncate(rng, gzip.compress(data, mtime=0), other)


def zip_and_more(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """A gzip of it, and something after it."""
    more = rng.choice((b"\0" * 9, b"noise", gzip.compress(data), b"\x1f\x8b", b"\x1f"))
    return gzip.compress(data, mtime=0) + more


def zip_whole(_: random.Random, data: bytes, __: bytes) -> bytes:
    """A gzip of it, or of a gzip of it."""
    return gzip.compress(data, mtime=0)


def bomb(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """A gzip that opens to very much; rarely, for it takes its time."""
    return BOMB if rng.random() < 0.02 else gzip.compress(data[: _place(rng, data)])


GZIP: Final[tuple[Damage, ...]] = (
    zip_and_flip, zip_and_cut, zip_and_more, zip_whole, bomb,
)  # fmt: skip


# -- text of any grammar -------------------------------------------------------


def change_number(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Another number in place of one."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(NUMBERS).encode() + data[match.end() :]


def replace_token(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A token of one file in place of a token of another."""
    match = _TOKEN.search(data, _place(rng, data))
    donor = _TOKEN.search(other, _place(rng, other))
    if not match or not donor:
        return data
    return data[: match.start()] + donor[0] + data[match.end() :]


def leave_out_token(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Leave a token out."""
    match = _TOKEN.search(data, _place(rng, data))
    return data[: match.start()] + data[match.end() :] if match else data


def double_line(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Put a line a second time, somewhere."""
    lines = data.split(b"\n")
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"\n".join(lines)


def leave_out_line(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Leave a line out."""
    lines = data.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def nest(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Many brackets of one kind, closed or not."""
    at, depth = _place(rng, data), rng.choice(_DEPTHS)
    opening, closing = rng.choice(
        ((b"{", b"}"), (b"[", b"]"), (b"(", b")"), (b"a{", b"}"), (b"a<", b">"),
         (b'{"a":', b"}"), (b"fixed-point(", b")"))
    )  # fmt: skip
    inner = data[at : at + rng.choice((0, 10, 100))]
    closed = closing * rng.choice((0, depth, depth, depth - 1))
    return data[:at] + opening * depth + inner + closed + data[at + len(inner) :]


TEXT: Final[tuple[Damage, ...]] = (
    change_number, change_number, change_number, replace_token, replace_token,
    leave_out_token, double_line, leave_out_line, insert_piece, truncate, splice, nest,
    flip,
)  # fmt: skip


# -- JSON ----------------------------------------------------------------------


class _Number(float):
    """A number that is printed as it is spelled, also where that is not JSON."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _odd_value(rng: random.Random) -> Any:
    number = _Number(0.0)
    number.text = rng.choice(NUMBERS)
    nested: Any = 1
    for _ in range(rng.choice((1, 20, 300))):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return rng.choice(
        (number, number, number, None, True, "", "1", [], {}, [1], {"a": 1}, nested,
         "\ud800", "\x00", "a" * 3000, "\u2028", -1, 10**30, 1.5)
    )  # fmt: skip


def json_value(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Another value, another key, a key twice, or none, at one place of the JSON."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return change_number(rng, data, other)
    whole = [tree]
    holder: Any = whole
    at: Any = 0
    while isinstance(holder[at], dict | list) and holder[at] and rng.random() < 0.8:
        holder = holder[at]
        at = rng.choice(
            list(holder) if isinstance(holder, dict) else range(len(holder))
        )
    choice = rng.randrange(4)
    if choice == 0 and isinstance(holder, dict):
        holder[f"{at}{rng.choice(('', ' ', 'x'))}{rng.randrange(3)}"] = holder.pop(at)
    elif choice == 1 and isinstance(holder, dict):
        del holder[at]
    else:
        holder[at] = _odd_value(rng)
    text = _dumps(whole[0])
    if choice == 2:  # the same key again, with another value
        keys = list(re.finditer(r'"[^"\\]*":', text))
        if keys:
            key = rng.choice(keys)
            again = f"{key[0]}{rng.choice(NUMBERS)},"
            text = text[: key.start()] + again + text[key.start() :]
    return text.encode("utf-8", "surrogatepass")


def _dumps(value: Any) -> str:
    """JSON with numbers as they are spelled."""
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        items = (f"{json.dumps(str(k))}:{_dumps(v)}" for k, v in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumps, value)) + "]"
    return json.dumps(value)


JSON: Final[tuple[Damage, ...]] = (json_value, json_value, json_value, *TEXT)


# -- protocol buffers ----------------------------------------------------------

_VARINTS: Final = (
    0, 1, 2, 3, 7, 127, 128, 255, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip


def wire_field(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change one field somewhere inside; the lengths around it stay right."""
    try:
        found = wire.fields(data)
    except HloError:
        return flip(rng, data, other)
    if not found:
        return wire.varint_field(rng.randrange(1, 60), rng.choice(_VARINTS))
    field = rng.choice(found)
    inside = data[field.value : field.end]
    is_message = field.wire_type == wire.LENGTH_DELIMITED and inside
    if is_message and rng.random() < 0.75 and _is_message(inside):
        changed = wire.bytes_field(field.number, wire_field(rng, inside, other))
    else:
        changed = _changed_field(rng, data, field, other)
    return data[: field.start] + changed + data[field.end :]


def _is_message(data: bytes) -> bool:
    try:
        return bool(wire.fields(data))
    except HloError:
        return False


def _changed_field(
    rng: random.Random, data: bytes, field: wire.Field, other: bytes
) -> bytes:
    whole, inside = data[field.start : field.end], data[field.value : field.end]
    number = field.number
    key = wire.encoded_varint(number << 3 | field.wire_type)
    kind = rng.randrange(12)
    if kind == 0:
        return b""
    if kind == 1:
        return whole * rng.choice((2, 2, 3, 500))
    if kind == 2:  # another wire type over the same bytes
        return wire.encoded_varint(number << 3 | rng.randrange(8)) + inside
    if kind == 3:  # another field
        return (
            wire.encoded_varint(rng.randrange(1, 100) << 3 | field.wire_type)
            + (data[field.start + len(key) : field.end])
        )
    if kind == 4:  # a varint that is too long
        return key + b"\x80" * rng.choice((9, 10, 11, 3000)) + b"\x01"
    if kind == 5:  # a length that is not there
        return key + wire.encoded_varint(rng.choice(_VARINTS)) + inside
    if kind == 6:
        depth = rng.choice((5, 99, 101, 400))
        for _ in range(depth):
            whole = wire.bytes_field(number, whole)
        return whole
    if kind == 7:
        return wire.bytes_field(number, other[: rng.choice((0, 5, 50, len(other)))])
    if field.wire_type == wire.VARINT:
        value, _ = wire.varint(data, field.value)
        near = (value + 1, value - 1, value ^ 1, value << 32, -value)
        return key + wire.encoded_varint(rng.choice((*_VARINTS, *near)))
    if field.wire_type == wire.LENGTH_DELIMITED:
        return wire.bytes_field(number, _changed_string(rng, inside, other))
    return key + rng.choice(
        (bytes(8), b"\xff" * 8, b"\0\0\0\0\0\0\xf0\x7f", b"\0\0\0\0\0\0\xf8\xff",
         b"\0\0\0\0\0\0\xf0\xbf", b"\xff\xff\xff\xff\xff\xff\xef\x7f")
    )  # fmt: skip


def _changed_string(rng: random.Random, inside: bytes, other: bytes) -> bytes:
    return rng.choice(
        (b"", b"\0", b"a" * 3000, b"\xff", b"%", b"a b", b"a\nb", b"\x1b[31m", b'"',
         inside * 2, inside[:-1], inside + b".1", flip(rng, inside, other),
         b"".join(wire.encoded_varint(rng.choice(_VARINTS)) for _ in range(3)),
         b"while", b"fusion", b"all-reduce-start", b"async-done", b"parameter")
    )  # fmt: skip


WIRE: Final[tuple[Damage, ...]] = (wire_field,) * 12 + BYTES


# -- archives of arrays --------------------------------------------------------


def array_header(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change the text that describes an array of an uncompressed archive."""
    at = data.find(b"{'descr'", rng.randrange(len(data) + 1))
    at = at if at >= 0 else data.find(b"{'descr'")
    if at < 0:
        return flip(rng, data, other)
    header = data[at : data.find(b"\n", at)]
    changed = rng.choice(TEXT)(rng, header, other)[: len(header)].ljust(len(header))
    out = data[:at] + changed + data[at + len(header) :]
    return _with_right_sums(out)


def _with_right_sums(data: bytes) -> bytes:
    """Correct the checksums of a zip archive's members, so that they are opened."""
    out = bytearray(data)
    at = data.find(b"PK\x03\x04")
    sums = []
    while at >= 0:
        name, extra = (
            int.from_bytes(out[at + k : at + k + 2], "little") for k in (26, 28)
        )
        first = at + 30 + name + extra
        later = data.find(b"PK", first)
        size = int.from_bytes(out[at + 22 : at + 26], "little")
        size = size if first + size <= len(out) else max(0, later - first)
        total = zlib.crc32(bytes(out[first : first + size])).to_bytes(4, "little")
        out[at + 14 : at + 18] = total
        sums.append(total)
        at = data.find(b"PK\x03\x04", first)
    at = data.find(b"PK\x01\x02")
    for total in sums:
        if at < 0:
            break
        out[at + 16 : at + 20] = total
        at = data.find(b"PK\x01\x02", at + 4)
    return bytes(out)


ARCHIVE: Final[tuple[Damage, ...]] = (array_header,) * 4 + BYTES


def damage(
    rng: random.Random, data: bytes, other: bytes, ways: tuple[Damage, ...]
) -> tuple[bytes, str]:
    """One to four of these ways, one after another; the bytes and their names."""
    names = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 4))):
        way = rng.choice(ways)
        data = way(rng, data, other)
        names.append(way.__name__)
    return data, "+".join(names)
