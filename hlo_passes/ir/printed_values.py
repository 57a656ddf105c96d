"""Values that are certainly as XLA prints them: they need not be read to be written.

    is_as_printed("int_list", "{0,1}")      True
    is_as_printed("int_list", "{0, 1}")     False: XLA prints no blank

False says nothing: the value may be right, or wrong, or spelled another way. Only the
kinds that most instructions have are here.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Final

#: A string, without quotes, that needs no escape.
_CHARACTERS: Final = r"[ !#-&(-\[\]-~]"
_STRING: Final = rf'"{_CHARACTERS}++"'
_COUNT: Final = r"[1-9][0-9]{0,8}"
_INTEGER: Final = r"(?:0|-?[1-9][0-9]{0,17})"
_INTEGERS: Final = rf"\{{(?:{_INTEGER}(?:,{_INTEGER})*)?\}}"
_LISTS: Final = rf"\{{(?:{_INTEGERS}(?:,{_INTEGERS})*)?\}}"
_PAIR: Final = rf"\{{{_INTEGER},{_INTEGER}\}}"
_RANGE: Final = rf"\[{_INTEGER}:{_INTEGER}\]"
#: The inside of a JSON dict without escapes; at most three more are nested in it.
_JSON_FLAT: Final = r"""[^{}"]*+(?:"[^"\\]*+"[^{}"]*+)*"""
_JSON_INSIDE: Final = reduce(
    lambda inner, _: rf"{_JSON_FLAT}(?:\{{{inner}\}}{_JSON_FLAT})*",
    range(3),
    _JSON_FLAT,
)
#: A name, without `%`.
NAME: Final = r"[A-Za-z_][A-Za-z0-9_.-]*+"
#: Metadata with a name: fields in XLA's order, none at its default. Most have the name
#: alone, which is asked first.
METADATA: Final = (
    rf"\{{(?:op_type={_STRING} )?op_name={_STRING}(?:\}}|"
    + "".join(
        f"(?: {name}={value})?"
        for name, value in (
            ("source_file", _STRING),
            ("source_line", _COUNT),
            ("source_end_line", _COUNT),
            ("source_column", _COUNT),
            ("source_end_column", _COUNT),
            ("deduplicated_name", _STRING),
            ("scheduling_name", _STRING),
            ("stack_frame_id", _COUNT),
        )
    )
    + r"\})"
)

#: Values by kind, as expressions.
PRINTED: Final[dict[str, str]] = {
    "backend_config": rf"\{{{_JSON_INSIDE}\}}",
    "bool": "true|false",
    "computation": f"%{NAME}",
    "int": _INTEGER,
    "int_list": _INTEGERS,
    "int_lists": _LISTS,
    "metadata": METADATA,
    "replica_groups": _LISTS,
    "slice": rf"\{{(?:{_RANGE}(?:, {_RANGE})*)?\}}",
    "source_target_pairs": rf"\{{(?:{_PAIR}(?:,{_PAIR})*)?\}}",
    "string": rf'"{_CHARACTERS}*+"',
}
_PATTERNS: Final = {kind: re.compile(pattern) for kind, pattern in PRINTED.items()}


def is_as_printed(kind: str | None, text: str) -> bool:
    """Whether a value of this kind can be read and is certainly printed as it is.

    `kind` is that of `attribute_tables.attribute_kind`.
    """
    pattern = _PATTERNS.get(kind or "")
    return pattern is not None and pattern.fullmatch(text) is not None
