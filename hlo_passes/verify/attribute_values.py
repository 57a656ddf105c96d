"""Reading attribute values by kind: nothing, or what is wrong with the text.

    check_value("integers", "{0,x}")  ->  "cannot read {0,x} as a list of numbers"

Each (kind, text) is read once; the answers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.metadata import (
    parse_backend_config,
    parse_frontend_attributes,
    parse_metadata,
)
from hlo_passes.ir.replica_groups import (
    parse_replica_groups,
    parse_source_target_pairs,
)
from hlo_passes.text.shape_parser import parse_shape

_REMEMBERED: Final = 200_000

_LIST = r"\{{\s*(?:{0}(?:\s*,\s*{0})*)?\s*\}}"
_INTEGER = r"-?\d+"
_INTEGERS = _LIST.format(_INTEGER)
_BOOLEAN = r"(?:true|false)"
_INDEX = r"\{\s*(?:\d+(?:\s*,\s*\d+)*)?\s*\}"
_NAME = r"%?[A-Za-z_][\w.-]*"
_ALIAS = rf"{_INDEX}\s*:\s*\(\s*\d+\s*,\s*{_INDEX}\s*\)"

#: Kinds whose text one pattern settles, and what they are called.
_PATTERNS: Final[dict[str, tuple[re.Pattern[str], str]]] = {
    kind: (re.compile(pattern), what)
    for kind, pattern, what in (
        ("integer", _INTEGER, "a number"),
        ("number", r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)", "a number"),
        ("boolean", _BOOLEAN, "true or false"),
        ("booleans", _LIST.format(_BOOLEAN), "flags in braces"),
        (
            "boolean_or_booleans",
            f"{_BOOLEAN}|{_LIST.format(_BOOLEAN)}",
            "true, false or flags in braces",
        ),
        ("integers", _INTEGERS, "a list of numbers, as in {0,1}"),
        (
            "integer_lists",
            rf"\{{\s*(?:{_INTEGERS}(?:\s*,\s*{_INTEGERS})*)?\s*\}}",
            "lists of numbers, as in {{0,1},{2}}",
        ),
        ("word", r"[A-Za-z_][\w.-]*", "a word"),
        ("string", r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', "a quoted string"),
        ("computation", _NAME, "a computation's name"),
        ("computations", rf"\{{\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\}}", "names in braces"),
        ("names", rf"\{{\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\}}", "names in braces"),
        ("fusion_kind", "kLoop|kInput|kOutput|kCustom", "kLoop, kInput, kOutput, kCustom"),
        (
            "precisions",
            _LIST.format("(?:default|high|highest)"),
            "precisions, as in {highest,default}",
        ),
        (
            "dim_labels",
            r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}",
            "labels, as in b01f_01io->b01f",
        ),
        (
            "padding",
            r"-?\d+_-?\d+(?:_-?\d+)?(?:x-?\d+_-?\d+(?:_-?\d+)?)*|",
            "paddings, as in 0_1x2_3",
        ),
        (
            "slice",
            r"\{\s*(?:\[\s*-?\d+\s*:\s*-?\d+\s*(?::\s*-?\d+\s*)?\](?:\s*,\s*)?)*\}",
            "ranges, as in {[0:2], [0:8:2]}",
        ),
        (
            "aliasing",
            rf"\{{\s*(?:{_ALIAS}(?:\s*,\s*{_ALIAS})*)?\s*\}}",
            "aliases, as in {{0}: (1, {})}",
        ),
        ("window", r"\{[a-z_\d=x\s-]*\}", "a window, as in {size=3x3 pad=1_1x1_1}"),
        ("statistics", r"\{[\w.=,\s+-]*\}", "statistics"),
        ("braces", r"\{.*\}", "a group in braces"),
    )
}

#: Kinds that a parser of the IR reads.
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "replica_groups": parse_replica_groups,
    "pairs": parse_source_target_pairs,
    "metadata": parse_metadata,
    "frontend_attributes": parse_frontend_attributes,
    "backend_config": parse_backend_config,
    "shape": parse_shape,
}


@lru_cache(maxsize=_REMEMBERED)
def check_value(kind: str, text: str) -> str:
    """What is wrong with the value of an attribute; '' when it reads well."""
    pattern = _PATTERNS.get(kind)
    if pattern is not None:
        if pattern[0].fullmatch(text):
            return ""
        return f"expected {pattern[1]}, found {_shortened(text)}"
    parser = _PARSERS.get(kind)
    if parser is None:
        return ""
    try:
        parser(text)
    except HloError as problem:
        return f"cannot read {_shortened(text)}: {problem.message}"
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
