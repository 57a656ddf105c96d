"""Seeded offsets and sizes of ragged all-to-alls that fit together on all devices.

    ragged-all-to-all(%x, %y, %o, %s, %p, %q), all four parameters, groups of two
    device 0:  o = p = [0+a, w+b]  s = q = [m, n]         w = rows for an update
    device 1:  o = p = [w+b, 0+c]  s = q = [n, k]         m, n, k at most w

Update v between the members i and j has the place (i + j) mod n of both, and one size
in both directions. So what was sent can be sent back with the same tables, and again in
a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.dtypes import numpy_dtype
from hlo_passes.runtime.parameter_uses import elements_of_uses, uses
from hlo_passes.runtime.plain.builder import PlainModule, RaggedTables
from hlo_passes.scheduler.checker.participants import Machine, participants_of

#: Opcodes that keep a table as it is.
_SAME: Final = frozenset({"bitcast", "convert", "copy", "reshape"})
#: Which of the four tables are offsets, and which are sizes.
_STARTS, _SIZES = (0, 2), (1, 3)
#: Follows the seed of PCG64, which a parameter's number follows elsewhere.
_STREAM: Final = 1 << 20


def legal_tables(
    plain: PlainModule, source: Module, *, device_count: int, seed: int
) -> dict[Instruction, np.ndarray]:
    """Arrays for the parameters that are tables, (devices, *shape) each.

    Ragged all-to-alls that share a parameter have their tables from one draw. Nothing
    is drawn for those of which a table is computed, or which share tables and have
    other groups, other numbers of updates, or a size where another has an offset.
    """
    found = dict(_roles(plain))
    arrays: dict[Instruction, np.ndarray] = {}
    left = [
        k for k in range(len(plain.ragged)) if len(found[k]) == len(_STARTS + _SIZES)
    ]
    while left:
        together = _connected(left, found)
        left = [k for k in left if k not in together]
        ragged = [plain.ragged[k] for k in together]
        sizes = {found[k][j] for k in together for j in _SIZES}
        starts = {found[k][j] for k in together for j in _STARTS}
        listed = {each.source.attributes.get("replica_groups") for each in ragged}
        counts = {p.shape.element_count for p in (*sizes, *starts)}
        is_one = len(listed) == len(counts) == len({r.members for r in ragged}) == 1
        if not is_one or sizes & starts:
            continue
        seeds = [seed, _STREAM + together[0]]
        first, size = _drawn(ragged, source, device_count, seeds)
        for parameter in (*starts, *sizes):
            kind = numpy_dtype(parameter.shape.element_type)
            values = size if parameter in sizes else first
            shape = (device_count, *parameter.shape.dimensions)
            arrays[parameter] = values.reshape(shape).astype(kind)
    return arrays


def _roles(plain: PlainModule) -> Iterator[tuple[int, list[Instruction]]]:
    """The parameters that are the tables of each ragged all-to-all, in their order."""
    holders: dict[Instruction, Instruction] = {}
    for parameter in plain.module.entry.parameters:
        if parameter.shape.element_type[0] in "su":
            holders[parameter] = parameter
            for value, user in uses(parameter, _same):
                holders.update((heir, parameter) for heir in _same(value, user))
    for number, ragged in enumerate(plain.ragged):
        count = ragged.tables[0].shape.element_count
        found = [holders.get(table) for table in ragged.tables]
        yield number, [p for p in found if p and p.shape.element_count == count]


def _same(value: Instruction, user: Instruction) -> Iterator[Instruction]:
    if user.opcode in _SAME:
        yield user
    elif user.opcode == "tuple":
        for at, operand in enumerate(user.operands):
            if operand is value:
                yield from elements_of_uses(user, at)


def _connected(left: list[int], found: dict[int, list[Instruction]]) -> list[int]:
    """The first of those that are left, and all that share a parameter with it."""
    together = left[:1]
    for one in together:
        together += [
            k
            for k in left
            if k not in together and not set(found[k]).isdisjoint(found[one])
        ]
    return sorted(together)


def _drawn(
    ragged: list[RaggedTables], source: Module, device_count: int, seed: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and sizes, (devices, members, updates) each."""
    members = ragged[0].members
    updates = ragged[0].tables[0].shape.element_count // members
    rows = min(min(each.rows, each.room) for each in ragged)
    width = rows // (members * updates)
    generator = np.random.Generator(np.random.PCG64(seed))
    square = (members, members, updates)
    sizes = generator.integers(0, width + 1, square)
    # Which of the two directions is drawn first does not matter: one is taken.
    upper = np.triu(np.ones((members, members), bool))[..., np.newaxis]
    sizes = np.where(upper, sizes, sizes.transpose(1, 0, 2))
    shifts = generator.integers(0, width - sizes + 1)
    shifts = np.where(upper, shifts, shifts.transpose(1, 0, 2))
    one, other = np.indices((members, members))
    places = (one + other)[..., np.newaxis] % members * updates + np.arange(updates)
    first = places * width + shifts
    machine = Machine(*topology_of(source, device_count=device_count))
    member_of = np.zeros(device_count, np.int64)
    for group in participants_of(ragged[0].source, machine).groups:
        member_of[list(group)] = np.arange(len(group))
    return first[member_of], sizes[member_of]
