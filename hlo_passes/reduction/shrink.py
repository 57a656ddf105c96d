"""Makes arrays smaller: replaces sizes in the whole module, so that they still fit.

f32[4096,128] multiply(...)       f32[8,4] multiply(...)

Sizes are replaced in the text, which has them in shapes, slices and windows. A module
is taken if the verifier accepts it afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from hlo_passes.ir.module import Module
from hlo_passes.reduction.extract import read_valid

_SHAPE: Final = re.compile(r"\b([a-z]+[0-9]*[a-z0-9]*)\[([\d,]+)\]")
_LISTS: Final = re.compile(
    r"\b(slice|dynamic_slice_sizes|slice_sizes)=(\{[^a-z]*?\})(?=[,\n ]|$)"
)
_WINDOW: Final = re.compile(r"\bsize=([\dx]+)")
_NUMBER: Final = re.compile(r"\d+")
#: Arrays of this many elements or more are worth shrinking.
_LARGE_ELEMENTS: Final = 64
_FACTORS: Final = tuple(2**k for k in range(14, 0, -1))
_SIZES: Final = (1, 2, 3, 4, 8, 16)


def shrunk(module: Module) -> Iterator[Module]:
    """Valid modules with smaller arrays, the smallest attempts first."""
    text = module.to_canonical_text()
    sizes = sorted(_sizes(text), reverse=True)
    for factor in _FACTORS:
        divide = _divider(factor)
        if any(divide(size) != size for size in sizes):
            yield from _changed(text, divide)
    for size in sizes:
        for smaller in _SIZES:
            if smaller < size:
                yield from _changed(text, _replacer(size, smaller))


def element_count(module: Module) -> int:
    """Elements of all results of all instructions together."""
    return sum(
        i.shape.element_count for c in module.computations for i in c.instructions
    )


def is_small(module: Module) -> bool:
    """Whether nothing in it is worth shrinking."""
    return all(
        i.shape.element_count < _LARGE_ELEMENTS
        for c in module.computations
        for i in c.instructions
    )


def _sizes(text: str) -> set[int]:
    return {
        int(size)
        for shape in _SHAPE.finditer(text)
        for size in shape[2].split(",")
        if int(size) > 1
    }


def _divider(factor: int) -> Callable[[int], int]:
    return lambda size: size // factor if size >= factor and not size % factor else size


def _replacer(size: int, smaller: int) -> Callable[[int], int]:
    return lambda found: smaller if found == size else found


def _changed(text: str, change: Callable[[int], int]) -> Iterator[Module]:
    def numbers(match: re.Match[str]) -> str:
        return _NUMBER.sub(lambda n: str(change(int(n[0]))), match[0])

    def shape(match: re.Match[str]) -> str:
        sizes = ",".join(str(change(int(s))) for s in match[2].split(","))
        return f"{match[1]}[{sizes}]"

    made = _SHAPE.sub(shape, text)
    made = _LISTS.sub(numbers, made)
    made = _WINDOW.sub(numbers, made)
    module = read_valid(made)
    if module is not None:
        yield module
