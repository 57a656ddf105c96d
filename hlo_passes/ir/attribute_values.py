"""Attribute text to typed value and back, by the attribute's name.

    parse_value("dimensions", "{0,1}")          (0, 1)
    value_text("dimensions", (0, 1))            {0,1}
    canonical_text("window", "{ size=3 }")      {size=3}

Values with a kind of their own (replica groups, windows, shardings, ...) are read into
a class with `to_text()`; flags, numbers, words and lists into plain Python values.
Names that XLA does not know keep their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.errors import ParseError
from hlo_passes.ir import header_values, metadata, provenance, replica_groups, windows
from hlo_passes.ir import sharding as shardings
from hlo_passes.ir.attribute_tables import (
    attribute_kind,
    filled_attributes,
    is_printed,
    opcode_attributes,
    print_rank,
)
from hlo_passes.ir.attribute_text import split_attributes
from hlo_passes.ir.printed_values import is_as_printed
from hlo_passes.ir.small_values import (
    SMALL_CODECS,
    bool_text,
    parse_small,
    read_word,
)
from hlo_passes.ir.value_cursor import ValueCursor

if TYPE_CHECKING:
    from hlo_passes.ir.shapes import Shape

#: Readers of kinds whose values have `to_text()`.
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "backend_config": metadata.parse_backend_config,
    "dim_labels": windows.parse_dim_labels,
    "domain": shardings.parse_domain,
    "frontend_attributes": metadata.parse_frontend_attributes,
    "metadata": metadata.parse_metadata,
    "origin": provenance.parse_origin,
    "output_aliasing": header_values.parse_output_aliasing,
    "padding": windows.parse_padding,
    "replica_groups": replica_groups.parse_replica_groups,
    "result_accuracy": provenance.parse_result_accuracy,
    "sharding": shardings.parse_sharding,
    "slice": windows.parse_slice,
    "source_target_pairs": replica_groups.parse_source_target_pairs,
    "sparsity_config": provenance.parse_sparsity_config,
    "statistics": provenance.parse_statistics,
    "window": windows.parse_window,
}

#: Attribute texts whose canonical spelling is remembered.
_REMEMBERED_TEXTS: Final = 1 << 16

#: `canonical_text`, or a version of it that remembers its answers.
CanonicalText = Callable[[str, str, str], str | None]

_HEADER_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "input_output_alias": header_values.parse_input_output_alias,
    "buffer_donor": header_values.parse_buffer_donors,
    "entry_computation_layout": header_values.parse_entry_layout,
    "frontend_attributes": metadata.parse_frontend_attributes,
}
#: Readers of tables of provenance, which keep their text.
_HEADER_TABLES: Final[dict[str, Callable[[str], None]]] = {
    "debug_attributes": provenance.check_debug_attributes,
    "origin_recovery_table": provenance.check_recovery_table,
}
_HEADER_KINDS: Final = {
    "is_scheduled": "bool",
    "alias_passthrough_params": "bool",
    "allow_spmd_sharding_propagation_to_parameters": "bools",
    "allow_spmd_sharding_propagation_to_output": "bools",
    "replica_count": "int",
    "num_partitions": "int",
}
#: Header attributes in print order.
HEADER_ORDER: Final = (
    "is_scheduled",
    "input_output_alias",
    "buffer_donor",
    "alias_passthrough_params",
    "entry_computation_layout",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "replica_count",
    "num_partitions",
    "frontend_attributes",
    "origin_recovery_table",
    "debug_attributes",
)
_UNPRINTED_HEADER: Final = {
    "is_scheduled": "false",
    "input_output_alias": "{}",
    "buffer_donor": "{}",
    "alias_passthrough_params": "false",
    "allow_spmd_sharding_propagation_to_parameters": "{false}",
    "allow_spmd_sharding_propagation_to_output": "{false}",
    "replica_count": "1",
    "num_partitions": "1",
    "frontend_attributes": "{}",
}


# -- instructions --------------------------------------------------------------


def parse_value(name: str, text: str, opcode: str = "") -> Any:
    """The typed value of an instruction's attribute. Raises ParseError P2xx.

    The opcode matters for `slice_sizes` and `algorithm`. A computation written in
    place and a name that XLA does not know give their text.
    """
    kind = attribute_kind(name, opcode)
    if kind is None or (kind == "computation" and text.lstrip().startswith("{")):
        return text
    if kind in _PARSERS:
        return _PARSERS[kind](text)
    if kind in SMALL_CODECS:
        return parse_small(kind, text)
    if kind == "literal":
        from hlo_passes.ir.literals import parse_shaped_literal

        return parse_shaped_literal(text)
    cursor = ValueCursor(text, "P204")
    words: str | tuple[str, ...]
    if kind == "word":
        words = read_word(cursor, name, opcode)
    else:
        words = tuple(cursor.items("{", "}", lambda: read_word(cursor, name, opcode)))
    cursor.end()
    return words


def value_text(name: str, value: Any, opcode: str = "") -> str:
    """The text of a typed value, as XLA prints it."""
    kind = attribute_kind(name, opcode)
    if kind in SMALL_CODECS and not isinstance(value, str | bool):
        return SMALL_CODECS[kind].write(value)
    if kind in ("string", "computation") and not str(value).startswith("{"):
        return SMALL_CODECS[kind].write(value)
    if isinstance(value, tuple):
        return f"{{{','.join(value)}}}"
    if isinstance(value, bool):
        return bool_text(value)
    return value if isinstance(value, str) else value.to_text()


def canonical_text(name: str, text: str, opcode: str = "") -> str | None:
    """What XLA prints for an attribute read from `text`; None where it prints nothing.

    Raises ParseError P2xx.
    """
    if is_as_printed(attribute_kind(name, opcode), text):
        written = text
    else:
        written = value_text(name, parse_value(name, text, opcode), opcode)
    if name == "metadata" and not written:
        return None
    return written if is_printed(name, written, opcode) else None


def canonical_attributes(
    attributes: Mapping[str, str],
    opcode: str,
    shape: Shape,
    text_of: CanonicalText = canonical_text,
) -> Mapping[str, str]:
    """All attributes of an instruction as XLA prints them, in its order.

    Control predecessors are edges, so they are not included. To print many
    instructions, pass a `text_of` that remembers its answers: most values occur many
    times.
    """
    if not attributes:
        return filled_attributes(opcode)
    found: dict[str, str] = {}
    for name, printed_name, filled in _print_plan(tuple(attributes), opcode):
        if filled is not None:
            found[name] = filled
            continue
        text = attributes[name]
        written = text_of(name, text, opcode)
        if written is None:
            continue
        if name == "sharding" and shape.is_tuple:
            whole = shardings.parse_sharding(text)
            written = shardings.for_shape(whole, shape).to_text()
        if printed_name is not name:
            written = f"{{{written}}}"
        found[printed_name] = written
    return found


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _print_plan(
    names: tuple[str, ...], opcode: str
) -> tuple[tuple[str, str, str | None], ...]:
    """What is printed for attributes of these names, in XLA's order.

    Each is (name, name in print, None), or (name, name, text) of one that XLA fills in.
    """
    plan: dict[str, tuple[str, str, str | None]] = {
        name: (name, name, text)
        for name, text in filled_attributes(opcode).items()
        if name not in names
    }
    for name in names:
        printed = name
        if opcode == "custom-call" and name == "to_apply":
            printed = "called_computations"
        plan[printed] = (name, printed, None)
    if len(plan) < 2:
        return tuple(plan.values())
    ranks = print_rank(opcode)
    return tuple(plan[name] for name in sorted(plan, key=ranks.__getitem__))


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def one_spelling(
    text: str, opcode: str, without: frozenset[str], sharded: Shape | None = None
) -> str:
    """`, name=value` of an opcode's attributes in the order and spelling of XLA.

    Equal attributes give equal text however they are spelled. A value that cannot be
    read keeps its text. Names in `without` are left out. `sharded` is the tuple shape
    that a `sharding` is about.
    """
    if without:
        # Most texts differ in metadata alone. Text that is certainly left out is cut
        # before the rest is split, so that only few texts need splitting.
        text = _plain_attributes(without).sub("", text)
    return _one_spelling_of_rest(text, opcode, without, sharded)


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _one_spelling_of_rest(
    text: str, opcode: str, without: frozenset[str], sharded: Shape | None
) -> str:
    try:
        attributes = split_attributes(text)
    except ParseError:
        return text
    filled = filled_attributes(opcode)
    found = {
        name: value
        for name, value in filled.items()
        if name not in attributes and name not in without
    }
    for name, value in attributes.items():
        if name in without:
            continue
        written = value_spelling(name, value, opcode, sharded)
        if written is None:
            continue
        if opcode == "custom-call" and name == "to_apply":
            found["called_computations"] = f"{{{written}}}"
        else:
            found[name] = written
    return "".join([f", {n}={v}" for n, v in in_print_order(found, opcode).items()])


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def value_spelling(
    name: str, text: str, opcode: str, sharded: Shape | None = None
) -> str | None:
    """The spelling that equal values share; None for what XLA does not print.

    That is `canonical_text`, except that JSON has neither blanks nor an order, and that
    a value that cannot be read keeps its text.
    """
    try:
        written = canonical_text(name, text, opcode)
        if written is not None and name == "backend_config":
            written = _json_spelling(written)
        if sharded is not None and name == "sharding":
            written = shardings.for_shape(
                shardings.parse_sharding(text), sharded
            ).to_text()
    except ParseError:
        return text
    return written


def _json_spelling(text: str) -> str:
    """A backend config without blanks and with sorted keys, where it is JSON."""
    config = metadata.parse_backend_config(text)
    if not config.is_json_dict:
        return text
    return json.dumps(config.json(), sort_keys=True, separators=(",", ":"))


@cache
def _plain_attributes(names: frozenset[str]) -> re.Pattern[str]:
    """Matches the named attributes where their values are words or flat braces."""
    return re.compile(
        rf", (?:{'|'.join(map(re.escape, sorted(names)))})="
        r"""(?:\{[^{}]*\}|[^\s,{}"'()\[\]]+)(?=, |$)"""
    )


def in_print_order(attributes: Mapping[str, str], opcode: str = "") -> dict[str, str]:
    """The same attributes in the order in which XLA prints them.

    Names that the opcode does not have follow its own and precede the common ones.
    Without an opcode the order is that of most opcodes.
    """
    if len(attributes) < 2:
        return dict(attributes)
    names = sorted(attributes, key=print_rank(opcode).__getitem__)
    return {name: attributes[name] for name in names}


# -- the module's header -------------------------------------------------------


def header_in_print_order(attributes: Mapping[str, str]) -> dict[str, str]:
    """The same header attributes in the order in which XLA prints them.

    Names that it does not know come last.
    """
    ranks = {name: k for k, name in enumerate(HEADER_ORDER)}
    return dict(
        sorted(attributes.items(), key=lambda item: ranks.get(item[0], len(ranks)))
    )


def parse_header_value(name: str, text: str) -> Any:
    """The typed value of a header attribute. Raises ParseError P2xx.

    Tables of provenance and names that XLA does not know give their text.
    """
    if name in _HEADER_PARSERS:
        return _HEADER_PARSERS[name](text)
    if name in _HEADER_KINDS:
        return parse_small(_HEADER_KINDS[name], text)
    if name in _HEADER_TABLES:
        _HEADER_TABLES[name](text)
    return text


def header_text(name: str, value: Any) -> str:
    """The text of a typed header value, as XLA prints it."""
    if name in _HEADER_KINDS:
        return SMALL_CODECS[_HEADER_KINDS[name]].write(value)
    return value if isinstance(value, str) else value.to_text()


def canonical_header(attributes: Mapping[str, str]) -> dict[str, str]:
    """Header attributes as XLA prints them, in its order, unknown ones last."""
    found: dict[str, str] = {}
    known = [name for name in HEADER_ORDER if name in attributes]
    for name in (*known, *(n for n in attributes if n not in HEADER_ORDER)):
        written = header_text(name, parse_header_value(name, attributes[name]))
        unprinted = written == _UNPRINTED_HEADER.get(name) or (
            written == "{}" and name.startswith("allow_spmd_")
        )
        if not unprinted:
            found[name] = written
    return found


__all__ = [
    "HEADER_ORDER",
    "attribute_kind",
    "canonical_attributes",
    "canonical_header",
    "canonical_text",
    "header_in_print_order",
    "header_text",
    "in_print_order",
    "one_spelling",
    "opcode_attributes",
    "parse_header_value",
    "parse_value",
    "value_spelling",
    "value_text",
]
