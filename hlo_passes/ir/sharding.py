"""Shardings: how the elements of an array are spread over devices.

    {replicated}   {maximal device=1}   {manual}   {unknown}   {unreduced}
    {devices=[2,1]0,1}   {devices=[2,1,2]<=[4] last_tile_dim_replicate}
    {mesh['x'=2,'y'=2], [{'x'}, {'y', ?}]}
    {{replicated}, {devices=[2]<=[2]}}                a tuple: one per leaf

Reading brings a sharding into XLA's normal form (`sharding_normal_form.py`). Source:
openxla/xla `xla/hlo/ir/hlo_sharding.cc`, `named_sharding.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_passes.ir.device_tiles import (
    Axis,
    Iota,
    Mesh,
    axes_problem,
    read_axes,
    read_axis,
    read_iota,
    read_mesh,
    read_sizes,
    sees_mesh,
)
from hlo_passes.ir.metadata import Metadata, read_metadata_list
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding_normal_form import Tile, normal_subgroups
from hlo_passes.ir.value_cursor import ValueCursor

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: Whole kinds, the strongest first: XLA keeps the first one that is written.
_KINDS: Final = ("replicated", "maximal", "manual", "unknown", "unreduced")
_SUBGROUP_TYPES: Final = ("maximal", "replicated", "manual", "unreduced")
_REDUCTIONS: Final = ("sum", "max", "min")
_REMEMBERED_VALUES: Final = 4096


def _metadata_texts(metadata: Sequence[Metadata], *, as_list: bool) -> str:
    if len(metadata) == 1 and not as_list:
        return f"metadata={{{metadata[0].fields_text()}}}"
    return f"metadata={{{', '.join(f'{{{m.fields_text()}}}' for m in metadata)}}}"


@dataclass(frozen=True, slots=True)
class TileSharding:
    """A sharding by kind.

    `kind` is 'replicated', 'maximal', 'manual', 'unknown', 'unreduced' or 'tiled'.
    `tile` is set for 'tiled': its dimensions and the devices in them. `last_types`
    name what the last dimensions of the tile mean ('replicated', 'manual', ...);
    `shard_group` is ('shard_as', 3) or ('shard_like', 3). Maximal has one `device`.
    """

    kind: str
    tile: Tile | None = None
    last_types: tuple[str, ...] = ()
    device: int | None = None
    shard_group: tuple[str, int] | None = None
    metadata: tuple[Metadata, ...] = ()

    def to_text(self) -> str:
        """The braces as XLA prints them."""
        parts = [self._kind_text()]
        if self.last_types == ("replicated",):
            parts.append("last_tile_dim_replicate")
        elif self.last_types:
            parts.append(f"last_tile_dims={{{', '.join(self.last_types)}}}")
        if self.shard_group:
            parts.append(f"{self.shard_group[0]} {self.shard_group[1]}")
        if self.metadata:
            parts.append(_metadata_texts(self.metadata, as_list=False))
        return f"{{{' '.join(parts)}}}"

    def _kind_text(self) -> str:
        if self.tile is not None:
            return f"devices={self.tile.to_text()}"
        return self.kind if self.device is None else f"maximal device={self.device}"


@dataclass(frozen=True, slots=True)
class MeshDimension:
    """The axes over which one dimension is split; `is_open`: more may be added."""

    axes: tuple[Axis, ...] = ()
    is_open: bool = False

    def to_text(self, mesh: Mesh) -> str:
        """`{'x', ?}`."""
        texts = [axis.to_text(mesh) for axis in self.axes]
        return f"{{{', '.join(texts + ['?'] * self.is_open)}}}"


@dataclass(frozen=True, slots=True)
class MeshSharding:
    """A sharding over the axes of a mesh."""

    mesh: Mesh
    dimensions: tuple[MeshDimension, ...] = ()
    replicated: tuple[Axis, ...] = ()
    unreduced: tuple[Axis, ...] = ()
    manual: tuple[Axis, ...] = ()
    reduction: str = "sum"
    metadata: tuple[Metadata, ...] = ()

    def to_text(self) -> str:
        """The braces as XLA prints them."""
        parts = [self.mesh.to_text()]
        if not self.mesh.is_maximal:
            parts += self._axes_texts()
        if self.metadata:
            parts.append(_metadata_texts(self.metadata, as_list=True))
        return f"{{{', '.join(parts)}}}"

    def _axes_texts(self) -> list[str]:
        if not self.dimensions:
            if not (self.replicated or self.unreduced or self.manual):
                return ["replicated"]
            if self._whole(self.unreduced):
                return [self._whole_unreduced_text()]
            if self._whole(self.manual):
                return ["manual"]
        dimensions = ", ".join(d.to_text(self.mesh) for d in self.dimensions)
        operation = "" if self.reduction == "sum" else self.reduction
        return [f"[{dimensions}]"] + [
            f"{name}={prefix}{self._list_text(axes)}"
            for name, prefix, axes in (
                ("replicated", "", self.replicated),
                ("unreduced", operation, self.unreduced),
                ("manual", "", self.manual),
            )
            if axes
        ]

    def _whole_unreduced_text(self) -> str:
        operation = "" if self.reduction == "sum" else f"={self.reduction}"
        some = len(self.unreduced) < len(self.mesh.axes)
        return f"unreduced{operation}{self._list_text(self.unreduced) if some else ''}"

    def _list_text(self, axes: Sequence[Axis]) -> str:
        return f"{{{', '.join(axis.to_text(self.mesh) for axis in axes)}}}"

    def _whole(self, axes: Sequence[Axis]) -> bool:
        """Whether these are all axes of the mesh in order, those of size 1 optional."""
        listed = [axis.index for axis in axes if axis.size is None]
        needed = [
            k for k, size in enumerate(self.mesh.sizes) if size != 1 or k in listed
        ]
        return bool(axes) and len(listed) == len(axes) and listed == needed


@dataclass(frozen=True, slots=True)
class TupleSharding:
    """One sharding per leaf of a tuple, depth first."""

    elements: tuple[TileSharding | MeshSharding, ...] = ()

    def to_text(self) -> str:
        """The braces as XLA prints them; every fifth element is numbered."""
        texts = [element.to_text() for element in self.elements]
        for k in range(5, len(texts), 5):
            texts[k] = f"/*index={k}*/{texts[k]}"
        return f"{{{', '.join(texts)}}}"


Sharding = TileSharding | MeshSharding | TupleSharding


def for_shape(sharding: Sharding, shape: Shape) -> Sharding:
    """The sharding as XLA keeps it on an instruction of this shape.

    One sharding on a tuple applies to every leaf (an empty tuple counts as one).
    """
    if not shape.is_tuple or isinstance(sharding, TupleSharding):
        return sharding
    return TupleSharding((sharding,) * (sum(1 for _ in shape.leaves()) or 1))


# -- reading -------------------------------------------------------------------


@lru_cache(maxsize=_REMEMBERED_VALUES)
def parse_sharding(text: str) -> Sharding:
    """The sharding that `text` spells, braces included. Raises ParseError P220."""
    cursor = ValueCursor(text, "P220")
    sharding = read_sharding(cursor)
    cursor.end()
    return sharding


def read_sharding(cursor: ValueCursor) -> Sharding:
    """One sharding, or a tuple of them."""
    start = cursor.skip()
    cursor.expect("{", "before a sharding")
    if not cursor.sees("{") and not cursor.sees("}"):
        cursor.at = start
        return _read_single(cursor)
    cursor.at = start
    return TupleSharding(tuple(cursor.items("{", "}", lambda: _read_single(cursor))))


def _read_single(cursor: ValueCursor) -> TileSharding | MeshSharding:
    cursor.expect("{", "before a sharding")
    if sees_mesh(cursor):
        return _read_mesh_sharding(cursor)
    return _TileReader(cursor).read()


class _TileReader:
    """Collects the words of a sharding without mesh, in any order."""

    def __init__(self, cursor: ValueCursor) -> None:
        self.cursor = cursor
        self.start = cursor.skip()
        self.words: set[str] = set()
        self.dims: tuple[int, ...] = ()
        self.devices: Iota | tuple[int, ...] = ()
        self.last_types: tuple[str, ...] = ()
        self.groups: dict[str, int] = {}
        self.metadata: tuple[Metadata, ...] = ()

    def read(self) -> TileSharding:
        cursor = self.cursor
        while not cursor.eat("}"):
            at = cursor.skip()
            match = cursor.take(_WORD)
            word = match[0] if match else ""
            if word and cursor.text.startswith("=", cursor.at):
                cursor.at += 1
                self._read_assigned(word, at)
            elif word in (*_KINDS, "last_tile_dim_replicate"):
                self.words.add(word)
            elif word in ("shard_as", "shard_like"):
                self.groups[word] = self.group_id = cursor.integer()
            else:
                cursor.fail("unexpected text in a sharding", at=at)
        group: tuple[str, int] | None = None
        if self.groups:
            name = "shard_as" if "shard_as" in self.groups else "shard_like"
            group = (name, self.group_id)
        return self._result(group)

    def _read_assigned(self, name: str, at: int) -> None:
        cursor = self.cursor
        if name == "device":
            self.devices = (cursor.integer("a device id"),)
        elif name == "devices":
            if self.dims:
                cursor.fail("devices is repeated", at=at)
            self.dims = read_sizes(cursor)
            if cursor.eat("<="):
                self.devices = read_iota(cursor)
            else:
                self.devices = (cursor.integer("a device id"),)
                found = list(self.devices)
                while cursor.eat(","):
                    found.append(cursor.integer("a device id"))
                self.devices = tuple(found)
        elif name == "metadata":
            self.metadata += read_metadata_list(cursor)
        elif name == "last_tile_dims":
            self.words.add(name)
            self.last_types += tuple(cursor.items("{", "}", self._read_type))
        else:
            cursor.fail(
                f"a sharding has no {name}=",
                at=at,
                hint="device=, devices=, last_tile_dims= or metadata=",
            )

    def _read_type(self) -> str:
        at = self.cursor.skip()
        word = self.cursor.word("a kind of dimension")
        if word not in _SUBGROUP_TYPES:
            self.cursor.fail(
                f"unknown kind {word}", at=at, hint=f"one of {_SUBGROUP_TYPES}"
            )
        return word

    def _result(self, group: tuple[str, int] | None) -> TileSharding:
        explicit = isinstance(self.devices, tuple) and self.devices
        for kind in _KINDS:
            if kind not in self.words:
                continue
            if kind == "maximal":
                devices = [] if isinstance(self.devices, Iota) else list(self.devices)
                if len(devices) != 1:
                    self._fail("a maximal sharding must have exactly one device")
                return TileSharding(kind, None, (), devices[0], group, self.metadata)
            if explicit:
                self._fail(f"a {kind} sharding has no devices")
            return TileSharding(kind, None, (), None, group, self.metadata)
        kind, tile, types = normal_subgroups(self._tile(), self._types())
        return TileSharding(kind, tile, types, None, group, self.metadata)

    def _tile(self) -> Tile:
        if not self.dims:
            self._fail("a sharding needs devices=[...]")
        tile = Tile(self.dims, self.devices)
        if isinstance(self.devices, tuple) and len(self.devices) < 2:
            self._fail("a tiled sharding must have more than one device")
        if tile.device_count != tile.size:
            self._fail(f"{tile.device_count} devices do not fill a tile of {tile.size}")
        return tile

    def _types(self) -> tuple[str, ...]:
        types = self.last_types
        if "last_tile_dim_replicate" in self.words:
            if types:
                self._fail("last_tile_dim_replicate besides last_tile_dims")
            types = ("replicated",)
        if len(types) > len(self.dims):
            self._fail(f"{len(types)} last dimensions in a tile of {len(self.dims)}")
        return types

    def _fail(self, message: str) -> None:
        self.cursor.fail(message, at=self.start)


# -- reading shardings over a mesh ---------------------------------------------


def _read_mesh_sharding(cursor: ValueCursor) -> MeshSharding:
    """`mesh[...], [{'x'}, {}], replicated={'y'}}`, after the opening brace."""
    start = cursor.skip()
    mesh = read_mesh(cursor)
    lists: dict[str, tuple[Axis, ...]] = {}
    dimensions: tuple[MeshDimension, ...] = ()
    reduction = "sum"
    if not mesh.is_maximal:
        cursor.eat(",")
        if cursor.sees("["):
            dimensions = tuple(
                cursor.items("[", "]", lambda: _read_dimension(cursor, mesh))
            )
            reduction, metadata = _read_lists(cursor, mesh, lists)
        else:
            reduction = _read_whole(cursor, mesh, lists)
            metadata = _read_last_metadata(cursor)
    else:
        metadata = _read_last_metadata(cursor)
    cursor.expect("}", "at the end of a sharding")
    _check_axes(cursor, start, dimensions, lists)
    return MeshSharding(
        mesh,
        dimensions,
        lists.get("replicated", ()),
        lists.get("unreduced", ()),
        lists.get("manual", ()),
        reduction,
        metadata,
    )


def _read_last_metadata(cursor: ValueCursor) -> tuple[Metadata, ...]:
    if not cursor.eat(","):
        return ()
    at = cursor.skip()
    if cursor.attribute_name() != "metadata":
        cursor.fail("expected metadata=", at=at)
    return read_metadata_list(cursor)


def _read_dimension(cursor: ValueCursor, mesh: Mesh) -> MeshDimension:
    start = cursor.skip()
    is_open = False

    def item() -> Axis | None:
        nonlocal is_open
        if is_open:
            cursor.fail("'?' is the last in its list")
        if cursor.eat("?"):
            is_open = True
            return None
        return read_axis(cursor, mesh)

    found = cursor.items("{", "}", item)
    axes = tuple(axis for axis in found if axis is not None)
    problem = axes_problem(axes)
    if problem:
        cursor.fail(problem, at=start)
    return MeshDimension(axes, is_open)


def _read_whole(
    cursor: ValueCursor, mesh: Mesh, lists: dict[str, tuple[Axis, ...]]
) -> str:
    """`replicated`, `manual` or `unreduced` for the whole mesh; the reduction."""
    at = cursor.skip()
    word = cursor.word("dimensions in brackets, replicated, manual or unreduced")
    everything = tuple(Axis(k) for k in range(len(mesh.axes)))
    reduction = "sum"
    if word == "unreduced":
        if cursor.eat("="):
            reduction = _read_reduction(cursor)
        lists[word] = read_axes(cursor, mesh) if cursor.sees("{") else everything
    elif word == "manual":
        lists[word] = everything
    elif word != "replicated":
        cursor.fail(f"unexpected {word} in a sharding", at=at)
    if word != "replicated" and not mesh.axes:
        cursor.fail(f"{word} needs a mesh with axes", at=at)
    return reduction


def _read_reduction(cursor: ValueCursor) -> str:
    at = cursor.skip()
    word = cursor.word("sum, max or min")
    if word not in _REDUCTIONS:
        cursor.fail(f"unknown reduction {word}", at=at, hint="sum, max or min")
    return word


def _read_lists(
    cursor: ValueCursor, mesh: Mesh, lists: dict[str, tuple[Axis, ...]]
) -> tuple[str, tuple[Metadata, ...]]:
    """`, replicated={'y'}, unreduced=max{'x'}, manual={}, metadata={}`."""
    metadata: tuple[Metadata, ...] = ()
    reduction = "sum"
    while cursor.eat(","):
        at = cursor.skip()
        name = cursor.attribute_name()
        if name == "metadata":
            metadata += read_metadata_list(cursor)
        elif name not in ("replicated", "unreduced", "manual"):
            cursor.fail(
                f"a sharding over a mesh has no {name}=",
                at=at,
                hint="replicated=, unreduced=, manual= or metadata=",
            )
        else:
            if name in lists:
                cursor.fail(f"{name} is repeated", at=at)
            if name == "unreduced" and not cursor.sees("{"):
                reduction = _read_reduction(cursor)
            lists[name] = read_axes(cursor, mesh)
    return reduction, metadata


def _check_axes(
    cursor: ValueCursor,
    start: int,
    dimensions: Sequence[MeshDimension],
    lists: dict[str, tuple[Axis, ...]],
) -> None:
    """Check that every part of the mesh is used once, and lists are in its order."""
    for name, axes in lists.items():
        if sorted(axes, key=lambda a: (a.index, a.pre_size)) != list(axes):
            cursor.fail(f"the {name} axes are not in the order of the mesh", at=start)
    everything = [axis for d in dimensions for axis in d.axes]
    everything += [axis for axes in lists.values() for axis in axes]
    problem = axes_problem(everything, mergeable=True)
    if problem:
        cursor.fail(problem, at=start)


# -- domain --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Domain:
    """`domain=` of a domain instruction: the shardings on its two sides."""

    entry: Sharding
    exit: Sharding

    def to_text(self) -> str:
        """`{kind="sharding", entry={...}, exit={...}}`."""
        return (
            f'{{kind="sharding", entry={self.entry.to_text()}, '
            f"exit={self.exit.to_text()}}}"
        )


def parse_domain(text: str) -> Domain:
    """The domain that `text` spells. Raises ParseError P221."""
    cursor = ValueCursor(text, "P221")
    start = cursor.skip()
    found: dict[str, Sharding | str] = {}
    cursor.expect("{", "before a domain")
    while not cursor.eat("}"):
        cursor.eat(",")
        at = cursor.skip()
        name = cursor.attribute_name()
        if name in found or name not in ("kind", "entry", "exit"):
            cursor.fail(f"unexpected {name} in a domain", at=at)
        found[name] = cursor.string() if name == "kind" else read_sharding(cursor)
    cursor.end()
    entry, exit_ = found.get("entry"), found.get("exit")
    if found.get("kind") != "sharding" or entry is None or exit_ is None:
        cursor.fail('a domain has kind="sharding", entry and exit', at=start)
    if isinstance(entry, str) or isinstance(exit_, str):
        cursor.fail("entry and exit are shardings", at=start)
    return Domain(entry, exit_)
