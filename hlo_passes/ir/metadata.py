"""What instructions carry along: metadata, frontend attributes, backend config.

    metadata={op_name="jit(f)/dot" source_file="a.py" source_line=3 stack_frame_id=2}
    frontend_attributes={_scheduling_group_id="0",options={"a":1}}
    backend_config={"operation_queue_id":"0"}

Source: openxla/xla `xla/hlo/ir/hlo_op_metadata.cc`, `hlo_instruction.cc` (Aug 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from dataclasses import replace as replace_fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.c_strings import quote
from hlo_passes.ir.value_cursor import ValueCursor, is_json_dict
from hlo_passes.source import SourceText

#: Texts of frontend attributes and backend configs whose values are remembered: they
#: are asked for again and again, and most instructions have the same ones.
_REMEMBERED: Final = 4096

#: XLA's profile types are numbered 0 to 3.
_PROFILE_TYPES: Final = 4


# -- metadata ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction comes from; the fields are in XLA's print order.

    Lines and columns count from 1, 0 is unknown. `stack_frame_id` counts from 1 in the
    module's table of stack frames, 0 is none.
    """

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    profile_type: tuple[int, ...] = ()
    deduplicated_name: str = ""
    scheduling_name: str = ""
    stack_frame_id: int = 0
    metadata_payload: str | None = None

    def replace(self, **changes: Any) -> Metadata:
        """A copy with other fields; TypeError for an unknown one."""
        return replace_fields(self, **changes)

    @property
    def is_printed(self) -> bool:
        """Whether XLA prints it: it drops a lone line number, say."""
        return bool(
            self.op_type
            or self.op_name
            or self.source_file
            or self.scheduling_name
            or self.stack_frame_id
            or self.metadata_payload is not None
        )

    def fields_text(self) -> str:
        """What is set, without braces."""
        return " ".join(
            [
                f"{name}={_METADATA_WRITERS[name](value)}"
                for name, value in zip(
                    _METADATA_DEFAULTS, _METADATA_VALUES(self), strict=True
                )
                if value != _METADATA_DEFAULTS[name]
            ]
        )

    def to_text(self) -> str:
        """The braces as XLA prints them, also what it would drop; '' for nothing."""
        found = self.fields_text()
        return f"{{{found}}}" if found else ""


def _scheduling_name_text(value: str) -> str:
    # XLA does not escape this one field. Text that could not be read back is escaped
    # all the same.
    raw = value.isprintable() and '"' not in value and "\\" not in value
    return f'"{value}"' if raw else quote(value)


_METADATA_DEFAULTS: Final = {f.name: f.default for f in fields(Metadata)}
_METADATA_VALUES: Final = attrgetter(*_METADATA_DEFAULTS)
_METADATA_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    name: quote if isinstance(default, str) or default is None else str
    for name, default in _METADATA_DEFAULTS.items()
} | {
    "profile_type": lambda kinds: "{" + ",".join(map(str, kinds)) + "}",
    "scheduling_name": _scheduling_name_text,
}
#: A field as XLA prints most of them: a name, and a plain string or a small number.
_PLAIN_FIELD: Final = re.compile(
    r'([a-z_]+)=(?:"([^"\\]*)"|([0-9]{1,9}))[ ]?(?=[a-z}])'
)


def parse_metadata(text: str) -> Metadata:
    """The metadata that `text` spells, braces included. Raises ParseError P250."""
    cursor = ValueCursor(text, "P250")
    metadata = read_metadata(cursor)
    cursor.end()
    return metadata


def read_metadata(cursor: ValueCursor) -> Metadata:
    """`{name=value name=value}`; commas between are accepted."""
    found: dict[str, Any] = {}
    cursor.expect("{", "before metadata")
    while not cursor.eat("}"):
        plain = _PLAIN_FIELD.match(cursor.text, cursor.at)
        if plain and plain[1] not in found:
            value = plain[2] if plain[3] is None else int(plain[3])
            if type(value) is type(_METADATA_DEFAULTS.get(plain[1])):
                found[plain[1]] = value
                cursor.at = plain.end()
                continue
        cursor.eat(",")
        at = cursor.skip()
        name = cursor.attribute_name()
        if name not in _METADATA_DEFAULTS:
            cursor.fail(f"metadata has no field {name}", at=at)
        if name in found:
            cursor.fail(f"{name} is repeated", at=at)
        if name == "profile_type":
            found[name] = _read_profile_types(cursor)
        elif _METADATA_DEFAULTS[name] == 0:
            found[name] = _read_int32(cursor)
        else:
            found[name] = cursor.string()
    return Metadata(**found)


def _read_int32(cursor: ValueCursor) -> int:
    at = cursor.skip()
    value = cursor.integer()
    if not -(1 << 31) <= value < 1 << 31:
        cursor.fail("this integer does not fit 32 bits", at=at)
    return value


def _read_profile_types(cursor: ValueCursor) -> tuple[int, ...]:
    at = cursor.skip()
    kinds = cursor.integers()
    if any(not 0 <= kind < _PROFILE_TYPES for kind in kinds):
        cursor.fail(f"profile types are 0 to {_PROFILE_TYPES - 1}", at=at)
    return kinds


def read_metadata_list(cursor: ValueCursor) -> tuple[Metadata, ...]:
    """One metadata, or `{{...}, {...}}` (in shardings)."""
    start = cursor.skip()
    cursor.expect("{", "before metadata")
    nested = cursor.sees("{")
    cursor.at = start
    if not nested:
        return (read_metadata(cursor),)
    return tuple(cursor.items("{", "}", lambda: read_metadata(cursor)))


# -- frontend attributes -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrontendAttributes(Mapping[str, str]):
    """String values by name, sorted by name; immutable."""

    pairs: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(values: Mapping[str, str]) -> FrontendAttributes:
        """From any mapping."""
        return FrontendAttributes(tuple(sorted(values.items())))

    def with_value(self, name: str, value: str) -> FrontendAttributes:
        """A copy in which `name` has this value."""
        return FrontendAttributes.of({**dict(self.pairs), name: value})

    def without(self, name: str) -> FrontendAttributes:
        """A copy without `name`; the same when it is not there."""
        return FrontendAttributes(tuple(p for p in self.pairs if p[0] != name))

    def __getitem__(self, name: str) -> str:
        """The value of `name`; KeyError when it is not there."""
        for known, value in self.pairs:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Names in order."""
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        """Number of names."""
        return len(self.pairs)

    def to_text(self) -> str:
        """`{k="v",j={"a":1}}`: JSON dicts bare, everything else quoted."""
        return f"{{{','.join(f'{k}={string_or_json_text(v)}' for k, v in self.pairs)}}}"


def string_or_json_text(value: str) -> str:
    """A JSON dict as it is, any other string in quotes."""
    return value if is_json_dict(value) else quote(value)


@lru_cache(maxsize=_REMEMBERED)
def parse_frontend_attributes(text: str) -> FrontendAttributes:
    """The attributes that `text` spells. Raises ParseError P251."""
    cursor = ValueCursor(text, "P251")

    def item() -> tuple[str, str]:
        name = cursor.attribute_name()
        value = cursor.json_dict() if cursor.sees("{") else cursor.string()
        return name, value

    found = dict(cursor.items("{", "}", item))
    cursor.end()
    return FrontendAttributes.of(found)


# -- backend config ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """An opaque string for a backend, most often a JSON dict; kept to the byte."""

    value: str

    @staticmethod
    def of_json(view: Mapping[str, Any]) -> BackendConfig:
        """A JSON dict, without blanks, keys in the order given."""
        return BackendConfig(json.dumps(view, separators=(",", ":")))

    @property
    def is_json_dict(self) -> bool:
        """Whether XLA prints it bare."""
        return is_json_dict(self.value)

    def json(self) -> Any:
        """A fresh parsed view; ParseError P253 when it is not JSON."""
        try:
            return json.loads(self.value)
        except json.JSONDecodeError as problem:
            source = SourceText(self.value, "<backend_config>")
            raise ParseError(
                f"not JSON: {problem.msg}",
                code="P253",
                location=source.location(problem.pos),
            ) from None
        except (ValueError, RecursionError) as problem:
            raise ParseError(f"JSON out of bounds: {problem}", code="P253") from None

    def to_text(self) -> str:
        """Bare when it is a JSON dict, else quoted."""
        return string_or_json_text(self.value)


@lru_cache(maxsize=_REMEMBERED)
def parse_backend_config(text: str) -> BackendConfig:
    """The config that `text` spells: a string or a JSON dict. ParseError P252."""
    cursor = ValueCursor(text, "P252")
    value = cursor.json_dict() if cursor.sees("{") else cursor.string()
    cursor.end()
    return BackendConfig(value)
