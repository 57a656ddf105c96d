"""Replaces a collective with chains of permutes, the same ones on every device.

    n devices of a group, `me` the position of a device among them, blocks 0 ... n-1

    all-gather       out[me] = x;  n-1 times: x = permute(x, j -> j+1), out[me-s] = x
    reduce-scatter   acc = x[me-1];  n-1 times: acc = permute(acc, j -> j+1) + x[me-1-s]
    all-reduce       a reduce-scatter of the flat array, padded if need be; an
                     all-gather; and the padding is cut off
    all-to-all       out = copy(x);  n-1 times: out[me-s] = permute(x[me+s], j -> j+s)

If a part of an all-gather is nothing but padding, it is not sent (`shard_extents.py`).

There are three forms. In a `ring`, one chain runs in one direction. In `bidirectional`,
two chains run against each other, each half as long. In `2d`, chains run along the rows
of a grid of devices, then along its columns; member k is in row k / columns. The
permutes of an all-to-all do not depend on each other, so an all-to-all has only one
form.

The order of reduction is fixed. In a `ring`, block b is the sum, from left to right, of
members b+1, b+2, ..., b-1, b: it starts after the owner. In `bidirectional`, it is
(b-u, ..., b-1, b) + (b+d, ..., b+1) with u = n/2 and d = (n-1)/2. In a grid, the order
is first the order of a ring along each column, then the order of a ring along the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.analysis.device_offsets import Groups, groups_of
from hlo_passes.analysis.devices import device_counts, group_mode
from hlo_passes.analysis.shard_extents import rows_read
from hlo_passes.ir.device_tiles import MAXIMUM_DEVICES
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.decomposing.chain_pieces import ChainPieces, Term
from hlo_passes.passes.rewriting.constants import zeros
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.reductions import reduction_of, reduction_opcode

Form = Literal["ring", "bidirectional", "2d"]
FORMS: Final[tuple[Form, ...]] = ("ring", "bidirectional", "2d")
KINDS: Final = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")

_REDUCING: Final = frozenset({"reduce-scatter", "all-reduce"})
#: Of two scalars, in any order.
_OPERATIONS: Final = frozenset(
    {"add", "multiply", "minimum", "maximum", "and", "or", "xor"}
)


@dataclass(frozen=True, slots=True)
class Members:
    """The devices that a collective joins.

    Attributes:
        groups: the groups of ids, all of one size; every id is in one of them.
        identity: the opcode that gives a device's id: partition-id or replica-id.
    """

    groups: Groups
    identity: str

    @property
    def size(self) -> int:
        """The number of devices of a group."""
        return len(self.groups[0])


def members_of(collective: Instruction) -> Members | str:
    """The devices that a collective joins, or why permutes cannot replace it.

    A permute has either ids of partitions, which mean the same in each replica, or ids
    of replicas, which mean the same in each partition. So groups of flattened ids must
    stay inside replicas, and be alike in each replica; or the same with partitions.
    """
    obstacle = _obstacle(collective)
    if obstacle:
        return obstacle
    replicas, partitions = device_counts(collective.computation.module)
    mode = group_mode(collective, collective.opcode)
    groups = groups_of(collective)
    identity, count = "partition-id", partitions
    if mode == "cross-replica" or (mode != "cross-partition" and partitions == 1):
        identity, count = "replica-id", replicas
    elif mode == "cross-replica-and-partition":
        return "has groups of replicas with all their partitions"
    elif mode == "flattened" and replicas > 1:
        inside = _alike(groups, partitions)
        if inside is None:
            return "has groups that cross replicas and partitions"
        identity, groups = inside
        count = partitions if identity == "partition-id" else replicas
    if count > MAXIMUM_DEVICES:
        return f"is in a module for more than {MAXIMUM_DEVICES} devices"
    groups = groups or (tuple(range(count)),)
    if len({len(group) for group in groups}) != 1:
        return "has groups of different sizes"
    if sorted(device for group in groups for device in group) != list(range(count)):
        return "has groups that omit devices"
    members = Members(groups, identity)
    return members if members.size > 1 else "has groups of one device"


def _obstacle(collective: Instruction) -> str:
    if unknown := unknown_attribute(collective):
        return f"has the unknown attribute {unknown}"
    if "sharding" in collective.attributes:
        return "has a sharding"
    if collective.attributes.get("constrain_layout") == "true":
        return "constrains layouts"
    shapes = [operand.shape for operand in collective.operands]
    if not all(shape.is_array and shape.element_count for shape in shapes):
        return "has an operand without elements, or that is no array"
    if any(shape.is_dynamic for shape in shapes):
        return "has an operand of dynamic size"
    if collective.opcode == "all-to-all" and collective.shape.is_tuple:
        return "has an operand for each device"
    if collective.opcode in _REDUCING:
        reduction = reduction_of(collective)
        opcode = reduction_opcode(reduction)
        if reduction is None or opcode not in _OPERATIONS:
            return "reduces by more than one operation"
        if len(set(reduction.root.operands)) == 1:
            return "reduces by an operation on one value"
        kind = reduction.root.shape.element_type
        if any(shape.element_type != kind for shape in shapes):
            return "reduces in another type"
    return ""


def _alike(groups: Groups, partitions: int) -> tuple[str, Groups] | None:
    """Groups of flattened ids as groups of partitions, or of replicas, all alike."""
    if not groups:
        return None
    replica = [[device // partitions for device in group] for group in groups]
    partition = [[device % partitions for device in group] for group in groups]
    for identity, fixed, free in (
        ("partition-id", replica, partition),
        ("replica-id", partition, replica),
    ):
        if any(len(set(ids)) != 1 for ids in fixed):
            continue
        found: dict[int, set[tuple[int, ...]]] = {}
        for ids, members in zip(fixed, free, strict=True):
            found.setdefault(ids[0], set()).add(tuple(members))
        alike = list(found.values())
        if all(each == alike[0] for each in alike):
            return identity, tuple(sorted(alike[0]))
    return None


def grid_columns(size: int) -> int:
    """Columns of the most nearly square grid of so many devices; 0 without a grid."""
    for rows in range(int(size**0.5), 1, -1):
        if size % rows == 0:
            return size // rows
    return 0


def write_chains(
    collective: Instruction,
    members: Members,
    form: Form,
    channels: Iterator[int],
    columns: int = 0,
) -> list[Instruction]:
    """Replace a collective with permutes; returns all that is new.

    The new instructions are the last ones of the computation; the caller restores the
    text order (`restore_text_order`). Every permute has the metadata and the frontend
    attributes of the collective, except for its scheduling group. Instructions that the
    collective waited for come before the first permutes. Instructions that waited for
    the collective come after the result.

    Args:
        collective: a collective that `members_of` accepts.
        members: what `members_of` says.
        form: the form of the chains.
        channels: new channel ids; permutes between replicas have none.
        columns: the number of columns of a grid, a divisor of the number of members.
    """
    return _Chains(collective, members, form, channels, columns).write()


class _Chains(ChainPieces):
    """Writes one collective."""

    def __init__(
        self,
        collective: Instruction,
        members: Members,
        form: Form,
        channels: Iterator[int],
        columns: int,
    ) -> None:
        super().__init__(collective, members.identity, channels)
        self.members = members
        self.form = form
        self.columns = columns
        reduction = reduction_of(collective)
        self.operation = "" if reduction is None else reduction.root.opcode

    def write(self) -> list[Instruction]:
        """Replace the collective; returns all that is new."""
        collective, computation = self.collective, self.computation
        shape = collective.shape
        wholes = shape.elements if shape.is_tuple else (shape,)
        results = [
            self._result(operand, whole)
            for operand, whole in zip(collective.operands, wholes, strict=True)
        ]
        result = results[0]
        if shape.is_tuple:
            result = self.make("tuple", shape, results)
        for first in self.first:
            for predecessor in collective.control_predecessors:
                computation.add_control_edge(predecessor, first)
        for successor in collective.control_successors:
            computation.add_control_edge(result, successor)
        computation.drop_control_edges(collective)
        computation.replace_uses(collective, result)
        computation.remove(collective)
        return self.made

    def _result(self, operand: Instruction, whole: Shape) -> Instruction:
        """What the collective makes of one operand."""
        opcode = self.collective.opcode
        if opcode == "all-reduce":
            return self._all_reduce(operand)
        (dimension,) = self.collective.integers("dimensions")
        if opcode == "all-gather":
            return self._all_gather(operand, whole, dimension)
        if opcode == "reduce-scatter":
            return self._reduce_scatter(operand, dimension)
        return self._all_to_all(operand, dimension)

    # -- the collectives -----------------------------------------------------------

    def _all_gather(
        self, part: Instruction, whole: Shape, dimension: int
    ) -> Instruction:
        if self.form == "2d":
            rows, columns = self._grid()
            sizes = list(part.shape.dimensions)
            sizes[dimension] *= len(rows[0])
            row = whole.with_dimensions(tuple(sizes))
            part = self._gathered(part, row, dimension, rows)
            return self._gathered(part, whole, dimension, columns)
        full = self.members.size
        if self.collective.opcode == "all-gather" and self.collective.shape.is_array:
            each = part.shape.dimensions[dimension]
            full = -(-rows_read(self.collective, dimension) // each)
        return self._gathered(part, whole, dimension, self.members.groups, full)

    def _reduce_scatter(self, whole: Instruction, dimension: int) -> Instruction:
        if self.form == "2d":
            rows, columns = self._grid()
            whole = self._scattered(whole, dimension, columns)
            return self._scattered(whole, dimension, rows)
        return self._scattered(whole, dimension, self.members.groups)

    def _all_reduce(self, value: Instruction) -> Instruction:
        """Of the array as it lies in memory, which is all that layouts change."""
        shape, count = value.shape, value.shape.element_count
        flat = array_shape(shape.element_type, (count,))
        padding = -count % self.members.size
        padded = flat.with_dimensions((count + padding,))
        # Only what has the usual order may be reshaped before layouts are assigned.
        is_usual = shape.layout == shape.with_layout(None).layout
        flatten = "reshape" if is_usual else "bitcast"
        if shape.rank != 1:
            value = self.make(flatten, flat, (value,))
        if padding:
            zero = self.scalar(shape.element_type, 0)
            value = self.make("pad", padded, (value, zero), padding=f"0_{padding}")
        value = self._reduce_scatter(value, 0)
        value = self._all_gather(value, padded, 0)
        if padding:
            value = self.make("slice", flat, (value,), slice=f"{{[0:{count}]}}")
        return value if shape.rank == 1 else self.make(flatten, shape, (value,))

    def _all_to_all(self, value: Instruction, dimension: int) -> Instruction:
        groups, size = self.members.groups, self.members.size
        # A device's own block stays where it is; all others are written over.
        result = self.make("copy", value.shape, (value,))
        for step in range(1, size):
            block = self._block(value, dimension, groups, step)
            block = self.permute(block, groups, step)
            result = self._put(result, block, dimension, groups, -step)
        return result

    # -- the chains ----------------------------------------------------------------

    def _gathered(
        self,
        part: Instruction,
        whole: Shape,
        dimension: int,
        groups: Groups,
        full: int | None = None,
    ) -> Instruction:
        """The blocks of all members; after so many full ones come those of padding."""
        size = len(groups[0])
        full = size if full is None else full
        empty = zeros(self.computation, whole)
        self.made += [*empty.operands, empty]
        result = self._put(empty, part, dimension, groups, 0)
        for direction, steps in self._directions(size):
            block = part
            for step in range(1, steps + 1):
                # A member hands on the block of the one that is `step` - 1 before it.
                before = direction * (step - 1)
                block = self.permute(
                    block,
                    groups,
                    direction,
                    lambda place, before=before: (place - before) % size < full,
                )
                result = self._put(result, block, dimension, groups, -direction * step)
        return result

    def _scattered(
        self, whole: Instruction, dimension: int, groups: Groups
    ) -> Instruction:
        result: Instruction | None = None
        for direction, steps in self._directions(len(groups[0])):
            # What starts here belongs to the member that is `steps` further on.
            part = self._block(whole, dimension, groups, direction * steps)
            for left in reversed(range(steps)):
                part = self.permute(part, groups, direction)
                # The owner adds its own block once.
                if left or result is None:
                    own = self._block(whole, dimension, groups, direction * left)
                    part = self.make(self.operation, part.shape, (part, own))
            if result is not None:
                part = self.make(self.operation, part.shape, (result, part))
            result = part
        assert result is not None, "a group has two members or more"
        return result

    def _directions(self, size: int) -> list[tuple[int, int]]:
        """By how many members a chain moves in a step, and how many steps it has."""
        if self.form != "bidirectional":
            return [(1, size - 1)]
        return [(d, n) for d, n in ((1, size // 2), (-1, (size - 1) // 2)) if n]

    def _grid(self) -> tuple[Groups, Groups]:
        """The rows and the columns of all groups."""
        wide = self.columns
        rows = [
            group[k : k + wide]
            for group in self.members.groups
            for k in range(0, len(group), wide)
        ]
        columns = [group[k::wide] for group in self.members.groups for k in range(wide)]
        return tuple(rows), tuple(columns)

    # -- blocks --------------------------------------------------------------------

    def _block(
        self, whole: Instruction, dimension: int, groups: Groups, ahead: int
    ) -> Instruction:
        """The block of the member that is so many further on."""
        size = whole.shape.dimensions[dimension] // len(groups[0])
        return self.block(whole, dimension, [Term(groups, ahead)], size)

    def _put(
        self,
        whole: Instruction,
        block: Instruction,
        dimension: int,
        groups: Groups,
        ahead: int,
    ) -> Instruction:
        """With a block in the place of the member that is so many further on."""
        return self.put(whole, block, dimension, [Term(groups, ahead)])
