"""Rare attributes: origin, statistics, result accuracy, sparsity, tables of origins.

    origin={({"a"}, {"b" {1}})}              statistics={visualizing_index=0,x=1.5}
    result_accuracy={tolerance={atol=0.1}}   sparsity_config={lhs={sparsity=2x4}}

Source: openxla/xla `hlo_parser.cc`, `xla/hlo/ir/hlo_original_value.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.ir.small_values import ints_text, number_text
from hlo_passes.ir.value_cursor import ValueCursor

#: Tuples of origins nested deeper than this are refused (as for shapes).
MAXIMUM_DEPTH: Final = 256

_PAIR: Final = re.compile(r"([0-9]{1,18})x([0-9]{1,18})(?![0-9x_.])")
_ACCURACY_MODES: Final = ("default", "highest")
_TOLERANCES: Final = ("atol", "rtol", "ulps")


# -- origin --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from before optimization, kept as canonical text.

    `text` is a tree: `{"a"}`, `{"a" {0,1}}`, `({"a"}, {})`, perhaps with the call it
    belongs to, `{"a"},["call"]`; or `[synthetic_call]`.
    """

    text: str

    @property
    def is_synthetic_call(self) -> bool:
        """Whether it represents a call that was made up."""
        return self.text == "[synthetic_call]"

    def to_text(self) -> str:
        """`{` tree `}`."""
        return f"{{{self.text}}}"


def parse_origin(text: str) -> Origin:
    """The origin that `text` spells. Raises ParseError P264."""
    cursor = ValueCursor(text, "P264")
    cursor.expect("{", "before an origin")
    if cursor.eat("["):
        at = cursor.skip()
        if cursor.word() != "synthetic_call":
            cursor.fail("expected synthetic_call", at=at)
        cursor.expect("]")
        tree = "[synthetic_call]"
    elif cursor.sees("}"):
        tree = "()"
    else:
        tree = _read_origin_tree(cursor)
    if cursor.eat(","):
        # The call that the value belongs to, since the middle of 2026.
        cursor.expect("[", "before the call of an origin")
        tree += f',["{cursor.string()}"]'
        cursor.expect("]", "after the call of an origin")
    cursor.expect("}", "at the end of an origin")
    cursor.end()
    return Origin(tree)


def _read_origin_tree(cursor: ValueCursor) -> str:
    open_tuples: list[list[str]] = []
    while True:
        if cursor.eat("("):
            if len(open_tuples) >= MAXIMUM_DEPTH:
                cursor.fail(f"tuples nested deeper than {MAXIMUM_DEPTH}")
            open_tuples.append([])
            if not cursor.sees(")"):
                continue
            text: str | None = None
        else:
            text = _read_origin_leaf(cursor)
        while True:
            if text is not None:
                if not open_tuples:
                    return text
                open_tuples[-1].append(text)
            if text is not None and cursor.eat(","):
                break
            cursor.expect(")", "at the end of a tuple of origins")
            text = f"({', '.join(open_tuples.pop())})"


def _read_origin_leaf(cursor: ValueCursor) -> str:
    cursor.expect("{", "before an origin's name")
    text = ""
    if not cursor.sees("}"):
        text = f'"{cursor.string()}"'
        if cursor.sees("{"):
            path = cursor.integers()
            text += f" {ints_text(path)}" if path else ""
    cursor.expect("}", "after an origin's name")
    return f"{{{text}}}"


# -- statistics ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistics:
    """Named numbers; `visualized` is the index of the one that is drawn."""

    visualized: int = 0
    values: tuple[tuple[str, float], ...] = ()

    def to_text(self) -> str:
        """`{visualizing_index=0,x=1.5}`, `{}` without numbers."""
        if not self.values:
            return "{}"
        numbers = "".join(f",{n}={number_text(v)}" for n, v in self.values)
        return f"{{visualizing_index={self.visualized}{numbers}}}"


def parse_statistics(text: str) -> Statistics:
    """The statistics that `text` spells. Raises ParseError P265."""
    cursor = ValueCursor(text, "P265")
    cursor.expect("{", "before statistics")
    visualized = 0
    values: list[tuple[str, float]] = []
    if not cursor.sees("}"):
        cursor.attribute_name("visualizing_index=")
        visualized = cursor.integer()
        while cursor.eat(","):
            name = cursor.attribute_name()
            if cursor.sees("inf") or cursor.sees("-inf"):
                cursor.fail("a statistic is finite")
            values.append((name, cursor.number()))
    cursor.expect("}", "at the end of statistics")
    cursor.end()
    return Statistics(visualized, tuple(values))


# -- result accuracy -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """A mode ('default', 'highest') or tolerances by name (atol, rtol, ulps)."""

    mode: str = "default"
    tolerances: tuple[tuple[str, float], ...] = ()

    def to_text(self) -> str:
        """`{mode=highest}` or `{tolerance={atol=0.1,rtol=0.2,ulps=3}}`."""
        if not self.tolerances:
            return f"{{mode={self.mode}}}"
        numbers = ",".join(f"{n}={number_text(v)}" for n, v in self.tolerances)
        return f"{{tolerance={{{numbers}}}}}"


def parse_result_accuracy(text: str) -> ResultAccuracy:
    """The accuracy that `text` spells. Raises ParseError P266."""
    cursor = ValueCursor(text, "P266")
    cursor.expect("{", "before a result accuracy")
    at = cursor.skip()
    name = cursor.attribute_name("mode= or tolerance=")
    if name == "mode":
        at = cursor.skip()
        mode = cursor.word("a mode").lower()
        if mode not in _ACCURACY_MODES:
            cursor.fail(f"unknown mode {mode}", at=at, hint="default or highest")
        result = ResultAccuracy(mode)
    elif name == "tolerance":
        result = ResultAccuracy(tolerances=_read_tolerances(cursor))
    else:
        cursor.fail(f"a result accuracy has no {name}=", at=at)
    cursor.expect("}", "at the end of a result accuracy")
    cursor.end()
    return result


def _read_tolerances(cursor: ValueCursor) -> tuple[tuple[str, float], ...]:
    """All three, 0 where the text has none."""

    def item() -> tuple[str, float]:
        at = cursor.skip()
        name = cursor.attribute_name("atol=, rtol= or ulps=")
        if name not in _TOLERANCES:
            cursor.fail(f"unknown tolerance {name}", at=at)
        return name, cursor.number()

    found = dict(cursor.items("{", "}", item))
    return tuple((name, found.get(name, 0.0)) for name in _TOLERANCES)


# -- sparsity ------------------------------------------------------------------

#: Fields of a side with their defaults; `idx` came in the middle of 2026 and is
#: written only when it was read.
_SIDE_DEFAULTS: Final[dict[str, Any]] = {
    "sparsity": (0, 0),
    "dimension": 0,
    "stride": 0,
    "idx": None,
}


@dataclass(frozen=True, slots=True)
class SparsityConfig:
    """Structured sparsity of the operands of a convolution: fields by side."""

    sides: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()

    def to_text(self) -> str:
        """`{lhs={sparsity=2x4 dimension=1 stride=1}}`."""
        texts = []
        for side, fields in self.sides:
            inner = " ".join(
                f"{n}={'x'.join(map(str, v)) if isinstance(v, tuple) else v}"
                for n, v in fields
            )
            texts.append(f"{side}={{{inner}}}")
        return f"{{{' '.join(texts)}}}"


def parse_sparsity_config(text: str) -> SparsityConfig:
    """The configuration that `text` spells. Raises ParseError P267."""
    cursor = ValueCursor(text, "P267")
    found: dict[str, dict[str, Any]] = {}
    cursor.expect("{", "before a sparsity configuration")
    while not cursor.eat("}"):
        at = cursor.skip()
        side = cursor.attribute_name("lhs= or rhs=")
        if side not in ("lhs", "rhs"):
            cursor.fail(f"unexpected {side}", at=at, hint="lhs= or rhs=")
        _read_side(cursor, found.setdefault(side, {}))
    cursor.end()
    return SparsityConfig(
        tuple(
            (
                side,
                tuple(
                    (name, value)
                    for name, default in _SIDE_DEFAULTS.items()
                    if (value := found[side].get(name, default)) is not None
                ),
            )
            for side in ("lhs", "rhs")
            if side in found
        )
    )


def _read_side(cursor: ValueCursor, fields: dict[str, Any]) -> None:
    cursor.expect("{")
    while not cursor.eat("}"):
        at = cursor.skip()
        name = cursor.attribute_name()
        if name == "sparsity":
            pair = cursor.take(_PAIR)
            if not pair:
                cursor.fail("expected a ratio, as in 2x4")
            fields[name] = (int(pair[1]), int(pair[2]))
        elif name in _SIDE_DEFAULTS:
            fields[name] = cursor.integer()
        else:
            cursor.fail(f"unexpected {name}", at=at)


# -- tables of origins in the header -------------------------------------------

_LOG_MODES: Final = ("default", "fusion_debugger")


def check_debug_attributes(text: str) -> None:
    """Check `{ {"a"}:({log_mode=default,op_id=3}) }`. Raises ParseError P268."""
    cursor = ValueCursor(text, "P268")

    def entry() -> None:
        _read_origin_leaf(cursor)
        cursor.expect(":", "after the name of a value")
        if cursor.sees("("):
            cursor.items("(", ")", lambda: _read_debug_attributes(cursor))
        else:
            _read_debug_attributes(cursor)

    cursor.items("{", "}", entry)
    cursor.end()


def _read_debug_attributes(cursor: ValueCursor) -> None:
    """`{log_mode=default,callback_id=1,partitioned=true,op_id=2}`, any of them."""
    cursor.expect("{", "before debug attributes")
    while True:
        at = cursor.skip()
        name = cursor.attribute_name()
        if name == "log_mode":
            at = cursor.skip()
            mode = cursor.name()
            if mode not in _LOG_MODES:
                hint = " or ".join(_LOG_MODES)
                cursor.fail(f"unknown log_mode {mode}", at=at, hint=hint)
        elif name in ("callback_id", "op_id"):
            cursor.integer()
        elif name == "partitioned":
            cursor.boolean()
        else:
            cursor.fail(f"debug attributes have no {name}", at=at)
        if not cursor.eat(","):
            break
    cursor.expect("}", "after debug attributes")


def check_recovery_table(text: str) -> None:
    """Check `{ {"a"} : {"b" {0}}, "HloModule ..." }`. Raises ParseError P269."""
    cursor = ValueCursor(text, "P269")
    cursor.expect("{", "before the table")
    while not cursor.eat("}"):
        _read_origin_leaf(cursor)
        cursor.expect(":", "after the value that was replaced")
        _read_origin_leaf(cursor)
        if cursor.eat(","):
            cursor.string()
    cursor.end()
