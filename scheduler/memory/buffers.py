"""Buffers: classes of values that must share memory, and the size of each.

    x -> dynamic-update-slice(x, ..) -> while carries it -> entry result donated by p
    one buffer: p, x, the update, the loop's value, the result

Source: openxla/xla `xla/hlo/analysis/hlo_alias_analysis.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffer_sizes import PartSizes, parts_of
from hlo_passes.scheduler.memory.dataflow import Dataflow, ValueRanks, build_dataflow
from hlo_passes.scheduler.memory.in_place import IN_PLACE_OPCODES, in_place_pairs
from hlo_passes.scheduler.memory.reached import reach
from hlo_passes.scheduler.memory.value_table import NO_VALUE

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module

#: Means that there is no value, hence no buffer.
NO_BUFFER: Final = -1


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of everything that a module's entry reaches.

    Attributes:
        flow: the values.
        of_position: position -> buffer, `NO_BUFFER`, or -2 - k for `several[k]`.
        several: buffers of positions where callers bring different values.
        of_value: value -> buffer.
        sizes_bytes: by buffer, the size of its first value.
        is_counted: by buffer, whether it is in device memory.
    """

    flow: Dataflow
    of_position: list[int]
    several: list[tuple[int, ...]]
    of_value: dict[int, int]
    sizes_bytes: list[int]
    is_counted: list[bool]

    def at(self, position: int) -> tuple[int, ...]:
        """Buffers at a position, ascending."""
        b = self.of_position[position]
        if b >= 0:
            return (b,)
        return () if b == NO_BUFFER else self.several[-2 - b]


def build_buffers(module: Module, sizes: PartSizes | None = None) -> Buffers:
    """Find the buffers of `module`; `sizes` of parts: None for the GPU's."""
    return buffers_of_values(build_dataflow(reach(module)), sizes)


def buffers_of_values(flow: Dataflow, sizes: PartSizes | None = None) -> Buffers:
    """Merge values into buffers, and number these in the order of their positions."""
    union = _Union(flow.joined)
    for one, other in flow.merged:
        union.merge(one, other)
    for one, other in _in_place_values(flow):
        union.merge(one, other)
    for one, other in _donated_values(flow):
        union.merge(one, other)
    union.spread()

    of_value: dict[int, int] = {}
    first_values: list[int] = []
    members: dict[int, list[int]] = {}
    number_of_leader: dict[int, int] = {}
    value, parent = flow.value, union.parent
    joined = {v for v in flow.joined if v not in parent}
    for position, v in enumerate(value):
        # A value's own position is the first that holds it, except for stand-ins.
        if v != position or v in joined:
            continue
        number = len(first_values)
        if v in parent:
            number = number_of_leader.setdefault(union.find(v), number)
            members.setdefault(number, []).append(v)
        if number == len(first_values):
            first_values.append(v)
        of_value[v] = number

    several: list[tuple[int, ...]] = []
    of_position = _buffers_of_positions(flow, of_value, joined, several)
    sizes_bytes, is_counted = _sizes(flow, first_values, members, sizes)
    return Buffers(flow, of_position, several, of_value, sizes_bytes, is_counted)


def _buffers_of_positions(
    flow: Dataflow,
    of_value: dict[int, int],
    joined: set[int],
    several: list[tuple[int, ...]],
) -> list[int]:
    if not joined:
        get = of_value.get
        return [get(v, NO_BUFFER) for v in flow.value]
    known: dict[int, int] = {}
    for v in joined:
        buffers = tuple(sorted({of_value[w] for w in _expanded(v, flow, joined)}))
        if len(buffers) == 1:
            known[v] = buffers[0]
        else:
            known[v] = -2 - len(several)
            several.append(buffers)
    return [known[v] if v in known else of_value.get(v, NO_BUFFER) for v in flow.value]


def _expanded(v: int, flow: Dataflow, joined: set[int]) -> set[int]:
    """The real values that a stand-in with several callers represents."""
    found: set[int] = set()
    seen = {v}
    stack = [v]
    while stack:
        for w in flow.joined[stack.pop()]:
            if w not in joined:
                if w != NO_VALUE:
                    found.add(w)
            elif w not in seen:
                seen.add(w)
                stack.append(w)
    return found


class _Union:
    """Union-find over the few values that share memory with another."""

    def __init__(self, joined: dict[int, list[int]]) -> None:
        self.parent: dict[int, int] = {}
        self.joined = joined

    def find(self, v: int) -> int:
        parent = self.parent
        root = parent.setdefault(v, v)
        while parent[root] != root:
            root = parent[root]
        while parent[v] != root:
            parent[v], v = root, parent[v]
        return root

    def merge(self, one: int, other: int) -> None:
        if one == other or NO_VALUE in (one, other):
            return
        # The lower value represents both, whatever the order of merging.
        a, b = self.find(one), self.find(other)
        if a != b:
            self.parent[max(a, b)] = min(a, b)

    def spread(self) -> None:
        """Merge what is merged with a stand-in with all that it represents."""
        todo = [v for v in self.joined if v in self.parent]
        done = set(todo)
        while todo:
            v = todo.pop()
            for w in self.joined[v]:
                self.merge(v, w)
                if w in self.joined and w not in done:
                    done.add(w)
                    todo.append(w)


def _in_place_values(flow: Dataflow) -> Iterator[tuple[int, int]]:
    reached, start, value = flow.reached, flow.start, flow.value
    for n, instruction in enumerate(reached.instructions):
        if instruction.opcode not in IN_PLACE_OPCODES:
            continue
        for pair in in_place_pairs(instruction):
            operand = instruction.operands[pair.operand]
            source = flow.position(operand, pair.operand_path)
            target = start[n] + parts_of(instruction.shape).offsets[pair.output_path]
            yield value[source], value[target]


def _donated_values(flow: Dataflow) -> Iterator[tuple[int, int]]:
    module = flow.reached.module
    parameters = module.entry.parameters
    for alias in module.input_output_aliases:
        result = flow.position(module.entry.root, alias.output)
        donor = flow.position(parameters[alias.parameter], alias.path)
        yield flow.value[result], flow.value[donor]


def _sizes(
    flow: Dataflow,
    first_values: list[int],
    members: dict[int, list[int]],
    sizes: PartSizes | None,
) -> tuple[list[int], list[bool]]:
    """Size and space of each buffer: those of its lowest-numbered value."""
    sizes_of: list[int] = []
    in_default: list[bool] = []
    for instruction in flow.reached.instructions:
        parts = parts_of(instruction.shape)
        sizes_of += parts.sizes_bytes if sizes is None else map(sizes, parts.shapes)
        in_default += parts.is_default_space
    ranks = ValueRanks(flow)
    lowest = list(first_values)
    for number, values in members.items():
        if len({(sizes_of[v], in_default[v]) for v in values}) > 1:
            lowest[number] = min(values, key=ranks)
    return [sizes_of[v] for v in lowest], [in_default[v] for v in lowest]
