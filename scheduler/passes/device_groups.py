"""The devices of a collective, and whether two collectives could wait in a cycle.

    a: replica_groups={{0,1},{2,3}}   b: {{0,1},{2,3}}   share 0 and 1: they could
    a: replica_groups={{0,1},{2,3}}   b: {{0,2},{1,3}}   no two in common: they cannot

On two streams device 0 may begin with a and device 1 with b; each then waits for the
other forever. That takes two devices of one group in one group of the other. Source of
the test: openxla/xla `xla/service/gpu/gpu_latency_hiding_scheduler.cc`; here ids are
first converted to the numbering replica x partitions + partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_passes.analysis.devices import group_mode
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import begun_collective
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

#: Groups of devices; None if any device may take part.
Groups = tuple[tuple[int, ...], ...] | None


@dataclass(slots=True)
class DeviceGroups:
    """Groups of a module's collectives, cached by text."""

    module: Module
    _groups: dict[tuple[str, str, str], Groups] = field(default_factory=dict)
    _shared: dict[tuple[Groups, Groups], tuple[int, ...] | None] = field(
        default_factory=dict
    )

    def of_start(self, start: Instruction) -> Groups:
        """Groups of a native or generic start; of all collectives of a group."""
        own = opcodes.facts(start.opcode)
        if own.is_collective:
            return self.of(start, own.work)
        found: list[tuple[int, ...]] = []
        for body in start.called_computations:
            for instruction in body.instructions:
                kind = begun_collective(instruction.opcode)
                if not kind:
                    continue
                groups = self.of(instruction, kind)
                if groups is None:
                    return None
                found += groups
        return tuple(found) or None

    def of(self, instruction: Instruction, kind: str) -> Groups:
        """Groups of one collective of that (synchronous) kind."""
        attributes = instruction.attributes
        name = (
            "source_target_pairs" if kind == "collective-permute" else "replica_groups"
        )
        mode = group_mode(instruction, kind)
        key = (name, attributes.get(name, ""), mode)
        if key not in self._groups:
            written: tuple[tuple[int, ...], ...] = ()
            pairs, groups = instruction.source_target_pairs, instruction.replica_groups
            if name == "source_target_pairs" and pairs is not None:
                written = tuple(pairs)
            elif groups is not None:
                written = groups.groups
            self._groups[key] = self._on_devices(written, mode)
        return self._groups[key]

    def _on_devices(self, written: tuple[tuple[int, ...], ...], mode: str) -> Groups:
        """Groups of ids, converted from a mode to groups of devices."""
        replicas, partitions = self.module.replica_count, self.module.num_partitions
        if not written:
            return None
        if mode == "cross-replica":
            return tuple(
                tuple(replica * partitions + p for replica in group)
                for p in range(partitions)
                for group in written
            )
        if mode == "cross-partition":
            return tuple(
                tuple(r * partitions + partition for partition in group)
                for r in range(replicas)
                for group in written
            )
        if mode == "cross-replica-and-partition":
            return tuple(
                tuple(r * partitions + p for r in group for p in range(partitions))
                for group in written
            )
        return written

    def shared(self, one: Groups, other: Groups) -> tuple[int, ...] | None:
        """Two or more devices that a group of each has in common; None: unknown.

        It is () if the two cannot wait for each other in a cycle.
        """
        if one is None or other is None:
            return None
        key = (one, other)
        if key not in self._shared:
            self._shared[key] = _first_overlap(one, other)
        return self._shared[key]


def _first_overlap(
    one: tuple[tuple[int, ...], ...], other: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    groups_of: dict[int, list[int]] = {}
    for k, group in enumerate(one):
        for device in dict.fromkeys(group):
            groups_of.setdefault(device, []).append(k)
    for group in other:
        met: dict[int, list[int]] = {}
        for device in dict.fromkeys(group):
            for k in groups_of.get(device, ()):
                met.setdefault(k, []).append(device)
        for devices in met.values():
            if len(devices) > 1:
                return tuple(devices)
    return ()
