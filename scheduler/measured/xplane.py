"""Events of an XSpace, as `jax.profiler.trace` writes it (`*.xplane.pb`).

The bytes are read with `proto_wire`: the packages that carry this schema bring
TensorFlow's profiler along, and seven fields are all that is needed.

Source of the fields: openxla/xla `third_party/tsl/tsl/profiler/protobuf/xplane.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from hlo_passes import proto_wire as wire
from hlo_passes.errors import ParseError
from hlo_passes.scheduler.measured.events import (
    DERIVED,
    Event,
    checked_duration,
    checked_us,
    refuse,
)

_US_PER_NS = 1e-3
_US_PER_PS = 1e-6
#: Statistics of an event that are read.
_WANTED = ("hlo_op", "hlo_module", "run_id", "device_ordinal")


def xplane_events(data: bytes, path: str) -> list[Event]:
    """All events of instructions. Raises UsageError U228 if the bytes are no XSpace."""
    found: list[Event] = []
    try:
        for plane in wire.fields(data):
            if plane.number == 1 and plane.wire_type == wire.LENGTH_DELIMITED:
                found += _Plane.read(data, plane, path).events()
    except (ParseError, ValueError, IndexError, struct.error) as problem:
        raise refuse(path, "it is not a trace that can be read") from problem
    return found


@dataclass(slots=True)
class _Plane:
    """One device, or the host: its lines, and the names that they refer to."""

    data: bytes
    path: str
    name: str = ""
    lines: list[wire.Field] = field(default_factory=list)
    #: Statistics and name of what an event is, by its number; names of statistics.
    kinds: dict[int, dict[str, str]] = field(default_factory=dict)
    kind_names: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes, place: wire.Field, path: str) -> _Plane:
        plane = cls(data, path)
        kinds = []
        for part in wire.fields(data, place.value, place.end):
            if part.number == 2:
                plane.name = _text(data, part)
            elif part.number == 3:
                plane.lines.append(part)
            elif part.number == 4:
                kinds.append(part)
            elif part.number == 5:
                number, value = _entry(data, part)
                if value is not None:
                    named = {f.number: f for f in wire.fields(data, *value)}
                    plane.names[number] = _text(data, named.get(2))
        for part in kinds:
            number, value = _entry(data, part)
            if value is not None:
                inner = wire.fields(data, *value)
                plane.kinds[number] = plane.stats([f for f in inner if f.number == 5])
                named = {f.number: f for f in inner}
                plane.kind_names[number] = _text(data, named.get(2))
        return plane

    def stats(self, places: list[wire.Field]) -> dict[str, str]:
        """The wanted statistics by name, as text."""
        found: dict[str, str] = {}
        for place in places:
            parts = {
                f.number: f for f in wire.fields(self.data, place.value, place.end)
            }
            name = self.names.get(_number(self.data, parts.get(1)), "")
            if name not in _WANTED:
                continue
            if 5 in parts:
                found[name] = _text(self.data, parts[5])
            elif 7 in parts:
                found[name] = self.names.get(_number(self.data, parts[7]), "")
            else:
                known = parts.get(3) or parts.get(4)
                found[name] = str(_number(self.data, known))
        return found

    def events(self) -> Iterator[Event]:
        """Events that belong to an instruction."""
        for line in self.lines:
            parts = wire.fields(self.data, line.value, line.end)
            named = {f.number: f for f in parts}
            name = _text(self.data, named.get(11)) or _text(self.data, named.get(2))
            if name in DERIVED:
                continue
            origin = _number(self.data, named.get(3)) * _US_PER_NS
            for part in parts:
                if part.number == 4:
                    event = self._event(part, origin)
                    if event is not None:
                        yield event

    def _event(self, place: wire.Field, origin_us: float) -> Event | None:
        parts = wire.fields(self.data, place.value, place.end)
        named = {f.number: f for f in parts}
        number = _number(self.data, named.get(1))
        kind = self.kinds.get(number, {})
        stats = kind | self.stats([f for f in parts if f.number == 4])
        if not stats.get("hlo_op"):
            return None
        ordinal = stats.get("device_ordinal", "")
        begin = _number(self.data, named.get(2))
        took = _number(self.data, named.get(3))
        return Event(
            device=f"{self.name} {ordinal}".strip(),
            module=stats.get("hlo_module", ""),
            name=stats["hlo_op"],
            run=stats.get("run_id", ""),
            begin_us=origin_us + checked_us(self.path, begin, _US_PER_PS),
            us=checked_duration(self.path, took, _US_PER_PS),
            kernel=self.kind_names.get(number, ""),
        )


def _entry(data: bytes, place: wire.Field) -> tuple[int, tuple[int, int] | None]:
    """Key and place of the value of an entry of a map."""
    parts = {f.number: f for f in wire.fields(data, place.value, place.end)}
    value = parts.get(2)
    return _number(data, parts.get(1)), value and (value.value, value.end)


def _number(data: bytes, place: wire.Field | None) -> int:
    if place is None or place.wire_type != wire.VARINT:
        return 0
    return wire.varint(data, place.value)[0]


def _text(data: bytes, place: wire.Field | None) -> str:
    if place is None or place.wire_type != wire.LENGTH_DELIMITED:
        return ""
    return data[place.value : place.end].decode(errors="replace")
