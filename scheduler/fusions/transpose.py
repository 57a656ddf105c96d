"""Grid of the transpose kernels: tiles that go through shared memory.

    f32[4096,4096] -> {0,1}    tiles of 32 x 32    16384 blocks of 128 threads

Source: openxla/xla `codegen/emitters/transpose.cc`, `gpu/ir_emission_utils.cc`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import bit_width, normalized_transpose
from hlo_passes.scheduler.fusions.launch_dimensions import LaunchDimensions, ceil_div
from hlo_passes.scheduler.hardware.target import Target

_TILE: Final = 32
_THREADS: Final = 128
_BANK_BITS: Final = 32
_MOST_VECTOR_BYTES: Final = 4
_SHARED_MEMORY_BYTES: Final = 48 * 1024
#: The fewest rows and columns of a packed tile, in vectors.
_FEWEST_PACKED_VECTORS: Final = 10
_SMALLEST_SIDE: Final = 16
_SMALLEST_SIDE_OF_LARGE: Final = 8
_LARGE_PRODUCT: Final = 64 * 128
_MOST_MINOR_BITS: Final = 64
_FEWEST_SECOND_MINOR_BITS: Final = 8 * 16
_SUB_BYTE_BITS: Final = 4


@dataclass(frozen=True, slots=True)
class TiledTranspose:
    """A transpose that a tiled kernel can do.

    Attributes:
        result: dimensions in memory order, merged.
        permutation: result dimension j is operand dimension permutation[j].
        bits: of an element.
        packed_blocks: blocks of the packed kernel, 0 if it does not apply.
    """

    result: tuple[int, ...]
    permutation: tuple[int, ...]
    bits: int
    packed_blocks: int

    @property
    def operand(self) -> tuple[int, ...]:
        """Dimensions of the operand."""
        sizes = [0] * len(self.result)
        for j, i in enumerate(self.permutation):
            sizes[i] = self.result[j]
        return tuple(sizes)

    @property
    def keeps_minor(self) -> bool:
        """Whether the fastest dimension stays the fastest."""
        return self.permutation[-1] == len(self.permutation) - 1


def is_tiled_transpose(instruction: Instruction) -> bool:
    """Whether a tiled kernel can do it."""
    return tiled_transpose(instruction) is not None


def tiled_transpose(instruction: Instruction) -> TiledTranspose | None:
    """How a tiled kernel does a transpose; None if no tiled kernel can."""
    if instruction.opcode != "transpose":
        return None
    result, permutation = normalized_transpose(instruction)
    return _tiled(result, permutation, bit_width(instruction.shape.element_type))


@functools.lru_cache(maxsize=4096)
def _tiled(
    result: tuple[int, ...], permutation: tuple[int, ...], bits: int
) -> TiledTranspose | None:
    if len(permutation) < 2:
        return None
    packed = _packed_blocks(result, permutation, bits)
    tiled = TiledTranspose(result, permutation, bits, packed)
    if packed:
        return tiled
    operand = tiled.operand
    if tiled.keeps_minor:
        minor_bits = bits * result[-1]
        second = min(operand[-2], result[-2])
        fits = minor_bits <= _MOST_MINOR_BITS
        return (
            tiled if fits and minor_bits * second >= _FEWEST_SECOND_MINOR_BITS else None
        )
    smaller = min(operand[-1], result[-1])
    wide = smaller >= _SMALLEST_SIDE or (
        smaller >= _SMALLEST_SIDE_OF_LARGE
        and operand[-1] * result[-1] >= _LARGE_PRODUCT
    )
    return tiled if wide and bits != _SUB_BYTE_BITS else None


def _packed_blocks(
    result: tuple[int, ...], permutation: tuple[int, ...], bits: int
) -> int:
    """Blocks of the kernel that packs narrow elements into banks; 0 if it cannot."""
    if bits >= _BANK_BITS:
        return 0
    out, order = list(result), list(permutation)
    if order[-1] != len(out) - 1:
        order.append(len(out))
        out.append(1)
    rank = len(out)
    if order[rank - 3] != rank - 3:
        out.insert(rank - 2, 1)
        order = [p + (p > rank - 3) for p in order]
        order.insert(rank - 2, rank - 2)
        rank += 1
    at_t2, at_a, at_t1 = rank - 2, rank - 3, order.index(rank - 2)
    vector = _BANK_BITS // bits
    side = _TILE * vector
    tile_t1 = min(out[at_t1], side)
    tile_a = min(out[at_a], side // tile_t1)
    tile_t2 = min(out[at_t2], side)
    columns, rows = tile_a * tile_t1, tile_t2
    fewest = _FEWEST_PACKED_VECTORS * vector
    if columns < fewest or rows < fewest or out[-1] != 1:
        return 0
    if rows % vector or columns % vector or out[at_t2] % tile_t2 % vector:
        return 0
    tiles = dict.fromkeys(range(rank), 1)
    tiles.update({at_t1: tile_t1, at_t2: tile_t2, at_a: tile_a})
    return prod(ceil_div(size, tiles[d]) for d, size in enumerate(out))


def transpose_launch(heroes: list[TiledTranspose], target: Target) -> LaunchDimensions:
    """Grid of a transpose fusion; `heroes` holds one entry per transposed result."""
    first = heroes[0]
    if first.packed_blocks:
        return LaunchDimensions(first.packed_blocks, _THREADS)
    operand = first.operand
    if first.keeps_minor:
        return LaunchDimensions(_minor_kept_blocks(first), _THREADS)
    widths = [max(1, (hero.bits + 7) // 8) for hero in heroes]
    shared_bytes = _TILE * (_TILE + 1) * sum(widths)
    other = operand[first.permutation[-1]]
    unvectorized = _swapped_blocks(first, _TILE)
    vector = _MOST_VECTOR_BYTES // max(widths)
    while vector > 1:
        per_thread = vector * vector
        enough_work = unvectorized * _THREADS >= per_thread * target.max_threads
        enough_memory = shared_bytes * per_thread <= _SHARED_MEMORY_BYTES
        if enough_work and enough_memory and not operand[-1] % vector | other % vector:
            return LaunchDimensions(_swapped_blocks(first, _TILE * vector), _THREADS)
        vector //= 2
    return LaunchDimensions(unvectorized, _THREADS)


def _swapped_blocks(transpose: TiledTranspose, side: int) -> int:
    operand = transpose.operand
    tiled = {len(operand) - 1, transpose.permutation[-1]}
    return prod(
        ceil_div(size, side) if d in tiled else size for d, size in enumerate(operand)
    )


def _minor_kept_blocks(transpose: TiledTranspose) -> int:
    operand = transpose.operand
    last = len(operand) - 1
    tiled = {last - 1, transpose.permutation[last - 1]}
    return prod(
        ceil_div(size, _TILE) if d in tiled else size
        for d, size in enumerate(operand[:last])
    )
