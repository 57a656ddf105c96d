"""Replica groups and source-target pairs of collectives.

    replica_groups={{0,1},{2,3}}                     explicit
    replica_groups={}                                everybody, known at run time
    replica_groups=[2,4]<=[4,2]T(1,0)                rows of a permuted iota
    replica_groups=mesh['x'=2,'y'=4] {'x'}           over axes of a mesh
    source_target_pairs={{0,1},{1,0}}

A value keeps the form in which it was read; it compares and hashes by the groups.
Source: openxla/xla `xla/hlo/ir/replica_group.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hlo_passes.ir.device_tiles import (
    Axis,
    Iota,
    Mesh,
    group_over_axes,
    read_axes,
    read_iota,
    read_mesh,
    read_sizes,
    sees_mesh,
)
from hlo_passes.ir.value_cursor import ValueCursor

Groups = tuple[tuple[int, ...], ...]

#: Values are immutable and the same few texts occur often, so each is read once.
_REMEMBERED_VALUES: Final = 4096


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """`[count,size]<=iota`: the rows are the groups."""

    count: int
    size: int
    iota: Iota

    def expand(self) -> Groups:
        """The groups."""
        ids = self.iota.ids()
        return tuple(
            tuple(ids[k : k + self.size]) for k in range(0, len(ids), self.size)
        )

    def to_text(self) -> str:
        """`[2,4]<=[8]`."""
        return f"[{self.count},{self.size}]<={self.iota.to_text()}"


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """`mesh[...] {axes}`: a group runs over the axes."""

    mesh: Mesh
    axes: tuple[Axis, ...]

    def expand(self) -> Groups:
        """The groups."""
        return tuple(group_over_axes(self.mesh, self.axes))

    def to_text(self) -> str:
        """`mesh['x'=2,'y'=4] {'x'}`."""
        axes = ",".join(axis.to_text(self.mesh) for axis in self.axes)
        return f"{self.mesh.to_text()} {{{axes}}}"


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaGroups:
    """Which devices take part in a collective together; equal when the groups are.

    `form` is how it was written: the groups themselves, an IotaGroups or a MeshGroups.
    No groups at all means one group of everybody.
    """

    form: Groups | IotaGroups | MeshGroups
    _expanded: list[Groups] = field(default_factory=list, init=False, repr=False)

    @staticmethod
    def of(groups: Iterable[Iterable[int]] = ()) -> ReplicaGroups:
        """Written out: `{{0,1},{2,3}}`."""
        return ReplicaGroups(tuple(tuple(group) for group in groups))

    @staticmethod
    def of_iota(
        count: int,
        size: int,
        reshape: Iterable[int] | None = None,
        permutation: Iterable[int] | None = None,
    ) -> ReplicaGroups:
        """`[count,size]<=[reshape]T(permutation)`; ValueError when it does not fit."""
        dims = tuple(reshape) if reshape is not None else (count * size,)
        order = tuple(permutation) if permutation is not None else None
        if order is not None and sorted(order) != list(range(len(dims))):
            msg = f"{order} is not an order of {len(dims)} dimensions"
            raise ValueError(msg)
        iota = Iota.of(dims, order)
        if count < 1 or size < 1 or iota.size != count * size or min(dims) < 1:
            msg = f"{count} groups of {size} are not {iota.size} devices"
            raise ValueError(msg)
        return ReplicaGroups(IotaGroups(count, size, iota))

    @property
    def groups(self) -> Groups:
        """The groups, expanded."""
        if isinstance(self.form, tuple):
            return self.form
        if not self._expanded:
            self._expanded.append(self.form.expand())
        return self._expanded[0]

    @property
    def is_empty(self) -> bool:
        """Whether no groups are given: one group of everybody."""
        return not self.groups

    @property
    def count(self) -> int:
        """Number of groups; 0 when none are given."""
        if isinstance(self.form, IotaGroups):
            return self.form.count
        return len(self.groups)

    @property
    def size(self) -> int | None:
        """Devices per group; None when the groups differ or none are given."""
        if isinstance(self.form, IotaGroups):
            return self.form.size
        sizes = {len(group) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def device_count(self) -> int:
        """Ids in all groups together; 0 when no groups are given."""
        if isinstance(self.form, IotaGroups):
            return self.form.iota.size
        return sum(map(len, self.groups))

    @property
    def largest_id(self) -> int:
        """The largest id in all groups; 0 when no groups are given."""
        if isinstance(self.form, IotaGroups):
            return self.form.iota.size - 1
        return max((device for group in self.groups for device in group), default=0)

    def to_text(self) -> str:
        """As XLA prints it, in the form read."""
        if isinstance(self.form, tuple):
            return lists_text(self.form)
        return self.form.to_text()

    def to_explicit_text(self) -> str:
        """Written out, whatever the form."""
        return lists_text(self.groups)

    def __eq__(self, other: object) -> bool:
        """By the groups."""
        if not isinstance(other, ReplicaGroups):
            return NotImplemented
        return self.form == other.form or self.groups == other.groups

    def __hash__(self) -> int:
        """By the groups."""
        return hash(self.groups)

    def __str__(self) -> str:
        """The text."""
        return self.to_text()


@dataclass(frozen=True, slots=True)
class SourceTargetPairs:
    """Which device sends to which in a collective-permute, in the order written."""

    pairs: tuple[tuple[int, int], ...]

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> SourceTargetPairs:
        """From any iterable of pairs."""
        return SourceTargetPairs(tuple((s, t) for s, t in pairs))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(source, target), in order."""
        return iter(self.pairs)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def to_text(self) -> str:
        """`{{0,1},{1,0}}`."""
        return lists_text(self.pairs)

    def __str__(self) -> str:
        """The text."""
        return self.to_text()


def lists_text(lists: Iterable[Iterable[int]]) -> str:
    """`{{0,1},{2,3}}`."""
    return "{" + ",".join(f"{{{','.join(map(str, inner))}}}" for inner in lists) + "}"


@lru_cache(maxsize=_REMEMBERED_VALUES)
def parse_replica_groups(text: str) -> ReplicaGroups:
    """The groups that `text` spells. Raises ParseError P210."""
    cursor = ValueCursor(text, "P210")
    if cursor.sees("{"):
        groups = ReplicaGroups(cursor.integer_lists())
    elif sees_mesh(cursor):
        mesh = read_mesh(cursor)
        axes = read_axes(cursor, mesh)
        groups = ReplicaGroups(MeshGroups(mesh, axes))
    elif cursor.sees("["):
        groups = ReplicaGroups(_read_iota_groups(cursor))
    else:
        cursor.fail(
            "expected replica groups",
            hint="{{0,1},{2,3}}, [2,4]<=[8] or mesh['x'=2,'y'=4] {'x'}",
        )
    cursor.end()
    return groups


def _read_iota_groups(cursor: ValueCursor) -> IotaGroups:
    start = cursor.skip()
    tile = read_sizes(cursor)
    if len(tile) != 2:
        cursor.fail(
            f"{len(tile)} dimensions; replica groups have two", at=start,
            hint="[groups,devices per group]<=[...]",
        )  # fmt: skip
    cursor.expect("<=", "after the number and size of the groups")
    at = cursor.skip()
    iota = read_iota(cursor)
    if iota.size != tile[0] * tile[1]:
        cursor.fail(f"{tile[0]} groups of {tile[1]} are not {iota.size} devices", at=at)
    return IotaGroups(tile[0], tile[1], iota)


@lru_cache(maxsize=_REMEMBERED_VALUES)
def parse_source_target_pairs(text: str) -> SourceTargetPairs:
    """The pairs that `text` spells. Raises ParseError P211."""
    cursor = ValueCursor(text, "P211")

    def pair() -> tuple[int, int]:
        at = cursor.skip()
        ids = cursor.integers()
        if len(ids) != 2:
            cursor.fail(f"a pair has two ids, not {len(ids)}", at=at)
        return ids[0], ids[1]

    pairs = SourceTargetPairs(tuple(cursor.items("{", "}", pair)))
    cursor.end()
    return pairs
