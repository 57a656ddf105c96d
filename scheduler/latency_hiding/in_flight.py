"""What is in flight, and the overlap test that looks at it (multi-streaming).

    in flight: all-gather over {0,1},{2,3};   candidate: all-reduce over {0,1},{2,3}

Two collectives that share more than one rank in a group could wait for each other in a
cycle, so they must not be in flight together; sharing one rank is harmless.

Source: openxla/xla `gpu_latency_hiding_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_passes.ir.async_form import (
    begun_collective,
    is_transfer,
    wrapped_computation,
    wrapped_instruction,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.latency_hiding.gpu_tracker import (
    is_group_start,
    is_stream_collective,
)
from hlo_passes.scheduler.latency_hiding.resources import Resource, Usage

if TYPE_CHECKING:
    from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph

Groups = tuple[tuple[int, ...], ...]
#: More shared ranks than this between two groups are a conflict.
HARMLESS_SHARED_RANKS = 1


class InFlight:
    """Per resource, the instructions that hold it now."""

    def __init__(self, graph: ScheduleGraph) -> None:
        """Nothing is in flight."""
        self._graph = graph
        self._held: dict[Resource, dict[Instruction, None]] = {}
        self._groups: dict[Instruction, Groups | None] = {}
        self._counts: dict[tuple[Resource, int], int] = {}

    def note(self, n: int) -> None:
        """Count a node that was placed."""
        graph = self._graph
        instruction = graph.instructions[n]
        for resource, usage in graph.resources.get(n, ()):
            held = self._held.setdefault(resource, {})
            if usage is Usage.RELEASE:
                held.pop(instruction, None)
            elif usage is Usage.OCCUPY:
                holder = instruction
                if graph.is_done[n]:
                    start = instruction.operands[0]
                    if graph.tracker.is_supported_start(start):
                        holder = start
                held[holder] = None

    def count(self, resource: Resource) -> int:
        """The number of holders of a resource."""
        return len(self._held.get(resource, ()))

    def fits(self, n: int, free: list[int]) -> bool:
        """Whether a node may be in flight together with what already is."""
        for resource, held in self._held.items():
            if held and self._need(resource, n) > free[resource]:
                return False
        entries = self._graph.resources.get(n)
        if not entries or entries[0][0] is not Resource.GPU_COLLECTIVES:
            return True
        held = self._held.get(Resource.GPU_COLLECTIVES)
        return not held or not self._clashes(n, held)

    def _need(self, resource: Resource, n: int) -> int:
        key = resource, n
        known = self._counts.get(key)
        if known is None:
            graph = self._graph
            known = graph.tracker.instances_of_one(resource, graph.instructions[n])
            self._counts[key] = known
        return known

    def _clashes(self, n: int, held: dict[Instruction, None]) -> bool:
        graph = self._graph
        instruction = graph.instructions[n]
        if is_stream_collective(instruction) or not graph.is_done[n]:
            return False
        groups = self._groups_of(instruction.operands[0])
        if not groups:
            return True  # unknown, or all devices
        for other in held:
            if is_stream_collective(other):
                continue
            if not graph.tracker.is_supported_start(other):
                continue
            others = self._groups_of(other)
            if not others or most_shared_ranks(groups, others) > HARMLESS_SHARED_RANKS:
                return True
        return False

    def _groups_of(self, start: Instruction) -> Groups | None:
        if start not in self._groups:
            self._groups[start] = groups_of(start)
        return self._groups[start]


def groups_of(start: Instruction) -> Groups | None:
    """Groups of ranks that a start connects; () for all of them, None if unknown."""
    if is_group_start(start):
        body = wrapped_computation(start)
        return None if body is None else _groups_of_body(body)
    return _own_groups(start)


def _own_groups(start: Instruction) -> Groups | None:
    collective = start
    if facts(start.opcode).spelling == "generic":
        collective = wrapped_instruction(start)
    pairs = collective.source_target_pairs
    if pairs is not None:
        return tuple(pairs)
    if not begun_collective(collective.opcode):
        return None
    groups = collective.replica_groups
    return () if groups is None else groups.groups


def _groups_of_body(body: Computation) -> Groups | None:
    """Groups of all collectives inside an explicit group."""
    found: list[tuple[int, ...]] | None = None
    for instruction in body.instructions:
        half = facts(instruction.opcode).half
        if not _is_collective(instruction.opcode) and not (
            half == "start" and _is_collective_start(instruction)
        ):
            continue
        groups = _own_groups(instruction)
        if groups is None or not groups:
            return groups
        found = [*(found or ()), *groups]
    return None if found is None else tuple(found)


def _is_collective(opcode: str) -> bool:
    """Whether it is a collective or the native start of one."""
    return begun_collective(opcode) != "" and not facts(opcode).is_sugar


def _is_collective_start(start: Instruction) -> bool:
    if facts(start.opcode).spelling == "generic":
        return _is_collective(wrapped_instruction(start).opcode)
    return is_transfer(start)


def most_shared_ranks(groups: Groups, others: Groups) -> int:
    """Most ranks that a group of one side shares with a group of the other."""
    most = 0
    for group in groups:
        members = set(group)
        for other in others:
            most = max(most, sum(rank in members for rank in other))
    return most
