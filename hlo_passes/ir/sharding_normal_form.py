"""The normal form of a tiled sharding.

    {devices=[1,1,2]<=[2] last_tile_dim_replicate}          -> {replicated}
    {devices=[2,1,2,2]<=[8] last_tile_dims={replicated, manual}}
        -> {devices=[2,1,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={manual, replicated}}

Last dimensions of size 1 are dropped, those of one type merged, types sorted, and
devices that hold the same data are sorted among themselves. Source: openxla/xla
`xla/hlo/ir/hlo_sharding.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from hlo_passes.ir.device_tiles import Iota, row_major_strides, row_major_sums

#: Types of last dimensions in the order of the normal form.
_TYPE_ORDER: Final = ("maximal", "manual", "unreduced", "replicated")
_WHOLE_KINDS: Final = ("manual", "replicated", "unreduced")


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Devices in a grid; equal when dimensions and device ids are."""

    dims: tuple[int, ...]
    devices: Iota | tuple[int, ...]

    @property
    def size(self) -> int:
        """Places in the grid."""
        return prod(self.dims)

    @property
    def device_count(self) -> int:
        """Devices listed."""
        devices = self.devices
        return devices.size if isinstance(devices, Iota) else len(devices)

    def ids(self) -> tuple[int, ...]:
        """Device ids, row-major over the grid."""
        devices = self.devices
        return tuple(devices.ids()) if isinstance(devices, Iota) else devices

    def to_text(self) -> str:
        """`[2,1]0,1` or `[2,2]<=[4]`."""
        dims = ",".join(map(str, self.dims))
        if isinstance(self.devices, Iota):
            return f"[{dims}]<={self.devices.to_text()}"
        return f"[{dims}]{','.join(map(str, self.devices))}"

    def __eq__(self, other: object) -> bool:
        """By dimensions and device ids."""
        if not isinstance(other, Tile):
            return NotImplemented
        return self.dims == other.dims and (
            self.devices == other.devices or self.ids() == other.ids()
        )

    def __hash__(self) -> int:
        """By dimensions and device ids."""
        return hash((self.dims, self.ids()))


def normal_subgroups(
    tile: Tile, types: Sequence[str]
) -> tuple[str, Tile | None, tuple[str, ...]]:
    """(kind, tile, last types) of the normal form; kind 'tiled' keeps its tile."""
    if not types:
        return "tiled", tile, ()
    data_rank = len(tile.dims) - len(types)
    whole = prod(tile.dims[:data_rank]) == 1
    if whole and len(set(types)) == 1 and types[0] in _WHOLE_KINDS:
        return types[0], None, ()
    tile, merged = _merged(tile, types, data_rank)
    if merged == ("replicated",):
        return _partly_replicated(tile)
    if merged == ("manual",) and tile.size == tile.dims[-1]:
        return "manual", None, ()
    if merged and merged[-1] == "replicated":
        kind, sorted_tile, _ = _partly_replicated(tile)
        return kind, sorted_tile, merged
    return "tiled", tile, merged


def _merged(
    tile: Tile, types: Sequence[str], data_rank: int
) -> tuple[Tile, tuple[str, ...]]:
    """Drop last dimensions of size 1, merge those of one type, sort the types."""
    by_type: dict[str, list[int]] = {}
    for k, kind in enumerate(types):
        if tile.dims[data_rank + k] != 1:
            by_type.setdefault(kind, []).append(data_rank + k)
    kept = sum(map(len, by_type.values()))
    if kept == len(types) == 1:
        return tile, tuple(types)
    order = list(range(data_rank))
    dims = list(tile.dims[:data_rank])
    merged = tuple(kind for kind in _TYPE_ORDER if kind in by_type)
    for kind in merged:
        order += by_type[kind]
        dims.append(prod(tile.dims[d] for d in by_type[kind]))
    order += [d for d in range(data_rank, len(tile.dims)) if tile.dims[d] == 1]
    return Tile(tuple(dims), _transposed(tile, order)), merged


def _transposed(tile: Tile, order: Sequence[int]) -> Iota | tuple[int, ...]:
    """The devices in the order of a transposed grid, as an iota where possible."""
    if order == sorted(order):
        return tile.devices
    if isinstance(tile.devices, Iota):
        iota = _transposed_iota(tile.dims, tile.devices, order)
        if iota is not None:
            return iota
    ids = tile.ids()
    strides = row_major_strides(tile.dims)
    places = row_major_sums([tile.dims[d] for d in order], [strides[d] for d in order])
    return tuple(ids[place] for place in places)


def _transposed_iota(
    dims: Sequence[int], iota: Iota, order: Sequence[int]
) -> Iota | None:
    """Split the grid and the iota into common factors, then transpose those."""
    factors: list[tuple[int, int]] = []  # (size, dimension of the grid)
    pieces: dict[int, list[int]] = {d: [] for d in iota.permutation}
    reshaped = [(iota.reshape[d], d) for d in iota.permutation]
    rest_grid, rest_iota = 1, 1
    grid = [(size, k) for k, size in enumerate(dims)]
    grid_at, iota_at = -1, -1
    while True:
        if rest_grid == 1:
            grid_at += 1
            if grid_at == len(grid):
                break
            rest_grid = grid[grid_at][0]
            continue
        if rest_iota == 1:
            iota_at += 1
            rest_iota = reshaped[iota_at][0]
            continue
        common = min(rest_grid, rest_iota)
        if rest_grid % common or rest_iota % common:
            return None
        pieces[reshaped[iota_at][1]].append(len(factors))
        factors.append((common, grid[grid_at][1]))
        rest_grid //= common
        rest_iota //= common
    in_memory = [piece for d in sorted(pieces) for piece in pieces[d]]
    number = {piece: k for k, piece in enumerate(in_memory)}
    wanted = [
        number[k] for d in order for k, (_, owner) in enumerate(factors) if owner == d
    ]
    return Iota.of([factors[piece][0] for piece in in_memory], wanted)


def _partly_replicated(tile: Tile) -> tuple[str, Tile | None, tuple[str, ...]]:
    """Sort the devices along the last dimension, which all hold the same data."""
    group = tile.dims[-1]
    if len(tile.dims) == 1 or group == tile.size:
        return "replicated", None, ()
    if group == 1:
        return "tiled", Tile(tile.dims[:-1], tile.devices), ()
    devices: Iota | tuple[int, ...] | None = None
    if isinstance(tile.devices, Iota):
        devices = _sorted_iota(tile.devices, group)
    if devices is None:
        ids = tile.ids()
        devices = tuple(
            device
            for k in range(0, len(ids), group)
            for device in sorted(ids[k : k + group])
        )
    return "tiled", Tile(tile.dims, devices), ("replicated",)


def _sorted_iota(iota: Iota, group: int) -> Iota | None:
    """The iota with the minor `group` places in ascending order, if that is one."""
    dims, order = list(iota.reshape), list(iota.permutation)
    rest, first = group, len(order)
    while rest > 1:
        first -= 1
        size = dims[order[first]]
        if size > rest:
            if size % rest:
                return None
            split = order[first]
            dims[split : split + 1] = [size // rest, rest]
            order = [d + (d > split) for d in order]
            order.insert(first + 1, split + 1)
            first += 1
            break
        if rest % size:
            return None
        rest //= size
    return Iota.of(dims, order[:first] + sorted(order[first:]))
