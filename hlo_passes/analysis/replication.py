"""Which values are the same on all devices, or on all devices of a group.

    parameter(0), parameter_replication={true}     on all replicas
    parameter(0), sharding={replicated}            on all partitions
    partition-id()                                 on all replicas, on no two partitions
    all-reduce(x), replica_groups={{0,1},{2,3}}    in each group
    add(a, b)                                      where both a and b are

Asked across replicas (of each partition) or across partitions (of each replica). With
`partial`, values that are the same only inside groups are known too; else they count as
different everywhere. Loops are followed until nothing changes.

Source: openxla/xla `xla/hlo/analysis/hlo_replication_analysis.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.devices import group_mode
from hlo_passes.analysis.effects import acts_itself
from hlo_passes.analysis.integers import constant_integers
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir import opcodes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding import (
    MeshSharding,
    TileSharding,
    TupleSharding,
    parse_sharding,
)
from hlo_passes.ir.small_values import parse_small

#: For each replica (or partition), the first device that has a device's value.
Roots = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Sameness:
    """Where a value is the same.

    Attributes:
        roots: devices with one root have one value; None where all devices have it, ()
            where any two may differ.
    """

    roots: Roots | None

    def joined(self, other: Sameness) -> Sameness:
        """Where both are the same."""
        if self.roots is None or other.roots == ():
            return other
        if other.roots is None or self.roots == ():
            return self
        together: list[tuple[int, ...]] = []
        for mine, yours in zip(self.roots, other.roots, strict=False):
            first: dict[tuple[int, int], int] = {}
            pairs = zip(mine, yours, strict=False)
            together.append(tuple(first.setdefault(p, k) for k, p in enumerate(pairs)))
        if all(len(set(roots)) == len(roots) for roots in together):
            return NOWHERE
        return Sameness(tuple(together))

    def holds_in(self, groups: Iterable[tuple[int, ...]]) -> bool:
        """Whether all devices of each group have one value."""
        if not self.roots:
            return self.roots is None
        for roots in self.roots:
            for group in groups:
                if any(device >= len(roots) for device in group):
                    return False
                if len({roots[device] for device in group}) > 1:
                    return False
        return True


EVERYWHERE: Final = Sameness(None)
NOWHERE: Final = Sameness(())

#: The sameness of an array, or of a tuple's elements in order.
Tree: TypeAlias = "Sameness | tuple[Tree, ...]"

#: Opcodes whose result is the same where their operands are.
_FOLLOWS: Final = frozenset(
    {"bitcast", "broadcast", "concatenate", "convolution", "copy", "dot",
     "dynamic-slice", "dynamic-update-slice", "gather", "iota", "pad", "reduce",
     "reduce-window", "reshape", "reverse", "scatter", "slice", "transpose"}
)  # fmt: skip
_FOLLOWING_TARGETS: Final = frozenset(
    {'"X64SplitLow"', '"X64SplitHigh"', '"X64Combine"'}
)
#: Loops nested deeper than this are taken to differ everywhere.
_DEEPEST: Final = 100


@dataclass(slots=True)
class Replication:
    """The sameness of all values that the entry computes.

    Attributes:
        module: as it is; the answers hold until it changes.
        across_partitions: ask about partitions of a replica; else about replicas of a
            partition.
        partial: know values that are the same inside groups only.
    """

    module: Module
    across_partitions: bool = False
    partial: bool = False
    _known: dict[Instruction, Tree] = field(default_factory=dict)
    _graph: CallGraph = field(init=False)

    def __post_init__(self) -> None:
        """Follow all values from the parameters of the entry on."""
        self._graph = build_call_graph(self.module)
        for parameter in self.module.entry.parameters:
            self._known[parameter] = self._of_parameter(parameter)
        self._visit(self.module.entry, differs=False, depth=0)

    def is_same(
        self, instruction: Instruction, groups: Iterable[tuple[int, ...]] = ()
    ) -> bool:
        """Whether an array is the same on all devices, or on those of each group."""
        found = self._known.get(instruction)
        if not isinstance(found, Sameness):
            return False
        groups = tuple(groups)
        return found.roots is None or (bool(groups) and found.holds_in(groups))

    # -- parameters -----------------------------------------------------------

    def _of_parameter(self, parameter: Instruction) -> Tree:
        leaves = [NOWHERE for _ in parameter.shape.leaves()]
        if self.across_partitions and "sharding" in parameter.attributes:
            sharding = parse_sharding(parameter.attributes["sharding"])
            # A tuple's sharding lists those of its leaves; one alone is for all.
            if isinstance(sharding, TupleSharding):
                each = sharding.elements
            else:
                each = (sharding,) * len(leaves)
            for k, one in enumerate(each[: len(leaves)]):
                leaves[k] = EVERYWHERE if _is_replicated(one) else NOWHERE
        said = parameter.attributes.get("parameter_replication")
        if said is not None:
            flags = parse_small("bool_list", said)
            for k, is_same in enumerate(flags[: len(leaves)]):
                if is_same and not self.across_partitions:
                    leaves[k] = EVERYWHERE
                elif not is_same and self.across_partitions:
                    leaves[k] = NOWHERE
        return _tree(parameter.shape, iter(leaves))

    # -- computations ---------------------------------------------------------

    def _visit(self, computation: Computation, *, differs: bool, depth: int) -> bool:
        """Follow the values of a computation; True if any is known to differ more.

        `differs`: everything in it differs, as not all devices run it alike.
        """
        changed = False
        for instruction in post_order(computation):
            opcode = instruction.opcode
            if depth > _DEEPEST:
                found = _uniform(instruction.shape, NOWHERE)
            elif opcode == "while":
                changed |= self._visit_loop(instruction, differs=differs, depth=depth)
                continue
            elif opcode in ("call", "fusion"):
                changed |= self._visit_call(instruction, differs=differs, depth=depth)
                continue
            elif opcode == "conditional":
                changed |= self._visit_branches(
                    instruction, differs=differs, depth=depth
                )
                continue
            elif opcode == "tuple":
                found = tuple(self._tree_of(o) for o in instruction.operands)
            elif opcode == "opt-barrier":
                found = self._tree_of(instruction.operands[0])
            elif opcode == "get-tuple-element":
                whole = self._tree_of(instruction.operands[0])
                index = instruction.tuple_index
                found = whole[index] if isinstance(whole, tuple) else whole
            elif opcode == "parameter":
                found = self._known.get(instruction)
                if found is None or differs:
                    found = _uniform(instruction.shape, NOWHERE)
            elif differs:
                found = _uniform(instruction.shape, NOWHERE)
            else:
                found = _uniform(instruction.shape, self._of(instruction))
            changed |= self._note(instruction, found)
        return changed

    def _visit_loop(self, loop: Instruction, *, differs: bool, depth: int) -> bool:
        called = loop.called_computations
        if len(called) != 2:
            return self._note(loop, _uniform(loop.shape, NOWHERE))
        body, condition = called
        start, changed = self._tree_of(loop.operands[0]), False
        while True:
            again = False
            for computation in (condition, body):
                for parameter in computation.parameters[:1]:
                    again |= self._note(parameter, start)
                    if body.root in self._known:
                        again |= self._note(parameter, self._known[body.root])
            again |= self._visit(condition, differs=differs, depth=depth + 1)
            # Devices that may leave the loop at different times do not run it alike.
            alike = self._known.get(condition.root) == EVERYWHERE
            again |= self._visit(body, differs=differs or not alike, depth=depth + 1)
            if not again:
                break
            changed = True
        changed |= self._note(loop, start)
        return self._note(loop, self._tree_of(body.root)) or changed

    def _visit_call(self, call: Instruction, *, differs: bool, depth: int) -> bool:
        called = call.called_computations
        if not called:
            return self._note(call, _uniform(call.shape, NOWHERE))
        computation, changed = called[0], False
        # A computation with several callers has no values of its own.
        if len(self._graph.callers_of(computation)) > 1:
            differs = True
        else:
            pairs = zip(call.operands, computation.parameters, strict=False)
            for operand, parameter in pairs:
                changed |= self._note(parameter, self._tree_of(operand))
        changed |= self._visit(computation, differs=differs, depth=depth + 1)
        return self._note(call, self._tree_of(computation.root)) or changed

    def _visit_branches(
        self, conditional: Instruction, *, differs: bool, depth: int
    ) -> bool:
        changed = False
        branches = conditional.called_computations
        for branch, operand in zip(branches, conditional.operands[1:], strict=False):
            for parameter in branch.parameters[:1]:
                changed |= self._note(parameter, self._tree_of(operand))
        alike = self._tree_of(conditional.operands[0]) == EVERYWHERE
        for branch in branches:
            inside = differs or not alike
            changed |= self._visit(branch, differs=inside, depth=depth + 1)
            if alike:
                changed |= self._note(conditional, self._tree_of(branch.root))
        if not alike:
            changed |= self._note(conditional, _uniform(conditional.shape, NOWHERE))
        return changed

    def _note(self, instruction: Instruction, found: Tree) -> bool:
        """Join what is known with what was found; True if that is news."""
        known = self._known.get(instruction)
        joined = found if known is None else _joined(known, found)
        if joined == known:
            return False
        self._known[instruction] = joined
        return True

    def _tree_of(self, instruction: Instruction) -> Tree:
        known = self._known.get(instruction)
        return _uniform(instruction.shape, NOWHERE) if known is None else known

    # -- instructions ---------------------------------------------------------

    def _of(self, instruction: Instruction) -> Sameness:
        """Of all arrays in the result of what calls nothing that is followed."""
        opcode = instruction.opcode
        if opcode in ("all-reduce", "all-gather"):
            return self._of_collective(instruction)
        if acts_itself(instruction):
            return NOWHERE
        if opcode in ("replica-id", "partition-id"):
            varies = "partition-id" if self.across_partitions else "replica-id"
            return NOWHERE if opcode == varies else EVERYWHERE
        if opcode == "constant":
            return EVERYWHERE
        if opcode == "custom-call":
            target = instruction.attributes.get("custom_call_target")
            follows = target in _FOLLOWING_TARGETS
            return self._of_operands(instruction) if follows else NOWHERE
        if self.partial and (found := self._of_lookup(instruction)) is not None:
            return found
        if opcode in _FOLLOWS or opcodes.facts(opcode).is_elementwise:
            return self._of_operands(instruction)
        return NOWHERE

    def _of_operands(self, instruction: Instruction) -> Sameness:
        found = EVERYWHERE
        for operand in instruction.operands:
            known = self._known.get(operand)
            found = found.joined(known if isinstance(known, Sameness) else NOWHERE)
        return found

    def _of_collective(self, collective: Instruction) -> Sameness:
        """All devices of a group have its result."""
        found = self._of_operands(collective)
        has_channel = collective.channel_id is not None
        if found == EVERYWHERE or (not has_channel and self.across_partitions):
            return found
        groups = groups_of(collective)
        if not has_channel:
            if len(groups) <= 1:
                return EVERYWHERE
            return self._of_groups([groups])
        if not collective.use_global_device_ids:
            alike = self.across_partitions or len(groups) <= 1
            return EVERYWHERE if alike else NOWHERE
        # Flattened ids: the groups of each replica (or partition) by themselves.
        partitions, replicas = self.module.num_partitions, self.module.replica_count
        across = self.across_partitions
        slices: list[list[tuple[int, ...]]] = [
            [] for _ in range(replicas if across else partitions)
        ]
        for group in groups:
            members: dict[int, list[int]] = {}
            for device in group:
                replica, partition = divmod(device, partitions)
                if replica >= replicas:
                    return NOWHERE
                where, who = (replica, partition) if across else (partition, replica)
                members.setdefault(where, []).append(who)
            for where, ids in members.items():
                slices[where].append(tuple(ids))
        everyone = partitions if across else replicas
        if all(len(sets) == 1 and len(sets[0]) == everyone for sets in slices):
            return EVERYWHERE
        return self._of_groups(slices)

    def _of_lookup(self, lookup: Instruction) -> Sameness | None:
        """An element of a table at the device's id: the same where elements are."""
        if lookup.opcode != "dynamic-slice" or lookup.shape.dimensions != (1,):
            return None
        table, index = lookup.operands[0], lookup.operands[1]
        varies = "partition-id" if self.across_partitions else "replica-id"
        if table.shape.element_type != "s32" or index.opcode != varies:
            return None
        values = constant_integers(table)
        across = self.across_partitions
        count = self.module.num_partitions if across else self.module.replica_count
        if values is None or len(values) < count:
            return None
        sets: dict[int, list[int]] = {}
        for device in range(count):
            sets.setdefault(values[device], []).append(device)
        return self._of_groups([[tuple(ids) for ids in sets.values()]])

    def _of_groups(self, slices: Iterable[Iterable[tuple[int, ...]]]) -> Sameness:
        if not self.partial:
            return NOWHERE
        found: list[tuple[int, ...]] = []
        for sets in slices:
            first = {device: min(group) for group in sets for device in group}
            found.append(
                tuple(first.get(k, 0) for k in range(max(first, default=0) + 1))
            )
        return Sameness(tuple(found))


@dataclass(frozen=True, slots=True)
class SharedValues:
    """Which values all devices have that reduce together.

    Attributes:
        across_replicas: partial; None where there is one replica.
        across_partitions: partial; None where there is one partition.
    """

    across_replicas: Replication | None
    across_partitions: Replication | None

    @staticmethod
    def of(module: Module) -> SharedValues:
        """The answers hold for what is in the module now."""
        return SharedValues(
            Replication(module, partial=True) if module.replica_count > 1 else None,
            Replication(module, across_partitions=True, partial=True)
            if module.num_partitions > 1
            else None,
        )

    def is_shared(self, value: Instruction, collective: Instruction) -> bool:
        """Whether the devices of each group of a collective have one value."""
        mode = group_mode(collective, collective.opcode)
        groups = groups_of(collective)
        replicas, partitions = self.across_replicas, self.across_partitions
        if mode == "flattened" and None not in (replicas, partitions):
            groups = ()
        if mode == "cross-replica":
            partitions = None
        elif mode == "cross-partition":
            replicas = None
        among = () if mode == "cross-replica-and-partition" else groups
        return (replicas is None or replicas.is_same(value, groups)) and (
            partitions is None or partitions.is_same(value, among)
        )


def _is_replicated(sharding: TileSharding | MeshSharding) -> bool:
    """Whether every device has the whole."""
    if isinstance(sharding, TileSharding):
        return sharding.kind == "replicated"
    cut = any(dimension.axes for dimension in sharding.dimensions)
    return not (cut or sharding.unreduced or sharding.manual)


def _uniform(shape: Shape, sameness: Sameness) -> Tree:
    if not shape.is_tuple:
        return sameness
    return tuple(_uniform(element, sameness) for element in shape.elements)


def _tree(shape: Shape, leaves: Iterator[Sameness]) -> Tree:
    if not shape.is_tuple:
        return next(leaves, NOWHERE)
    return tuple(_tree(element, leaves) for element in shape.elements)


def _joined(a: Tree, b: Tree) -> Tree:
    if isinstance(a, Sameness):
        return a.joined(b) if isinstance(b, Sameness) else NOWHERE
    if isinstance(b, Sameness):
        return NOWHERE
    return tuple(_joined(x, y) for x, y in zip(a, b, strict=False))
