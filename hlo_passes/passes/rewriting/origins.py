"""Where values came from, when a loop's state grows or values leave its body.

    %w = (f32[], f32[]) while(%start), origin={({"w" {0}}, {"w" {1}})}
    %k = f32[] constant(2), origin={{"k"}}            in the body of %w, moved out:
    %w.1 = (f32[], f32[], f32[]) while(%start.1),
        origin={({"w" {0}}, {"w" {1}}, {"w#*/k"})}

Source: openxla/xla `xla/service/while_util.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.provenance import Origin, parse_origin
from hlo_passes.ir.shapes import Shape

#: A name in an origin, and what opens its leaf.
_LEAF: Final = re.compile(r'\{("(?:[^"\\]|\\.)*")?')
#: Stands for any number of an iteration.
_ANY: Final = "#*/"


def origin_with_elements(one: Instruction, values: Sequence[Instruction]) -> str | None:
    """The origin of a tuple that receives more elements; None where none is known.

    Args:
        one: the tuple, before that.
        values: what the new elements are.
    """
    if not any("origin" in _source(i).attributes for i in (one, *values)):
        return None
    old = _tree(one)[1:-1]
    trees = [*([old] if old else []), *map(_tree, values)]
    return Origin(f"({', '.join(trees)})").to_text()


def name_of_iterations(copy: Instruction, loop: Instruction) -> None:
    """Let the origin of what left a loop say that it was in all its iterations."""
    if "origin" not in copy.attributes or "origin" not in loop.attributes:
        return
    origin = parse_origin(loop.attributes["origin"])
    first = _LEAF.search(origin.text)
    if origin.is_synthetic_call or first is None or first[1] is None:
        return
    name = first[1][:-1] + _ANY

    def named(leaf: re.Match[str]) -> str:
        return leaf[0] if leaf[1] is None else f"{{{name}{leaf[1][1:]}"

    mine = parse_origin(copy.attributes["origin"])
    copy.set_attribute("origin", Origin(_LEAF.sub(named, mine.text)).to_text())


def _tree(one: Instruction) -> str:
    """The names of a value's leaves, empty where they are not known."""
    text = _source(one).attributes.get("origin")
    if text is not None:
        origin = parse_origin(text)
        if not origin.is_synthetic_call:
            # The call it belongs to says nothing of the elements.
            return re.sub(r',\["(?:[^"\\]|\\.)*"\]$', "", origin.text)
    return _unknown(one.shape)


def _source(one: Instruction) -> Instruction:
    """What an element of a tuple is, unless it says itself where it is from."""
    while (
        one.opcode == "get-tuple-element"
        and "origin" not in one.attributes
        and one.operands[0].opcode == "tuple"
    ):
        one = one.operands[0].operands[one.tuple_index]
    return one


def _unknown(shape: Shape) -> str:
    if not shape.is_tuple:
        return "{}"
    return f"({', '.join(map(_unknown, shape.elements))})"
