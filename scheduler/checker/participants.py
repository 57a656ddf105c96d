"""The devices that a communication brings together.

    replica_groups={{0,1},{2,3}}          device 0 meets 1, 2 meets 3
    source_target_pairs={{0,1},{1,2}}     0 meets 1, 1 meets 0 and 2
    send, recv                            the pairs in its frontend attributes

A device is replica x partitions + partition. The channel and the flag decide what the
ids in groups mean. Source: openxla/xla `xla/service/collective_ops_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import begun_collective
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import (
    parse_replica_groups,
    parse_source_target_pairs,
)

Devices = tuple[int, ...]

#: Their groups may hold flattened ids, or replicas of all partitions.
_OVER_BOTH: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})
_PAIRS_OF_TRANSFER: Final = "_xla_send_recv_source_target_pairs"
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    """The number of devices that run the module."""

    replicas: int
    partitions: int

    @property
    def devices(self) -> int:
        """All of them."""
        return self.replicas * self.partitions


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """The devices that meet in one communication; equal texts are one object.

    Attributes:
        groups: devices that wait for one another; each device is in at most one group.
        pairs: (source, target), if only those two wait for each other.
    """

    groups: tuple[Devices, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    _found: dict[str, dict[int, Devices]] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[frozenset[int], ...]:
        """The groups, or each pair as one."""
        return tuple(frozenset(g) for g in (self.groups or self.pairs))

    @property
    def met_in_group(self) -> dict[int, Devices]:
        """By device, its whole group with itself; each member appears once."""
        return self._remembered("group", lambda: {
            device: tuple(dict.fromkeys(group))
            for group in self.groups for device in group
        })  # fmt: skip

    @property
    def targets(self) -> dict[int, Devices]:
        """The devices to which a device sends."""
        return self._remembered("targets", lambda: _collected(self.pairs))

    @property
    def sources(self) -> dict[int, Devices]:
        """To the devices from which a device receives."""
        return self._remembered(
            "sources", lambda: _collected((b, a) for a, b in self.pairs)
        )

    def _remembered(
        self, what: str, find: Callable[[], dict[int, Devices]]
    ) -> dict[int, Devices]:
        if what not in self._found:
            self._found[what] = find()
        return self._found[what]


def _collected(pairs: Iterable[tuple[int, int]]) -> dict[int, Devices]:
    found: dict[int, dict[int, None]] = {}
    for device, other in pairs:
        found.setdefault(device, {})[other] = None
    return {device: tuple(others) for device, others in found.items()}


def collectives_in(start: Instruction) -> tuple[Instruction, ...]:
    """The collectives that an instruction starts or is; () for anything else.

    A generic start has those of its computation: one, or a collectives group.
    """
    opcode = start.opcode
    if opcode == "async-start":
        return tuple(
            inner
            for callee in start.called_computations
            for inner in callee.instructions
            if inner.opcode in opcodes.SYNC_COLLECTIVES
        )
    return (start,) if begun_collective(start.opcode) else ()


def participants_of(collective: Instruction, machine: Machine) -> Participants:
    """The devices that meet in a collective (synchronous, native start or sugar)."""
    attributes = collective.attributes
    has_channel = "channel_id" in attributes
    kind = begun_collective(collective.opcode)
    if kind == "collective-permute":
        return _pairs(attributes.get("source_target_pairs", "{}"), has_channel, machine)
    if not has_channel:
        mode = "replicas"
    elif kind not in _OVER_BOTH:
        mode = "partitions"
    elif attributes.get("use_global_device_ids") == "true":
        mode = "devices"
    else:
        mode = "replicas of all partitions"
    return _groups(attributes.get("replica_groups", "{}"), mode, machine)


def transfer_pairs(transfer: Instruction, machine: Machine) -> Participants:
    """Senders and receivers of a send or recv; none for a host transfer."""
    attributes = transfer.attributes
    if attributes.get("is_host_transfer") == "true":
        return Participants()
    text = transfer.frontend_attributes.get(_PAIRS_OF_TRANSFER, "")
    if not text:
        return Participants()
    return _pairs(text, machine.partitions > 1, machine)


@lru_cache(maxsize=_REMEMBERED)
def _pairs(text: str, over_partitions: bool, machine: Machine) -> Participants:
    listed = tuple((a, b) for a, b in parse_source_target_pairs(text))
    if over_partitions:
        found = [
            (base + a, base + b)
            for base in range(0, machine.devices, machine.partitions)
            for a, b in listed
        ]
    else:
        found = [
            (a * machine.partitions + p, b * machine.partitions + p)
            for p in range(machine.partitions)
            for a, b in listed
        ]
    return Participants(pairs=tuple(found))


@lru_cache(maxsize=_REMEMBERED)
def _groups(text: str, mode: str, machine: Machine) -> Participants:
    listed = parse_replica_groups(text).groups
    partitions = machine.partitions
    count = {
        "replicas": machine.replicas,
        "partitions": partitions,
        "devices": machine.devices,
    }.get(mode, machine.replicas)
    groups = listed or (tuple(range(count)),)
    if mode == "devices":
        return Participants(groups)
    if mode == "partitions":
        return Participants(
            tuple(
                tuple(base + p for p in group)
                for base in range(0, machine.devices, partitions)
                for group in groups
            )
        )
    if mode == "replicas":
        return Participants(
            tuple(
                tuple(r * partitions + p for r in group)
                for p in range(partitions)
                for group in groups
            )
        )
    return Participants(
        tuple(
            tuple(r * partitions + p for r in group for p in range(partitions))
            for group in groups
        )
    )
