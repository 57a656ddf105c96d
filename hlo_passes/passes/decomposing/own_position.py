"""Computes where a device's part begins in what its group has together.

    groups {{0,1},{2,3}}, parts of 8 rows
    %table = u32[4] constant({0, 1, 0, 1})
    %k = u32[1] dynamic-slice(%table, id)      the position of a device in its group
    start of its rows: %k * 8

Source: openxla/xla `xla/service/collective_decomposer_utils.cc`.
"""

from __future__ import annotations

from hlo_passes.analysis.device_offsets import Groups, groups_of
from hlo_passes.analysis.devices import group_mode
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.rewriting.constants import scalar, table

_ID = array_shape("u32")


def obstacle_to_position(collective: Instruction) -> str:
    """Why no table gives the position of each device in its group; '' if one does."""
    groups = groups_of(collective)
    if not groups or is_everybody(groups):
        return ""
    size = len(groups) * len(groups[0])
    ids = [device for group in groups for device in group]
    return "" if sorted(ids) == list(range(size)) else "has groups that omit devices"


def starts_of_own_part(
    collective: Instruction, part: Shape, dimension: int
) -> list[Instruction]:
    """Make the start indices of a device's own part, one for each dimension.

    Args:
        collective: an all-gather or reduce-scatter (see `obstacle_to_position`).
        part: the shape of what each device has.
        dimension: the dimension along which the parts follow one another.
    """
    computation, groups = collective.computation, groups_of(collective)
    mode = group_mode(collective, collective.opcode)
    zero = scalar(computation, "u32", 0)
    # The device's id, as the groups mean it, then its position in its group.
    replica = computation.new("replica-id", _ID)
    index = replica
    if mode == "flattened":
        index = _flattened(computation, replica)
    if groups == ((0,),):
        index = zero
    elif groups and not is_everybody(groups):
        index = position_in_group(computation, index, groups)
    if mode == "cross-replica-and-partition":
        # The group is of replicas, with all partitions of each.
        index = (
            computation.new("partition-id", _ID)
            if index is zero
            else _flattened(computation, index)
        )
    size = scalar(computation, "u32", part.dimensions[dimension])
    starts = [zero] * part.rank
    starts[dimension] = computation.new("multiply", _ID, (index, size))
    return starts


def _flattened(computation: Computation, replica: Instruction) -> Instruction:
    """Replica * partitions + partition-id."""
    partitions = scalar(computation, "u32", computation.module.num_partitions)
    first = computation.new("multiply", _ID, (replica, partitions))
    partition = computation.new("partition-id", _ID)
    return computation.new("add", _ID, (first, partition))


def position_in_group(
    computation: Computation, device: Instruction, groups: Groups
) -> Instruction:
    """Make instructions that look up a device's position in its group by its id."""
    positions = [0] * (len(groups) * len(groups[0]))
    for group in groups:
        for position, member in enumerate(group):
            positions[member] = position
    one_of = computation.new(
        "dynamic-slice",
        array_shape("u32", (1,)),
        (table(computation, "u32", positions), device),
        {"dynamic_slice_sizes": "{1}"},
    )
    return computation.new("reshape", _ID, (one_of,))


def is_everybody(groups: Groups) -> bool:
    """Whether there is only one group, and it lists its ids in order from 0."""
    return len(groups) == 1 and groups[0] == tuple(range(len(groups[0])))
