"""Device orders: permuted iotas and meshes of named axes.

    [2,4]<=[4,2]T(1,0)          arange(8).reshape(4,2).transpose(1,0).reshape(2,4)
    mesh['x'=2,'y'=4]           arange(8).reshape(2,4), axes named
    mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0))
    maximal_mesh[device_id=3]

Replica groups and shardings share them. Source: openxla/xla
`xla/hlo/ir/tile_assignment.cc`, `xla/hlo/ir/mesh_and_axis.cc` (Aug 2026).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Final

from hlo_passes.ir.c_strings import escape
from hlo_passes.ir.value_cursor import ValueCursor

#: Larger device orders are refused: expanding them would only fill memory.
MAXIMUM_DEVICES: Final = 1 << 20

#: One device: XLA wrote the first word until the middle of 2026, now the second.
_SINGLE_DEVICE: Final = re.compile(r"(maximal_mesh|single_device)(?=[ \t\r\n]*\[)")
_MESH_WORD: Final = re.compile(r"(?:maximal_mesh|single_device|mesh)(?=[ \t\r\n]*\[)")


def row_major_sums(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """All sums of index x stride, the last index running fastest."""
    sums = [0]
    for size, stride in zip(sizes, strides, strict=True):
        sums = [s + k * stride for s in sums for k in range(size)]
    return sums


def row_major_strides(sizes: Sequence[int]) -> list[int]:
    """The distance between neighbors along each dimension."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return strides[::-1]


# -- permuted iota -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Iota:
    """`arange(n).reshape(reshape).transpose(permutation)`, flat; kept canonical.

    Canonical: no dimension of size 1, no neighbors that stay neighbors, at least one
    dimension. Two orders that are equal have one canonical form.
    """

    reshape: tuple[int, ...]
    permutation: tuple[int, ...]

    @staticmethod
    def of(reshape: Sequence[int], permutation: Sequence[int] | None = None) -> Iota:
        """The canonical form; without a permutation the identity."""
        if permutation is None or len(reshape) == 1:
            return Iota((prod(reshape),), (0,))
        return _canonical(reshape, permutation)

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(self.reshape)

    def ids(self) -> list[int]:
        """The device ids in order."""
        strides = row_major_strides(self.reshape)
        order = self.permutation
        return row_major_sums(
            [self.reshape[d] for d in order], [strides[d] for d in order]
        )

    def to_text(self) -> str:
        """`[8]` or `[4,2]T(1,0)`."""
        dims = ",".join(map(str, self.reshape))
        if len(self.reshape) == 1:
            return f"[{dims}]"
        return f"[{dims}]T({','.join(map(str, self.permutation))})"


def _canonical(reshape: Sequence[int], permutation: Sequence[int]) -> Iota:
    """Merge runs that stay together after dropping dimensions of size 1."""
    order = [d for d in permutation if reshape[d] != 1]
    runs: list[list[int]] = []
    kept = sorted(order)
    follows = dict(pairwise(kept))
    for d in order:
        if runs and follows.get(runs[-1][-1]) == d:
            runs[-1].append(d)
        else:
            runs.append([d])
    if len(runs) <= 1:
        return Iota((prod(reshape),), (0,))
    by_place = sorted(range(len(runs)), key=lambda k: runs[k][0])
    rank = {run: place for place, run in enumerate(by_place)}
    return Iota(
        tuple(prod(reshape[d] for d in runs[k]) for k in by_place),
        tuple(rank[k] for k in range(len(runs))),
    )


def read_sizes(cursor: ValueCursor) -> tuple[int, ...]:
    """`[2,4]`: at least one, all positive, not more than MAXIMUM_DEVICES in all."""
    start = cursor.skip()
    sizes = cursor.integers("[", "]")
    check_sizes(cursor, start, sizes)
    if not sizes:
        cursor.fail("expected at least one size", at=start)
    return sizes


def check_sizes(cursor: ValueCursor, start: int, sizes: Sequence[int]) -> None:
    """All positive, and not more than MAXIMUM_DEVICES in all."""
    total = 1
    for size in sizes:
        if size < 1:
            cursor.fail(f"size {size} is not positive", at=start)
        total *= size
        if total > MAXIMUM_DEVICES:
            cursor.fail(f"more than {MAXIMUM_DEVICES} devices", at=start)


def read_iota(cursor: ValueCursor) -> Iota:
    """`[8]` or `[4,2]T(1,0)`."""
    reshape = read_sizes(cursor)
    if len(reshape) == 1:
        return Iota.of(reshape)
    at = cursor.skip()
    if not cursor.eat("T"):
        cursor.fail("expected 'T(' and the order of the dimensions")
    permutation = cursor.integers("(", ")")
    if sorted(permutation) != list(range(len(reshape))):
        cursor.fail(
            f"T({','.join(map(str, permutation))}) is not an order of {len(reshape)} "
            "dimensions",
            at=at,
        )
    return Iota.of(reshape, permutation)


# -- meshes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices in a grid of named axes.

    `devices` is an Iota or explicit ids (flat, row-major over the axes). A maximal mesh
    is one device without axes, written with `single_word`; the empty mesh has neither.
    """

    axes: tuple[tuple[str, int], ...] = ()
    devices: Iota | tuple[int, ...] = ()
    single_word: str = field(default="maximal_mesh", compare=False)

    @property
    def is_maximal(self) -> bool:
        """Whether this is one single device."""
        return not self.axes and self.devices != ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axis sizes."""
        return tuple(size for _, size in self.axes)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return prod(self.sizes) if self.axes else int(self.is_maximal)

    def ids(self) -> list[int]:
        """Flat device ids, row-major over the axes."""
        devices = self.devices
        return devices.ids() if isinstance(devices, Iota) else list(devices)

    def to_text(self) -> str:
        """`mesh['x'=2,'y'=4]`, `maximal_mesh[device_id=3]`."""
        if self.is_maximal:
            return f"{self.single_word}[device_id={self.ids()[0]}]"
        text = f"mesh[{','.join(f'{_quoted(n)}={s}' for n, s in self.axes)}]"
        if isinstance(self.devices, Iota):
            if len(self.devices.reshape) > 1:
                text += f", device_ids=({self.devices.to_text()})"
        elif self.devices:
            text += f", device_ids=({','.join(map(str, self.devices))})"
        return text


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh, or the factor `size` of it that comes after `pre_size`."""

    index: int
    pre_size: int = 1
    size: int | None = None

    def to_text(self, mesh: Mesh) -> str:
        """`'x'` or `'x':(2)4`."""
        name = _quoted(mesh.axes[self.index][0])
        return name if self.size is None else f"{name}:({self.pre_size}){self.size}"


def _quoted(name: str) -> str:
    return f"'{escape(name)}'"


def sees_mesh(cursor: ValueCursor) -> bool:
    """Whether a mesh comes next."""
    return cursor.peek(_MESH_WORD) is not None


def read_mesh(cursor: ValueCursor) -> Mesh:
    """`mesh[...]` with its device ids, or `maximal_mesh[device_id=3]`."""
    single = cursor.take(_SINGLE_DEVICE)
    if single:
        cursor.expect("[")
        at = cursor.skip()
        if cursor.attribute_name() != "device_id":
            cursor.fail("expected device_id=", at=at)
        at = cursor.skip()
        device = cursor.integer()
        if device < 0:
            cursor.fail("a device id must not be negative", at=at)
        cursor.expect("]")
        return Mesh(devices=(device,), single_word=single[1])
    cursor.expect("mesh")
    start = cursor.skip()

    def axis() -> tuple[str, int]:
        name = cursor.string()
        cursor.expect("=", "after an axis name")
        return name, cursor.integer()

    axes = tuple(cursor.items("[", "]", axis))
    if not axes:
        return Mesh()
    if len({name for name, _ in axes}) != len(axes):
        cursor.fail("two axes of the mesh have the same name", at=start)
    sizes = [size for _, size in axes]
    check_sizes(cursor, start, sizes)
    end = cursor.at
    if cursor.eat(",") and cursor.eat("device_ids="):
        return Mesh(axes, _read_device_ids(cursor, prod(sizes)))
    cursor.at = end
    return Mesh(axes, Iota.of((prod(sizes),)))


def _read_device_ids(cursor: ValueCursor, count: int) -> Iota | tuple[int, ...]:
    start = cursor.skip()
    devices: Iota | tuple[int, ...]
    end_brace = cursor.at + 1
    cursor.expect("(")
    if cursor.sees("["):
        devices = read_iota(cursor)
        found = devices.size
        cursor.expect(")")
    else:
        cursor.at = end_brace - 1
        devices = cursor.integers("(", ")")
        found = len(devices)
    if found != count:
        cursor.fail(f"the mesh has {count} devices, {found} are listed", at=start)
    if not isinstance(devices, Iota):
        if sorted(devices) != list(range(count)):
            cursor.fail("the device ids are not a permutation of 0 to n-1", at=start)
        if list(devices) == list(range(count)):
            cursor.fail(
                "the device ids are in their natural order",
                at=start,
                hint="leave device_ids out",
            )
    return devices


def read_axis(cursor: ValueCursor, mesh: Mesh) -> Axis:
    """`'x'`, `'x':(2)4`, or the number of an axis in quotes."""
    at = cursor.skip()
    name = cursor.string()
    names = [axis_name for axis_name, _ in mesh.axes]
    if name in names:
        index = names.index(name)
    elif name.isascii() and name.isdigit() and len(name) <= 4:
        index = int(name)
    else:
        cursor.fail(f"the mesh has no axis '{name}'", at=at)
    if index >= len(names):
        cursor.fail(f"the mesh has no axis {index}", at=at)
    if not cursor.eat(":"):
        return Axis(index)
    cursor.expect("(", "before what comes before a sub-axis")
    pre_size = cursor.integer()
    cursor.expect(")")
    size = cursor.integer()
    axis_size = mesh.axes[index][1]
    if pre_size < 1 or size < 2 or size >= axis_size or axis_size % (pre_size * size):
        cursor.fail(
            f"({pre_size}){size} is not a factor of an axis of {axis_size}", at=at
        )
    return Axis(index, pre_size, size)


def read_axes(cursor: ValueCursor, mesh: Mesh) -> tuple[Axis, ...]:
    """`{'x','y':(1)2}`: distinct parts of the mesh, merged where possible."""
    start = cursor.skip()
    axes = tuple(cursor.items("{", "}", lambda: read_axis(cursor, mesh)))
    problem = axes_problem(axes)
    if problem:
        cursor.fail(problem, at=start)
    return axes


def axes_problem(axes: Sequence[Axis], *, mergeable: bool = False) -> str:
    """Why these axes cannot be listed together, '' when they can.

    `mergeable` allows neighbors that could be written as one.
    """
    by_index: dict[int, list[Axis]] = {}
    for axis in axes:
        by_index.setdefault(axis.index, []).append(axis)
    for parts in by_index.values():
        if len(parts) == 1:
            continue
        if any(part.size is None for part in parts):
            return "an axis is named twice"
        parts.sort(key=lambda part: part.pre_size)
        for low, high in pairwise(parts):
            reach = low.pre_size * (low.size or 1)
            if high.pre_size < reach or high.pre_size % reach:
                return "two parts of an axis overlap"
    if not mergeable:
        for low, high in pairwise(axes):
            if (
                low.index == high.index
                and low.pre_size * (low.size or 1) == high.pre_size
            ):
                return "two adjacent parts of an axis must be written as one"
    return ""


def group_over_axes(mesh: Mesh, axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """Device groups: each runs over `axes`, in the order in which they are listed."""
    ids = mesh.ids()
    if not mesh.axes:
        return [(device,) for device in ids]
    dims, picked = _refine(mesh.sizes, axes)
    strides = row_major_strides(dims)
    kept = [d for d in range(len(dims)) if d not in picked]
    bases = row_major_sums([dims[d] for d in kept], [strides[d] for d in kept])
    offsets = row_major_sums([dims[d] for d in picked], [strides[d] for d in picked])
    return [tuple(ids[base + offset] for offset in offsets) for base in bases]


def _refine(sizes: Sequence[int], axes: Sequence[Axis]) -> tuple[list[int], list[int]]:
    """Split mesh axes so that every listed (sub-)axis is a dimension of its own.

    Returns the refined sizes and, per listed axis, the number of its dimension.
    """
    dims: list[int] = []
    place: dict[Axis, int] = {}
    for index, size in enumerate(sizes):
        reach = 1
        parts = sorted(
            (a for a in axes if a.index == index), key=lambda part: part.pre_size
        )
        for part in parts:
            if part.pre_size > reach:
                dims.append(part.pre_size // reach)
            place[part] = len(dims)
            dims.append(size if part.size is None else part.size)
            reach = part.pre_size * dims[-1]
        if reach < size:
            dims.append(size // reach)
        elif not parts:
            dims.append(size)
    return dims, [place[axis] for axis in axes]
