"""Collectives that share several devices with transfers: they must not run among them.

    permute {{0,1},{1,2}}            connects 0, 1 and 2
    all-reduce {{0,2},{1,3}}         shares 0 and 2: a conflict, which connects 3, too
    all-gather {{1,3},{0,4}}         shares 1 and 3 with both: a conflict
    all-gather {{4,5}}               shares nothing

Devices that reach two such operations in different orders wait for each other.

Source: openxla/xla `xla/service/collective_conflict_analysis.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo_passes.analysis.devices import device_counts, group_mode
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.transfer_attributes import PAIRS
from hlo_passes.ir.async_form import (
    begun_collective,
    half,
    is_collective,
    is_generic,
    is_host_transfer,
    wrapped_instruction,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import TRANSFERS
from hlo_passes.ir.replica_groups import parse_source_target_pairs

#: Devices that wait for each other in one operation.
Clique = tuple[int, ...]


def conflicting_collectives(
    computation: Computation,
    permutes: Sequence[Instruction],
    *,
    groups_may_be_left_out: bool,
) -> list[Instruction]:
    """What shares two devices with permutes, or with something else that does.

    Near-linear in instructions and in the members of different groups. The result is in
    post order; halves of collectives are represented by their start.

    Args:
        computation: where everything is.
        permutes: the permutes; they are not in the result.
        groups_may_be_left_out: collectives without groups, and those over all
            partitions of replicas, connect all devices; XLA takes what is written.
    """
    # Read what each operation connects, once: groups of many devices are long.
    chosen = set(permutes)
    others = [
        i for i in post_order(computation) if i not in chosen and _communicates(i)
    ]
    written = {i: _written(i) for i in (*permutes, *others)}
    everybody: Clique = ()
    if groups_may_be_left_out:
        everybody = _everybody(computation, written.values())
    # Sort it by the devices that it connects.
    alike: dict[tuple[Clique, ...], list[Instruction]] = {}
    place: dict[Instruction, int] = {}
    for number, instruction in enumerate(others):
        place[instruction] = number
        cliques = _cliques(instruction, written[instruction], everybody)
        alike.setdefault(cliques, []).append(instruction)
    # Grow the connected sets, starting with those of the permutes.
    kinds = [cliques for cliques in alike if cliques]
    sets = _ConnectedDevices(kinds)
    for cliques in dict.fromkeys(_cliques(p, written[p], everybody) for p in permutes):
        sets.connect(cliques)
    found = [i for kind in sets.spread() for i in alike[kinds[kind]]]
    return sorted(found, key=place.__getitem__)


def _everybody(
    computation: Computation, written: Iterable[tuple[Clique, ...] | None]
) -> Clique:
    """Devices that stand for all: those that operations name, and the first two.

    The others are connected to nothing else, and there may be billions of them.
    """
    replicas, partitions = device_counts(computation.module)
    count = replicas * partitions
    named = {
        device
        for cliques in written
        for clique in cliques or ()
        for device in clique
        if device < count
    }
    return tuple(sorted(named.union(range(min(count, 2)))))


def _communicates(instruction: Instruction) -> bool:
    """Whether it is a collective, the start of one, a send or a recv of devices."""
    if instruction.opcode in TRANSFERS:
        return not is_host_transfer(instruction)
    return half(instruction) in ("", "start") and is_collective(instruction)


def _written(instruction: Instruction) -> tuple[Clique, ...] | None:
    """The devices that an operation says it connects, where they are two or more.

    None where it does not say: it connects all.
    """
    if instruction.opcode in TRANSFERS:
        text = instruction.frontend_attributes.get(PAIRS, "")
        pairs = tuple(parse_source_target_pairs(text)) if text else ()
        return _connected(pairs) or None
    instruction = _work(instruction)
    permuted = instruction.source_target_pairs
    if permuted is not None:
        return _connected(permuted)
    groups = instruction.replica_groups
    if groups is None or not groups.device_count:
        return None
    return tuple(group for group in groups.groups if len(group) > 1)


def _work(instruction: Instruction) -> Instruction:
    return wrapped_instruction(instruction) if is_generic(instruction) else instruction


def _cliques(
    instruction: Instruction, written: tuple[Clique, ...] | None, everybody: Clique
) -> tuple[Clique, ...]:
    """The devices that an operation connects, from what it says."""
    if written is None or (everybody and _is_over_all_partitions(instruction)):
        return _whole(everybody)
    return written


def _is_over_all_partitions(instruction: Instruction) -> bool:
    """Whether groups of replicas stand for all of their partitions."""
    work = _work(instruction)
    if work.opcode in TRANSFERS or work.source_target_pairs is not None:
        return False
    kind = begun_collective(work.opcode)
    return group_mode(work, kind) == "cross-replica-and-partition"


def _whole(everybody: Clique) -> tuple[Clique, ...]:
    return (everybody,) if len(everybody) > 1 else ()


def _connected(pairs: Iterable[tuple[int, int]]) -> tuple[Clique, ...]:
    """Devices that pairs connect, directly or over others."""
    neighbors: dict[int, list[int]] = {}
    for source, target in pairs:
        neighbors.setdefault(source, []).append(target)
        neighbors.setdefault(target, []).append(source)
    seen: set[int] = set()
    cliques: list[Clique] = []
    for device in neighbors:
        if device in seen:
            continue
        seen.add(device)
        clique = [device]
        for member in clique:
            for other in neighbors[member]:
                if other not in seen:
                    seen.add(other)
                    clique.append(other)
        if len(clique) > 1:
            cliques.append(tuple(clique))
    return tuple(cliques)


class _ConnectedDevices:
    """Sets of devices that grow together, and the kinds of operations that meet them.

    A kind is met when two devices of one of its cliques are in one set.
    """

    def __init__(self, kinds: Sequence[tuple[Clique, ...]]) -> None:
        """No device is connected."""
        self._kinds = kinds
        self._met: list[int] = []
        # Device -> (kind, clique) that it is in.
        self._cliques_of: dict[int, list[tuple[int, int]]] = {}
        for kind, cliques in enumerate(kinds):
            for number, clique in enumerate(cliques):
                for device in clique:
                    self._cliques_of.setdefault(device, []).append((kind, number))
        # Device -> its set; set -> its devices, and the cliques with one of them.
        self._set_of: dict[int, int] = {}
        self._devices: dict[int, list[int]] = {}
        self._touched: dict[int, set[tuple[int, int]]] = {}

    def connect(self, cliques: Iterable[Clique]) -> None:
        """Let each clique be in one set."""
        for first, *others in cliques:
            for device in others:
                self._join(first, device)

    def spread(self) -> list[int]:
        """Connect what is met until nothing more is; all kinds that are met."""
        connected: dict[int, None] = {}
        # The list grows while it is walked.
        for kind in self._met:
            if kind not in connected:
                connected[kind] = None
                self.connect(self._kinds[kind])
        return list(connected)

    def _join(self, first: int, second: int) -> None:
        large, small = self._find(first), self._find(second)
        if large == small:
            return
        if len(self._touched[large]) + len(self._devices[large]) < len(
            self._touched[small]
        ) + len(self._devices[small]):
            large, small = small, large
        devices, touched = self._devices[large], self._touched[large]
        for device in self._devices.pop(small):
            self._set_of[device] = large
            devices.append(device)
        for clique in self._touched.pop(small):
            if clique in touched:
                self._met.append(clique[0])
            else:
                touched.add(clique)

    def _find(self, device: int) -> int:
        """The set of a device; a new one of its own at first."""
        if device not in self._set_of:
            self._set_of[device] = device
            self._devices[device] = [device]
            self._touched[device] = set(self._cliques_of.get(device, ()))
        return self._set_of[device]
