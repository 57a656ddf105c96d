"""Sizes of parts as XLA:TPU's scheduler counts them: whole tiles.

    bf16[100,200]{1,0:T(8,128)(2,1)}     104 x 256 elements: 53,248 bytes
    s32[]{:T(128)}                       128 elements: 512 bytes
    u32[]                                4,096 bytes: no tile
    (f32[8], f32[8])                     a table of pointers: 512 bytes (v5e), 32 (v5p)

Memory spaces other than 0 count nothing, as on GPUs (`buffer_sizes.py`). Found by
comparing with the pressure in the compiler's log after each placement (docs/tpu.md).
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.shapes import BITS, UNBOUNDED
from hlo_passes.scheduler.tpu.chips import Chip, chip

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module
    from hlo_passes.ir.shapes import Shape
    from hlo_passes.scheduler.memory.buffer_sizes import PartSizes

_POINTER_BYTES: Final = 4
#: An array without tiles takes whole pages.
_PAGE_BYTES: Final = 4096
#: What the compiler keeps for an instruction, as its scheduler's limit shows.
_BYTES_OF_AN_INSTRUCTION: Final = 10_240
DEFAULT_MEMORY_PERCENT: Final = 95


def tpu_sizes(name: str) -> PartSizes:
    """The sizes of parts on a chip. Raises UsageError U250 for an unknown chip."""
    return functools.cache(functools.partial(_part_bytes, chip(name)))


def _part_bytes(part: Chip, shape: Shape) -> int:
    if shape.is_tuple:
        table = _POINTER_BYTES * len(shape.elements)
        return _rounded_up(table, part.tuple_table_bytes)
    if shape.element_type == "token":
        return 0
    if shape.layout is None or not shape.layout.tiles:
        return _rounded_up(shape.byte_size, _PAGE_BYTES)
    return padded_bytes(shape)


def padded_bytes(shape: Shape) -> int:
    """Bytes of an array whose dimensions fill its first tile."""
    layout = shape.layout
    sizes = [max(0, 1 if d == UNBOUNDED else d) for d in shape.dimensions]
    bits = (BITS[shape.element_type] + 7) // 8 * 8
    if layout is not None:
        bits = layout.element_size_in_bits or bits
        sizes = [sizes[d] for d in reversed(layout.minor_to_major)]
        tile = layout.tiles[0] if layout.tiles else ()
        sizes = [1] * (len(tile) - len(sizes)) + sizes
        for k, size in enumerate(reversed(tile), 1):
            # A size of -1 joins a dimension to the next minor one.
            if size > 0:
                sizes[-k] = _rounded_up(sizes[-k], size)
    return (prod(sizes) * bits + 7) // 8


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def tpu_memory_limit_bytes(
    module: Module,
    name: str,
    memory_bytes: int,
    *,
    percent: int = DEFAULT_MEMORY_PERCENT,
) -> int:
    """The limit of the scheduler's memory rules, in bytes; 0 if nothing is left.

    Args:
        module: its parameters are subtracted, and something for each instruction.
        name: of the chip.
        memory_bytes: that the compiler counts on; less than the chip has.
        percent: `xla_tpu_scheduler_percent_shared_memory_limit`.
    """
    given = tpu_parameters_bytes(module, name)
    count = sum(len(c.instructions) for c in module.computations)
    room = memory_bytes * percent // 100 - given - _BYTES_OF_AN_INSTRUCTION * count
    return max(0, room)


def tpu_parameters_bytes(module: Module, name: str) -> int:
    """What the entry's parameters take of a chip's memory."""
    sizes = tpu_sizes(name)
    return sum(
        sizes(shape)
        for parameter in module.entry.parameters
        for shape in _all_parts(parameter.shape)
        if shape.layout is None or not shape.layout.memory_space
    )


def _all_parts(shape: Shape) -> list[Shape]:
    found, work = [], [shape]
    for part in work:
        found.append(part)
        if part.is_tuple:
            work += part.elements
    return found
