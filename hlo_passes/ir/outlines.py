"""Outlines of attribute texts: what is left without the values that differ most.

    , kind=kLoop, calls=%fused_add.1, metadata={op_name="a"}, backend_config={}
    , kind=kLoop, calls=%?, metadata=?, backend_config={}       (`?` is one character)

A module of 60,000 instructions has about 30,000 attribute texts, of 500 outlines. The
outlines of many texts are made at once: an expression costs little per text then.

What is left out is printed as it is read. So if one text of an outline can be read and
is printed as it is read, all texts are. For a text is read from left to right, and what
is left out are complete values. `outline_of_values` tells whether they are: it differs
from the outline where a string holds something that resembles them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hlo_passes.ir.attribute_tables import attribute_kind
from hlo_passes.ir.printed_values import NAME, PRINTED, is_as_printed

#: It marks what is left out.
_MARK: Final = "\1"
#: It follows each of many texts.
_END: Final = "\0"

#: Attributes with many values, and the kinds of those: none of them is left out in
#: print, whatever the opcode.
LEFT_OUT: Final = {
    "metadata": "metadata",
    "channel_id": "int",
    "index": "int",
    "slice": "slice",
}

#: How that starts of which the rest is left out, and an expression for the whole.
_CUTS: Final = [
    *(
        (f", {name}=", re.compile(rf", {name}={PRINTED[kind]}(?=[,{_END}])"))
        for name, kind in LEFT_OUT.items()
    ),
    ("=%", re.compile(rf"=%{NAME}(?=[,{_END}])")),
]


def outlines(texts: Sequence[str]) -> list[str]:
    """The outline of each attribute text."""
    together = _END.join([*texts, ""])
    if _MARK in together or together.count(_END) > len(texts):
        # A text with these characters has an outline that no other text has.
        return [
            _END if _MARK in text or _END in text else outlines([text])[0]
            for text in texts
        ]
    for start, whole in _CUTS:
        if start in together:
            together = whole.sub(f"{start}{_MARK}", together)
    found = together.split(_END)
    found.pop()
    return found


def outline_of_values(attributes: Mapping[str, str], opcode: str) -> str:
    """The outline of the text of these attributes, if nothing else resembles them."""
    parts: list[str] = []
    for name, text in attributes.items():
        kind = attribute_kind(name, opcode)
        shown = text
        if is_as_printed(kind, text):
            if name in LEFT_OUT:
                shown = _MARK
            elif kind == "computation":
                shown = f"%{_MARK}"
        parts.append(f", {name}={shown}")
    return "".join(parts)
