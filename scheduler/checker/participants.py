"""The devices that a communication brings together.

    replica_groups={{0,1},{2,3}}          device 0 meets 1, 2 meets 3
    source_target_pairs={{0,1},{1,2}}     0 meets 1, 1 meets 0 and 2
    send, recv                            the pairs in its frontend attributes

A device is replica x partitions + partition. What the ids in groups mean is the IR's to
say; here they become devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.devices import group_mode
from hlo_passes.ir.async_form import begun_collective, is_fusion, is_host_transfer
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import (
    parse_replica_groups,
    parse_source_target_pairs,
)

Devices = tuple[int, ...]

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
    _found: dict[str, Any] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[frozenset[int], ...]:
        """The groups, or each pair as one."""
        return self._remembered(
            "sets", lambda: tuple(frozenset(g) for g in (self.groups or self.pairs))
        )

    @property
    def group_numbers(self) -> Mapping[int, int]:
        """By device, the number of its group."""
        return self._remembered("numbers", lambda: {
            device: number
            for number, group in enumerate(self.groups) for device in group
        })  # fmt: skip

    @property
    def members(self) -> tuple[Devices, ...]:
        """The groups; each member appears once."""
        return self._remembered(
            "members", lambda: tuple(tuple(dict.fromkeys(g)) for g in self.groups)
        )

    @property
    def targets(self) -> Mapping[int, Devices]:
        """The devices to which a device sends."""
        return self._remembered("targets", lambda: _collected(self.pairs))

    @property
    def sources(self) -> Mapping[int, Devices]:
        """To the devices from which a device receives."""
        return self._remembered(
            "sources", lambda: _collected((b, a) for a, b in self.pairs)
        )

    def are_among(self, devices: int) -> bool:
        """Whether all of them exist, and none of them is in two groups."""
        listed = self.groups or self.pairs
        return self._remembered(f"among {devices}", lambda: (
            all(min(group) >= 0 and max(group) < devices for group in listed if group)
            and sum(map(len, self.groups)) == len(set().union(*self.groups))
        ))  # fmt: skip

    def _remembered(self, what: str, find: Callable[[], Any]) -> Any:
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

    A generic start has those of its computation: one, or a collectives group. A fusion
    has those of its body: XLA puts a collective that a kernel of its own runs in one.
    """
    found: list[Instruction] = []
    work = [start]
    for each in work:
        if begun_collective(each.opcode):
            found.append(each)
        elif is_fusion(each) or each.opcode == "async-start":
            work += [i for c in each.called_computations for i in c.instructions]
    return tuple(found)


def participants_of(collective: Instruction, machine: Machine) -> Participants:
    """The devices that meet in a collective (synchronous, native start or sugar)."""
    attributes = collective.attributes
    kind = begun_collective(collective.opcode)
    mode = group_mode(collective, kind)
    if kind == "collective-permute":
        over_partitions = mode == "cross-partition"
        text = attributes.get("source_target_pairs", "{}")
        return _pairs(text, over_partitions, machine)
    return _groups(attributes.get("replica_groups", "{}"), mode, machine)


def transfer_pairs(transfer: Instruction, machine: Machine) -> Participants:
    """Senders and receivers of a send or recv; none for a host transfer."""
    if is_host_transfer(transfer):
        return Participants()
    text = transfer.frontend_attributes.get(transfer_attributes.PAIRS, "")
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
        "cross-partition": partitions,
        "flattened": machine.devices,
    }.get(mode, machine.replicas)
    groups = listed or (tuple(range(count)),)
    if mode == "flattened":
        return Participants(groups)
    if mode == "cross-partition":
        return Participants(
            tuple(
                tuple(base + p for p in group)
                for base in range(0, machine.devices, partitions)
                for group in groups
            )
        )
    if mode == "cross-replica":
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
