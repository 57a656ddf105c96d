"""Shardings dimension by dimension: which part of an array each device has.

    f32[16,8], {devices=[2,2,2]<=[8] last_tile_dim_replicate}
        dimension 0 in 2 parts, of devices 0 to 7:  0 0 0 0 1 1 1 1
        dimension 1 in 2 parts:                     0 0 1 1 0 0 1 1

Each dimension is divided by itself, so that what happens to a dimension (a transpose
moves it, a reduction takes it away) happens to its division. Devices that have the same
part of every dimension hold copies. A text becomes this view, and the view a text:

    splits_of(parse_sharding(text), rank, devices).to_sharding().to_text()

Shardings that say more than where the elements are (one device, manual, unreduced) have
no such view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Final

from hlo_passes.ir.device_tiles import Iota, row_major_strides
from hlo_passes.ir.sharding import (
    MeshSharding,
    Sharding,
    TileSharding,
    TupleSharding,
)
from hlo_passes.ir.sharding_normal_form import Tile, normal_subgroups

_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Split:
    """One dimension in equal parts; the last ones may be shorter, or empty.

    Attributes:
        parts: their number, 2 or more.
        part_of: the part of each device.
    """

    parts: int
    part_of: tuple[int, ...]

    def refines(self, other: Split | None, size: int) -> bool:
        """Whether each of its parts lies in one part of the other.

        `size` is that of the dimension: ten elements in four parts (3, 3, 3 and 1) lie
        across ten elements in two parts.
        """
        if other is None or self == other:
            return True
        ratio, rest = divmod(self.parts, other.parts)
        if rest or -(-size // self.parts) * ratio != -(-size // other.parts):
            return False
        return all(
            fine // ratio == coarse
            for fine, coarse in zip(self.part_of, other.part_of, strict=True)
        )

    def backwards(self) -> Split:
        """The parts numbered from the other end, as `reverse` leaves them."""
        last = self.parts - 1
        return Split(self.parts, tuple(last - part for part in self.part_of))


@dataclass(frozen=True, slots=True)
class Splits:
    """A whole array over devices.

    Attributes:
        devices: their number; they are 0 to devices - 1.
        dims: for each dimension its division, None where all of it is everywhere.
    """

    devices: int
    dims: tuple[Split | None, ...]

    @staticmethod
    def replicated(rank: int, devices: int) -> Splits:
        """Every device has the whole array."""
        return Splits(devices, (None,) * rank)

    @property
    def parts(self) -> tuple[int, ...]:
        """The number of parts of each dimension."""
        return tuple(1 if split is None else split.parts for split in self.dims)

    @property
    def tiles(self) -> int:
        """The number of different parts of the array."""
        return prod(self.parts)

    @property
    def is_replicated(self) -> bool:
        """Whether every device has the whole array."""
        return not any(self.dims)

    @property
    def is_even(self) -> bool:
        """Whether every part of the array lies on equally many devices, and on some.

        Nothing else can be written as a sharding.
        """
        return _is_even(self)

    def tile_of(self, device: int) -> tuple[int, ...]:
        """The part of every dimension that a device has."""
        return tuple(0 if s is None else s.part_of[device] for s in self.dims)

    def block_of(self, device: int, sizes: Sequence[int]) -> tuple[slice, ...]:
        """The elements of an array of these sizes that a device has."""
        blocks: list[slice] = []
        for size, parts, tile in zip(
            sizes, self.parts, self.tile_of(device), strict=True
        ):
            length = -(-size // parts)
            blocks.append(
                slice(min(tile * length, size), min((tile + 1) * length, size))
            )
        return tuple(blocks)

    def with_split(self, dim: int, split: Split | None) -> Splits:
        """The same with another division of one dimension."""
        dims = (*self.dims[:dim], split, *self.dims[dim + 1 :])
        return Splits(self.devices, dims)

    def refined(self, dim: int, split: Split, size: int) -> Splits | None:
        """With a finer division of one dimension; None where that cannot be.

        The new division must refine the one that is there, no part of it may be empty
        for certain, and it must not use the devices that divide another dimension.
        """
        if split.parts > size or not split.refines(self.dims[dim], size):
            return None
        finer = self.with_split(dim, split)
        return finer if finer.is_even else None

    def to_sharding(self) -> TileSharding:
        """The sharding that says this, in XLA's normal form."""
        return _sharding(self)


@lru_cache(maxsize=_REMEMBERED)
def _is_even(splits: Splits) -> bool:
    if sum(split is not None for split in splits.dims) == 1:
        (split,) = (split for split in splits.dims if split is not None)
        times = Counter(split.part_of)
    else:
        times = Counter(map(splits.tile_of, range(splits.devices)))
    return len(times) == splits.tiles and len(set(times.values())) == 1


@lru_cache(maxsize=_REMEMBERED)
def splits_of(
    sharding: TileSharding | MeshSharding, rank: int, devices: int
) -> Splits | None:
    """The view of a sharding of an array over devices 0 to devices - 1.

    None for one that does not fit these, or that says something else.
    """
    if isinstance(sharding, MeshSharding):
        return _of_mesh(sharding, rank, devices)
    if sharding.kind == "replicated":
        return Splits.replicated(rank, devices)
    tile = sharding.tile
    if tile is None or any(kind != "replicated" for kind in sharding.last_types):
        return None
    if len(tile.dims) - len(sharding.last_types) != rank:
        return None
    ids = tile.ids()
    if sorted(ids) != list(range(devices)):
        return None
    strides = row_major_strides(tile.dims)
    dims: list[Split | None] = []
    for parts, stride in zip(tile.dims[:rank], strides[:rank], strict=True):
        part_of = [0] * devices
        for place, device in enumerate(ids):
            part_of[device] = place // stride % parts
        dims.append(Split(parts, tuple(part_of)) if parts > 1 else None)
    return Splits(devices, tuple(dims))


def leaf_splits(
    sharding: Sharding, leaf: int, rank: int, devices: int
) -> Splits | None:
    """The view of one leaf of what `for_shape` returns; None where there is none."""
    if isinstance(sharding, TupleSharding):
        if leaf >= len(sharding.elements):
            return None
        return splits_of(sharding.elements[leaf], rank, devices)
    return splits_of(sharding, rank, devices)


def _of_mesh(sharding: MeshSharding, rank: int, devices: int) -> Splits | None:
    mesh = sharding.mesh
    if mesh.is_maximal or sharding.manual or sharding.unreduced:
        return None
    if not sharding.dimensions:
        return Splits.replicated(rank, devices)
    ids = mesh.ids()
    if len(sharding.dimensions) != rank or sorted(ids) != list(range(devices)):
        return None
    strides = row_major_strides(mesh.sizes)
    dims: list[Split | None] = []
    for dimension in sharding.dimensions:
        parts, part_of = 1, [0] * devices
        for axis in dimension.axes:
            whole = mesh.sizes[axis.index]
            size = whole if axis.size is None else axis.size
            step = strides[axis.index] * (whole // (axis.pre_size * size))
            for place, device in enumerate(ids):
                part_of[device] = part_of[device] * size + place // step % size
            parts *= size
        dims.append(Split(parts, tuple(part_of)) if parts > 1 else None)
    return Splits(devices, tuple(dims))


@lru_cache(maxsize=_REMEMBERED)
def _sharding(splits: Splits) -> TileSharding:
    if splits.is_replicated:
        return TileSharding("replicated")
    ids = sorted(range(splits.devices), key=lambda k: (splits.tile_of(k), k))
    dims, copies = splits.parts, splits.devices // splits.tiles
    types: tuple[str, ...] = ()
    if copies > 1:
        dims, types = (*dims, copies), ("replicated",)
    kind, tile, types = normal_subgroups(Tile(dims, iota_of(ids) or tuple(ids)), types)
    return TileSharding(kind, tile, types)


def iota_of(ids: Sequence[int]) -> Iota | None:
    """The permuted iota that lists these devices; None where there is none."""
    # Read sizes and strides from the last dimension to the first one.
    levels: list[tuple[int, int]] = []
    block = 1
    while block < len(ids):
        stride = ids[block] - ids[0]
        size = 1
        while size * block < len(ids) and ids[size * block] - ids[0] == size * stride:
            size += 1
        if stride < 1 or len(ids) % (size * block):
            return None
        levels.append((stride, size))
        block *= size
    # Strides must be those of one row-major grid, in any order.
    descending = sorted(levels, reverse=True)
    reshape = [size for _, size in descending]
    if [stride for stride, _ in descending] != row_major_strides(reshape):
        return None
    if any(one == other for one, other in pairwise(descending)):
        return None
    found = Iota.of(reshape, [descending.index(level) for level in levels[::-1]])
    return found if found.ids() == list(ids) else None
