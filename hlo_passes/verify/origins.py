"""Origins against shapes: one entry per leaf, in a tree like the shape's.

    V805 origin={({"a"}, {"b"})} on a shape that is not a tuple of two

Source: openxla/xla `hlo_verifier.cc` (VerifyOriginalValue).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.provenance import parse_origin
from hlo_passes.ir.shapes import Shape
from hlo_passes.verify.finding import Fault

_REMEMBERED: Final = 65_536
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){},]')


def _leaf_paths(tree: str) -> set[tuple[int, ...]]:
    """Index paths of the entries of a tree: `({"a"}, {})` has (0,) and (1,)."""
    paths: set[tuple[int, ...]] = set()
    path: list[int] = []
    depth = 0  # of braces: their commas part indices, not entries
    for token in _TOKEN.findall(tree):
        if token == "{":
            if not depth:
                paths.add(tuple(path))
            depth += 1
        elif token == "}":
            depth -= 1
        elif depth:
            continue
        elif token == "(":
            path.append(0)
        elif token == ")":
            path.pop()
        elif token == "," and path:
            path[-1] += 1
    return paths


@lru_cache(maxsize=_REMEMBERED)
def check_origin(text: str, shape: Shape) -> tuple[Fault, ...]:
    """What is wrong with the origin of a value of this shape; () if it is correct."""
    try:
        origin = parse_origin(text)
    except HloError:
        return ()  # V103 reports it already
    if origin.is_synthetic_call:
        return ()
    if _leaf_paths(origin.text) != {path for path, _ in shape.leaves()}:
        return (Fault("V805", f"the origin is not a tree like {shape}"),)
    return ()
