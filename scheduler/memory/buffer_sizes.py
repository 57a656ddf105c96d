"""Sizes of an instruction's result, part by part, as XLA's GPU back end counts them.

    (f32[4]{0}, (s32[], pred[3]{0}))        parts in pre-order:
     {}        16 bytes: two pointers       {1}    16 bytes
     {0}       16 bytes                     {1,0}   4 bytes     {1,1}   3 bytes

A tuple counts the table of its pointers, a token nothing, an array its elements, and a
dynamic array four more bytes per dimension. Arrays in another memory space (host
memory) are known but never counted.

Source: openxla/xla `xla/shape_util.cc`, `xla/service/gpu/gpu_compiler.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_passes.ir.shapes import Shape

#: The pointer size of an NVIDIA or AMD GPU.
POINTER_BYTES: Final = 8
#: XLA stores the size of each dynamic dimension as an s32 after the array.
DYNAMIC_SIZE_BYTES: Final = 4

_KNOWN_SHAPES = 1 << 16
#: Bytes of one part as another back end counts them.
PartSizes = Callable[[Shape], int]


@dataclass(frozen=True, slots=True)
class Parts:
    """All sub-shapes of a shape in pre-order: the whole first, then element by element.

    Attributes:
        shapes: the sub-shapes.
        paths: their index paths.
        offsets: by path, the position in the lists.
        sizes_bytes: bytes of each.
        is_default_space: whether each lies in device memory.
        is_tuple: whether each is a tuple.
    """

    shapes: tuple[Shape, ...]
    paths: tuple[tuple[int, ...], ...]
    offsets: dict[tuple[int, ...], int]
    sizes_bytes: tuple[int, ...]
    is_default_space: tuple[bool, ...]
    is_tuple: tuple[bool, ...]

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.shapes)

    def span(self, path: tuple[int, ...]) -> tuple[int, int]:
        """The first part at or below `path`, and the first part after those."""
        first = self.offsets[path]
        return first, first + parts_of(self.shapes[first]).count


def part_size_bytes(shape: Shape) -> int:
    """Bytes of one part, without what a tuple points to."""
    if shape.is_tuple:
        return POINTER_BYTES * len(shape.elements)
    if shape.element_type == "opaque":
        return POINTER_BYTES
    size = shape.byte_size
    if True in shape.dynamic:
        size += DYNAMIC_SIZE_BYTES * shape.rank
    return size


def memory_space(shape: Shape) -> int:
    """Memory space of an array, 0 (device memory) for anything else."""
    return shape.layout.memory_space if shape.layout is not None else 0


@lru_cache(maxsize=_KNOWN_SHAPES)
def parts_of(shape: Shape) -> Parts:
    """The parts of a shape."""
    shapes: list[Shape] = []
    paths: list[tuple[int, ...]] = []
    stack: list[tuple[tuple[int, ...], Shape]] = [((), shape)]
    while stack:
        path, part = stack.pop()
        paths.append(path)
        shapes.append(part)
        if part.is_tuple:
            stack += [
                ((*path, k), element)
                for k, element in reversed(list(enumerate(part.elements)))
            ]
    return Parts(
        tuple(shapes),
        tuple(paths),
        {path: k for k, path in enumerate(paths)},
        tuple(part_size_bytes(s) for s in shapes),
        tuple(memory_space(s) == 0 for s in shapes),
        tuple(s.is_tuple for s in shapes),
    )
