"""Which part of a collective's result every device cuts out.

    %table = s32[4] constant({0,2,4,6})
    %k = s32[1] dynamic-slice(%table, %partition-id)      device 3: 6
    %o = s32[] multiply(%k', 4)                           device 3: 24
    dynamic-slice(%all-reduce, %o, %zero)                 part j at device j of a group?

A start of a slice is evaluated for each device. It may be the device's id, an element
of a table at the id or at an element of another table, a multiple of those, a
difference, or a clamp with constant bounds; reshapes, bitcasts, copies and conversions
that lose nothing are looked through. Adds are known only in the one form that makes a
flattened id: replica-id * partitions + partition-id.

Source: openxla/xla `xla/service/collective_opt_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.integers import constant_integer, constant_integers
from hlo_passes.analysis.reshapes import unmodified_dimensions
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import BITS, INTEGRAL

#: Opcodes that hand a value on.
_SAME_VALUE: Final = frozenset({"reshape", "bitcast", "copy"})
_TABLE_TYPES: Final = frozenset({"s32", "u32"})
#: Deeper expressions have no known value.
_DEEPEST: Final = 100

#: The number that an instruction has on the device of an id, None where it has none.
IdReader = Callable[[Instruction, int], int | None]


@dataclass(frozen=True, slots=True)
class Cut:
    """The slice by which every device of a group takes its own part of a result.

    Attributes:
        dynamic_slice: the slice.
        reshape: what is between the collective and the slice, None for nothing.
        dimension: of what is cut, before the reshape.
        group_size: devices of a group, which is the number of parts.
    """

    dynamic_slice: Instruction
    reshape: Instruction | None
    dimension: int
    group_size: int


Groups = tuple[tuple[int, ...], ...]


def own_part(
    collective: Instruction,
    module: Module,
    groups: Groups | None = None,
    *,
    padded: Instruction | None = None,
) -> Cut | str:
    """How each device of an all-reduce or all-gather cuts out its part of the result.

    Part j must go to the device in position j of its group, and nobody may read
    anything else. The text is why it is not so.

    Args:
        collective: whose result is cut.
        module: says how many replicas and partitions there are.
        groups: in place of the collective's own.
        padded: its result with padding, which is cut in its place.
    """
    result = collective if padded is None else padded
    shape = result.shape
    if not shape.is_array or collective.attributes.get("constrain_layout") == "true":
        return "returns a tuple or constrains layouts"
    if all(size == 1 for size in shape.dimensions):
        return "has one element"
    if collective.user_count != 1 or result.user_count != 1:
        return "has several users, or none"
    groups = groups_of(collective) if groups is None else groups
    if len({len(group) for group in groups}) > 1:
        return "has groups of different sizes"
    # Its only reader is the slice, or a reshape whose only reader is the slice.
    user, reshape = result.users[0], None
    if user.opcode == "reshape":
        if user.user_count != 1:
            return "is read by a reshape with several users"
        reshape, user = user, user.users[0]
    if user.opcode != "dynamic-slice" or user.operands[0] not in (result, reshape):
        return "is not read by a dynamic-slice"
    size = _group_size(collective, groups, module)
    if size < 2:
        return "has groups of one device, or of unknown devices"
    # It cuts one dimension into as many parts as there are devices in a group.
    dimension = cut_dimension(user)
    if dimension is None:
        return f"is sliced by %{user.name} along no or several dimensions"
    whole, part = user.operands[0].shape.dimensions[dimension], user.shape.dimensions
    if whole // part[dimension] != size:
        return f"is cut by %{user.name} into parts that are not one per device"
    ids = groups
    if not groups or not _has_flattened_or_replica_ids(collective):
        ids = (tuple(range(size)),)
    offsets = Offsets(id_reader(collective, module, groups))
    if not offsets.count_up(user.operands[dimension + 1], part[dimension], ids):
        return f"is cut by %{user.name}, but part j does not go to device j of a group"
    if reshape is not None:
        kept = unmodified_dimensions(
            reshape.operands[0].shape.dimensions, reshape.shape.dimensions
        )
        if dimension not in kept:
            return f"is cut along a dimension that %{reshape.name} makes"
        dimension = kept[dimension]
    return Cut(user, reshape, dimension, size)


def groups_of(collective: Instruction) -> Groups:
    """The replica groups, () where there are none."""
    groups = collective.replica_groups
    return () if groups is None else groups.groups


def _has_flattened_or_replica_ids(collective: Instruction) -> bool:
    return collective.channel_id is None or collective.use_global_device_ids


def _group_size(collective: Instruction, groups: Groups, module: Module) -> int:
    """Devices of a group; 0 where the groups do not say it."""
    if collective.channel_id is None:
        return len(groups[0]) if groups else module.replica_count
    if collective.use_global_device_ids:
        return len(groups[0]) if groups else 0
    # Ids are replicas, with all their partitions: only one replica at a time is known.
    if len(groups) != module.replica_count or len(groups[0]) != 1:
        return 0
    return module.num_partitions


def cut_dimension(dynamic_slice: Instruction) -> int | None:
    """The one dimension along which a dynamic-slice cuts; None for none or several.

    It is the one whose size differs, or else the one whose start may not be 0.
    """
    whole, part = dynamic_slice.operands[0].shape.dimensions, dynamic_slice.shape
    differing = [k for k, n in enumerate(whole) if n != part.dimensions[k]]
    if len(differing) != 1:
        starts = dynamic_slice.operands[1:]
        differing = [
            k
            for k, n in enumerate(whole)
            if n != 1
            and not (
                starts[k].opcode == "constant" and constant_integer(starts[k]) == 0
            )
        ]
    return differing[0] if len(differing) == 1 else None


# -- ids ---------------------------------------------------------------------------


def id_reader(collective: Instruction, module: Module, groups: Groups) -> IdReader:
    """Reads what gives a device's id, as the ids of the collective's groups mean it."""
    if collective.channel_id is None:
        return _reader("replica-id")
    if not collective.use_global_device_ids:
        return _reader("partition-id")
    replicas, partitions = module.replica_count, module.num_partitions
    by_partition = replicas > 1 and _partitions_have_positions(groups, partitions)

    def flattened(instruction: Instruction, device: int) -> int | None:
        if instruction.opcode == "replica-id":
            return device if partitions == 1 else None
        if instruction.opcode == "partition-id":
            if replicas == 1:
                return device
            return device % partitions if by_partition else None
        return device if _is_flattened_id(instruction, partitions) else None

    return flattened


def _reader(opcode: str) -> IdReader:
    return lambda instruction, device: device if instruction.opcode == opcode else None


def _partitions_have_positions(
    groups: Iterable[tuple[int, ...]], partitions: int
) -> bool:
    """Whether a partition has one position in all groups, which keep to a replica."""
    positions: dict[int, int] = {}
    for group in groups:
        for position, device in enumerate(group):
            known = positions.setdefault(device % partitions, position)
            if known != position:
                return False
            if device // partitions != group[0] // partitions:
                return False
    return True


def _is_flattened_id(instruction: Instruction, partitions: int) -> bool:
    """Whether it is partition-id + replica-id * partitions."""
    if instruction.opcode != "add":
        return False
    a, b = instruction.operands
    return any(
        x.opcode == "partition-id" and _is_first_of_replica(y, partitions)
        for x, y in ((a, b), (b, a))
    )


def _is_first_of_replica(instruction: Instruction, partitions: int) -> bool:
    if instruction.opcode != "multiply":
        return False
    a, b = instruction.operands
    return any(
        x.opcode == "replica-id" and constant_integer(y) == partitions
        for x, y in ((a, b), (b, a))
    )


# -- offsets -----------------------------------------------------------------------


def without_moves(instruction: Instruction) -> Instruction:
    """What reshapes, bitcasts and copies hand on."""
    while instruction.opcode in _SAME_VALUE:
        instruction = instruction.operands[0]
    return instruction


def is_table_lookup(instruction: Instruction) -> bool:
    """Whether it is an element of a table with one dimension, a constant or an iota."""
    lookup = without_moves(instruction)
    if lookup.opcode != "dynamic-slice":
        return False
    table = lookup.operands[0]
    return (
        table.opcode in ("constant", "iota")
        and table.shape.rank == 1
        and table.shape.element_type in _TABLE_TYPES
    )


@dataclass(slots=True)
class Offsets:
    """Evaluates starts of slices for one device after another.

    Attributes:
        read_id: see `id_reader`.
    """

    read_id: IdReader
    _tables: dict[Instruction, tuple[int, ...] | None] = field(default_factory=dict)
    _bases: dict[Instruction, Instruction] = field(default_factory=dict)
    _values: dict[tuple[Instruction, int], int | None] = field(default_factory=dict)

    def count_up(
        self, start: Instruction, step: int, groups: Iterable[tuple[int, ...]]
    ) -> bool:
        """Whether the start is j * step on device j of every group."""
        return all(
            self.of(start, device) == step * position
            for group in groups
            for position, device in enumerate(group)
        )

    def of(self, start: Instruction, device: int) -> int | None:
        """The value on a device; None where it is not known."""
        return self._value(self.base(start), device)

    def at_table(self, lookup: Instruction, device: int) -> int | None:
        """The element of a table that a device looks up; None where it is not known."""
        lookup = without_moves(lookup)
        return self._element(lookup, self._index(lookup.operands[1], device))

    def base(self, instruction: Instruction) -> Instruction:
        """Where a value comes from: past moves, lossless conversions, idle clamps."""
        known = self._bases.get(instruction)
        if known is not None:
            return known
        current = instruction
        while True:
            if current.opcode in _SAME_VALUE or _widens_integer(current):
                current = current.operands[0]
            elif current.opcode == "clamp" and self._is_idle_clamp(current):
                current = current.operands[1]
            else:
                break
        self._bases[instruction] = current
        return current

    def _value(self, base: Instruction, device: int, depth: int = 0) -> int | None:
        key = base, device
        if key not in self._values:
            deeper = depth + 1
            known = self._evaluate(base, device, deeper) if depth < _DEEPEST else None
            self._values[key] = known
        return self._values[key]

    def _evaluate(self, base: Instruction, device: int, depth: int) -> int | None:
        opcode, operands = base.opcode, base.operands
        if opcode == "multiply":
            found = constant_factor(base)
            if found is None or found[0] == 0:
                return None
            value = self._value(self.base(found[1]), device, depth)
            return None if value is None else value * found[0]
        if opcode == "clamp":
            low, high = constant_integer(operands[0]), constant_integer(operands[2])
            value = self._value(self.base(operands[1]), device, depth)
            if value is None or low is None or high is None:
                return None
            return max(low, min(value, high))
        if opcode == "subtract":
            left, right = self.base(operands[0]), self.base(operands[1])
            if not self._have_one_id(left, right):
                return None
            a = self._value(left, device, depth)
            b = self._value(right, device, depth)
            return None if a is None or b is None else a - b
        if is_table_lookup(base):
            return self._element(base, self._index(base.operands[1], device))
        return self.read_id(base, device)

    def _have_one_id(self, left: Instruction, right: Instruction) -> bool:
        """Whether `x * constant - table[y]` has one x and y; others may differ."""
        if left.opcode != "multiply" or not is_table_lookup(right):
            return True
        a, b = left.operands
        if "constant" not in (a.opcode, b.opcode):
            return True
        other = b if a.opcode == "constant" else a
        return self.base(other) is self.base(right.operands[1])

    def _index(self, index: Instruction, device: int) -> int | None:
        """The index into a table: the id, or an element of another table."""
        # Go up to the id, then down through the tables.
        lookups: list[Instruction] = []
        while (found := self.read_id(index, device)) is None:
            if not is_table_lookup(index):
                return None
            lookups.append(without_moves(index))
            index = lookups[-1].operands[1]
        for lookup in reversed(lookups):
            found = self._element(lookup, found)
        return found

    def _element(self, lookup: Instruction, index: int | None) -> int | None:
        if index is None or index < 0:
            return None
        table = lookup.operands[0]
        if table.opcode == "iota":
            return index
        values = self._table(table)
        return values[index] if values is not None and index < len(values) else None

    def _table(self, table: Instruction) -> tuple[int, ...] | None:
        if table not in self._tables:
            self._tables[table] = constant_integers(table)
        return self._tables[table]

    def _is_idle_clamp(self, clamp: Instruction) -> bool:
        """Whether the bounds hold all values that the clamped one can have."""
        low, high = (constant_integer(clamp.operands[k]) for k in (0, 2))
        value = clamp.operands[1]
        while value.opcode in _SAME_VALUE or value.opcode == "convert":
            value = value.operands[0]
        values: tuple[int, ...] | None = None
        if is_table_lookup(value):
            values = self._table(without_moves(value).operands[0])
        elif (constant := constant_integer(value)) is not None:
            values = (constant,)
        if low is None or high is None or not values:
            return False
        return low <= min(values) and max(values) <= high


def constant_factor(product: Instruction) -> tuple[int, Instruction] | None:
    """The constant of a scalar product and its other operand; None if it has none."""
    if product.shape.element_count != 1:
        return None
    a, b = product.operands
    if a.opcode == "constant":
        factor, other = constant_integer(a), b
    elif b.opcode == "constant":
        factor, other = constant_integer(b), a
    else:
        return None
    return None if factor is None else (factor, other)


def devices_by_start(
    dynamic_slice: Instruction, dimension: int, groups: Groups
) -> tuple[dict[int, int], ...] | str:
    """For each group, the start of a slice along a dimension -> the device of it.

    The start must be the element of a table at the partition's id, or a multiple of it
    by a number that divides the slice's size, and no two devices of a group may have
    one start. The text is why it is not so. Ids in the groups are partitions.
    """
    name = dynamic_slice.name
    start, factor = without_moves(dynamic_slice.operands[dimension + 1]), 1
    if start.opcode == "multiply":
        found = constant_factor(start)
        size = dynamic_slice.shape.dimensions[dimension]
        if found is None or found[0] == 0 or size % found[0]:
            return f"has in %{name} a start that is no divisor times an element"
        factor, start = found
    if not is_table_lookup(start):
        return f"has in %{name} a start that is not the element of a table"
    offsets = Offsets(_reader("partition-id"))
    by_start: list[dict[int, int]] = []
    for group in groups:
        starts: dict[int, int] = {}
        for device in group:
            value = offsets.at_table(start, device)
            if value is None or starts.setdefault(value * factor, device) != device:
                return f"has in %{name} a start that is unknown or not one device's"
        by_start.append(starts)
    return tuple(by_start)


def _widens_integer(instruction: Instruction) -> bool:
    if instruction.opcode != "convert":
        return False
    old, new = (
        s.element_type for s in (instruction.operands[0].shape, instruction.shape)
    )
    return old in INTEGRAL and new in INTEGRAL and BITS[old] <= BITS[new]
