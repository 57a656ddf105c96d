"""Values that must be the same on several devices, and whether they are.

    %r = f32[8] all-reduce(%x), replica_groups={{0,1},{2,3}}   on 0 and 1, on 2 and 3
    %p = f32[8] parameter(0), sharding={replicated}            on all partitions
    %m = f32[8] multiply(%p, %p)                               as well

What must be the same follows from the text alone; inputs that break the promise of a
parameter, or operations that give each device another value, show here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hlo_passes.analysis.replication import Replication
from hlo_passes.ir import async_form
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.runtime.stepping.stepper import Value
from hlo_passes.scheduler.checker.participants import Machine, participants_of

#: Collectives whose result all devices of a group receive.
_GIVE_ALL_THE_SAME: Final = frozenset({"all-reduce", "all-gather"})


@dataclass(slots=True)
class SameRows:
    """Which devices must have one value, by instruction.

    Attributes:
        module: as it is.
        topology: (replicas, partitions).
    """

    module: Module
    topology: tuple[int, int]
    _by_replica: Replication = field(init=False)
    _by_partition: Replication = field(init=False)
    _groups: dict[Instruction, tuple[tuple[int, ...], ...]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        """Follow the values of the module once."""
        self._by_replica = Replication(self.module)
        self._by_partition = Replication(self.module, across_partitions=True)

    def groups_of(self, instruction: Instruction) -> tuple[tuple[int, ...], ...]:
        """Groups of devices, replica x partitions + partition; () for none."""
        if instruction not in self._groups:
            groups = (g for g in self._found(instruction) if len(g) > 1)
            self._groups[instruction] = tuple(groups)
        return self._groups[instruction]

    def first_difference(self, value: Value) -> tuple[int, int] | None:
        """Two devices that must have one value and do not; None if all agree."""
        for group in self.groups_of(value.instruction):
            for array in value.arrays:
                rows = np.ascontiguousarray(array[list(group)])
                octets = rows.reshape(len(group), -1).view(np.uint8)
                apart = np.flatnonzero((octets != octets[0]).any(axis=1))
                if apart.size:
                    return group[0], group[int(apart[0])]
        return None

    def _found(self, instruction: Instruction) -> Iterator[tuple[int, ...]]:
        replicas, partitions = self.topology
        if self._by_replica.is_same(instruction):
            for p in range(partitions):
                yield tuple(r * partitions + p for r in range(replicas))
        if self._by_partition.is_same(instruction):
            for r in range(replicas):
                yield tuple(r * partitions + p for p in range(partitions))
        begun = async_form.start_of(instruction)
        work = async_form.work_of(instruction)
        if work in _GIVE_ALL_THE_SAME and async_form.begun_collective(begun.opcode):
            yield from participants_of(begun, Machine(replicas, partitions)).groups
