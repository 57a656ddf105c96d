"""How many devices a module is for, and what the ids in its groups and pairs mean.

    no channel                             ids are replicas, alike in each partition
    channel, opcode without flag           ids are partitions, alike in each replica
    channel, no use_global_device_ids      ids are replicas, with all their partitions
    channel, use_global_device_ids=true    id = replica * partitions + partition

A header without counts says 1 x 1; then the ids say how many there are of what they
mean.

Source: openxla/xla `xla/service/collective_ops_utils.cc`, GetCollectiveOpGroupMode.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.errors import ParseError, UnsupportedHloError
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import begun_collective
from hlo_passes.ir.device_tiles import MAXIMUM_DEVICES
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import (
    parse_replica_groups,
    parse_source_target_pairs,
)

#: Collectives whose groups are not ids of partitions if they have a channel.
_OVER_REPLICAS: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})


def group_mode(collective: Instruction, kind: str) -> str:
    """The meaning of the ids in a collective's groups or pairs.

    It is 'cross-replica', 'cross-partition', 'cross-replica-and-partition' or
    'flattened': the rows above, in their order. `kind` is its synchronous opcode.
    """
    if collective.channel_id is None:
        return "cross-replica"
    if kind not in _OVER_REPLICAS:
        return "cross-partition"
    if collective.use_global_device_ids:
        return "flattened"
    return "cross-replica-and-partition"


def require_listable(instruction: Instruction, devices: int) -> None:
    """Refuse an operation of a module for more devices than anybody lists.

    Raises UnsupportedHloError S014.
    """
    if devices > MAXIMUM_DEVICES:
        raise UnsupportedHloError(
            f"%{instruction.name} communicates in a module for {devices} devices, and "
            f"at most {MAXIMUM_DEVICES} are told apart",
            code="S014",
            hint="replica_count x num_partitions of the module's header, or the "
            "largest id in its groups and pairs",
        )


def members_of_each_group(collective: Instruction, module: Module) -> int:
    """Devices that take part together; 0 if groups differ or do not say it.

    Source: openxla/xla `collective_ops_utils.cc`, GetReplicaGroupCountAndSize.
    """
    mode = group_mode(collective, begun_collective(collective.opcode))
    replicas, partitions = module.replica_count, module.num_partitions
    groups = collective.replica_groups
    if groups is None or groups.is_empty:
        if mode == "flattened":
            return 0
        size: int | None = partitions if mode == "cross-partition" else replicas
    else:
        size = groups.size
    over = partitions if mode == "cross-replica-and-partition" else 1
    return (size or 0) * over


@dataclass(frozen=True, slots=True)
class NamedDevices:
    """What the groups and pairs of a module ask for, whatever its header says.

    Attributes:
        replicas: the largest id of a replica + 1.
        partitions: the largest id of a partition + 1.
        devices: at least their product; the largest id of a device + 1.
        has_channel: whether any collective has a channel.
    """

    replicas: int
    partitions: int
    devices: int
    has_channel: bool


def named_devices(module: Module) -> NamedDevices:
    """Read the groups and pairs of all collectives and transfers."""
    most = {"replicas": 0, "partitions": 0, "devices": 0}
    has_channel = False
    for computation in module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            kind = begun_collective(opcode)
            if kind:
                what = _IDS[group_mode(instruction, kind)]
                most[what] = max(most[what], _largest_id(instruction))
                has_channel = has_channel or instruction.channel_id is not None
            elif opcode in opcodes.TRANSFERS:
                largest = _largest_of_transfer(instruction)
                most["devices"] = max(most["devices"], largest)
    replicas, partitions = most["replicas"] + 1, most["partitions"] + 1
    devices = max(most["devices"] + 1, replicas * partitions)
    return NamedDevices(replicas, partitions, devices, has_channel)


_IDS: Final = {
    "cross-replica": "replicas",
    "cross-replica-and-partition": "replicas",
    "cross-partition": "partitions",
    "flattened": "devices",
}


def device_counts(module: Module) -> tuple[int, int]:
    """(replicas, partitions) of a module: the header's, or what its groups ask for.

    Where ids of devices go beyond those of replicas and partitions, partitions make up
    the difference.
    """
    declared = (module.replica_count, module.num_partitions)
    if declared != (1, 1):
        return declared
    named = named_devices(module)
    return named.replicas, -(-named.devices // named.replicas)


def _largest_id(collective: Instruction) -> int:
    attributes = collective.attributes
    return _largest_id_in(
        attributes.get("replica_groups", ""), attributes.get("source_target_pairs", "")
    )


def _largest_of_transfer(transfer: Instruction) -> int:
    if not transfer.mentions(transfer_attributes.PAIRS):
        return 0
    try:
        return _largest_id_in(
            "", transfer.frontend_attributes.get(transfer_attributes.PAIRS, "")
        )
    except ParseError:  # other tools may write anything there
        return 0


@functools.lru_cache(maxsize=1024)
def _largest_id_in(groups: str, pairs: str) -> int:
    largest = parse_replica_groups(groups).largest_id if groups else 0
    sent = parse_source_target_pairs(pairs).pairs if pairs else ()
    return max((device for pair in sent for device in pair), default=largest)
