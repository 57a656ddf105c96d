"""Arguments of a jitted function as a user types them: shapes, in any structure.

    f32[8,128], s32[]                     two arrays
    {w: f32[8,8], b: f32[8]}, f32[2,8]    a dictionary and an array
    (f32[8], [f32[8], None]), 3, true     a tuple with a list in it; Python values

Element types are HLO's, as in a module's text. How an array is divided is not said
here: that is for the in_shardings of the jitted function.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

import jax

from hlo_passes.errors import UsageError, nearest
from hlo_passes.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from hlo_passes.whole_numbers import whole_number

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<shape>[A-Za-z]\w*)\[(?P<sizes>[\d\s,]*)\](?:\{[\d,]*\})?"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<value>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|'[^'\\]*'|\"[^\"\\]*\")"
    r"|(?P<mark>[][(){},:])|(?P<end>$))"
)
_WORDS: Final[dict[str, Any]] = {
    "None": None, "True": True, "true": True, "False": False, "false": False
}  # fmt: skip
_CLOSES: Final = {"(": ")", "[": "]", "{": "}"}
#: Python's own limit is for calls; nobody types more brackets.
_DEEPEST: Final = 100
_EXAMPLE: Final = "as in --args='f32[8,128],s32[]' or --args='{w: f32[8,8]}, (f32[8],)'"


def read_arguments(text: str) -> tuple[Any, ...]:
    """The arguments that a text describes: abstract arrays, and Python's values.

    Raises UsageError U025 if the text is not of this form.
    """
    reader = _Reader(text)
    values = reader.items("")
    return tuple(values)


class _Reader:
    """Reads values one after the other; `token` is the next piece."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0
        self.position = self.started = 0
        self.advance()

    def advance(self) -> re.Match[str]:
        """The piece that was next; the one after it is next now."""
        token = getattr(self, "token", None)
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self.refused("this is no shape", self.position)
        self.started = match.start(match.lastgroup or 0)
        if match["shape"]:
            self.started = match.start("shape")
        self.position = match.end()
        self.token = match
        return token or match

    def refused(self, what: str, position: int | None = None) -> UsageError:
        at = self.started if position is None else position
        rest = self.text[at : at + 20].strip()
        return UsageError(
            f"--args: {what}: character {at + 1}, {rest!r}"
            if rest
            else f"--args: {what}: at its end",
            code="U025",
            hint=_EXAMPLE,
        )

    def items(self, close: str) -> list[Any]:
        """Values with commas between them, up to a bracket or the end."""
        found = []
        while not self.closes(close):
            found.append(self.value())
            if not self.closes(close):
                self.expect(",")
        return found

    def closes(self, close: str) -> bool:
        return self.token["mark"] == close if close else self.token["end"] is not None

    def expect(self, mark: str) -> None:
        if self.token["mark"] != mark:
            raise self.refused(f"expected {mark!r}")
        self.advance()

    def value(self) -> Any:
        """One value: an array, a structure, or a value of Python's."""
        token = self.token
        if token["shape"]:
            return self.array()
        if token["word"] in _WORDS:
            self.advance()
            return _WORDS[token["word"]]
        if token["word"] in ELEMENT_TYPES:
            raise self.refused("an element type without sizes; a scalar has [] there")
        if token["value"]:
            self.advance()
            return ast.literal_eval(token["value"])
        if token["mark"] in _CLOSES:
            return self.structure(token["mark"])
        raise self.refused("expected a shape")

    def array(self) -> jax.ShapeDtypeStruct:
        name = self.token["shape"].lower()
        if name not in ELEMENT_TYPES:
            near = nearest(name, ELEMENT_TYPES)
            raise self.refused(f"{name} is no element type{near and f', {near}'}")
        sizes = [size.strip() for size in self.token["sizes"].split(",")]
        if sizes[-1] == "":
            sizes.pop()
        dimensions = tuple(n for s in sizes if (n := whole_number(s)) is not None)
        if len(dimensions) != len(sizes):
            raise self.refused("sizes are whole numbers with commas between them")
        self.advance()
        return jax.ShapeDtypeStruct(dimensions, numpy_dtype(name))

    def structure(self, opened: str) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.refused(f"brackets are nested deeper than {_DEEPEST}")
        self.advance()
        close = _CLOSES[opened]
        if opened == "{":
            made: Any = self.members()
        else:
            made = self.items(close)
        is_group = opened == "(" and len(made) == 1 and self.text_before_is_no_comma()
        self.expect(close)
        self.depth -= 1
        if is_group:
            return made[0]
        return tuple(made) if opened == "(" else made

    def text_before_is_no_comma(self) -> bool:
        return not self.text[: self.started].rstrip().endswith(",")

    def members(self) -> dict[Any, Any]:
        """Keys and values of a dictionary; a key needs no quotes."""
        found = {}
        while not self.closes("}"):
            token = self.token
            if token["word"]:
                key = token["word"]
            elif token["value"]:
                key = ast.literal_eval(token["value"])
            else:
                raise self.refused("expected a key")
            self.advance()
            self.expect(":")
            if key in found:
                raise self.refused(f"the key {key} is there twice")
            found[key] = self.value()
            if not self.closes("}"):
                self.expect(",")
        return found
