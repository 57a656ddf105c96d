"""Memory pressure the plain way: sets of values to a fixed point, then sums.

Nothing here is shared with scheduler/memory except the sizes of parts. Values may stand
side by side at a position (no phis); what loops and branches bring together is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_passes.ir.async_form import start_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.header_values import parse_input_output_alias, parse_output_aliasing
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.buffer_sizes import parts_of

Position = tuple[Instruction, tuple[int, ...]]

_SAME = {"bitcast", "opt-barrier", "all-reduce-done"}
_CONTROL = {"while", "conditional", "call", "async-start"}


def paths(instruction: Instruction) -> tuple[tuple[int, ...], ...]:
    return parts_of(instruction.shape).paths


def _bodies(module: Module) -> list[Computation]:
    """What the entry reaches, fusion bodies left out."""
    found = [module.entry]
    for computation in found:
        for i in computation.instructions:
            if i.opcode != "fusion":
                found += [c for c in i.called_computations if c not in found]
    return found


@dataclass
class Reference:
    """Buffers and pressure of a module."""

    module: Module
    values: dict[Position, set[Position]] = field(default_factory=dict)
    merged: list[set[Position]] = field(default_factory=list)
    bodies: list[Computation] = field(default_factory=list)
    callers: dict[Computation, list[Instruction]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bodies = _bodies(self.module)
        for body in self.bodies:
            for i in body.instructions:
                for callee in dict.fromkeys(i.called_computations):
                    if i.opcode != "fusion":
                        self.callers.setdefault(callee, []).append(i)
        everything = [i for body in self.bodies for i in body.instructions]
        self.values = {(i, p): set() for i in everything for p in paths(i)}
        changed = True
        while changed:
            changed = False
            for i in everything:
                for p in paths(i):
                    found = self.flowing_in(i, p)
                    if not found <= self.values[i, p]:
                        self.values[i, p] |= found
                        changed = True
        self._merge(everything)
        self._number()

    # -- values -------------------------------------------------------------

    def flowing_in(self, i: Instruction, p: tuple[int, ...]) -> set[Position]:
        sources = self.sources(i, p)
        if sources is None:
            return {(i, p)}
        return set().union(*(self.values.get(s, set()) for s in sources))

    def sources(self, i: Instruction, p: tuple[int, ...]) -> list[Position] | None:
        """Where a part comes from; None for what the instruction defines."""
        opcode, operands = i.opcode, i.operands
        is_tuple = i.shape.at(p).is_tuple
        if opcode in _SAME:
            return [(operands[0], p)]
        if opcode == "get-tuple-element":
            return [(operands[0], (i.tuple_index, *p))]
        if opcode == "tuple":
            return [(operands[p[0]], p[1:])] if p else None
        if opcode == "copy":
            return [(operands[0], p)] if p else None
        if opcode == "while":
            body = i.called_computations[0]
            return [(body.root, p), (operands[0], p)]
        if opcode == "conditional":
            return [(b.root, p) for b in i.called_computations]
        if opcode == "call":
            return [(i.called_computations[0].root, p)]
        if opcode == "parameter":
            return self.passed(i, p)
        if opcode == "async-start" and not is_tuple and p[0] < 2:
            if p[0] == 0:
                return [(operands[p[1]], p[2:])]
            return [(i.called_computations[0].root, p[1:])]
        if opcode == "async-done" and not is_tuple:
            return [(start_of(i).called_computations[0].root, p)]
        if opcode == "copy-start" and p == (1,):
            return [(operands[0], ())]
        if opcode == "copy-done":
            return [(operands[0], (0,))]
        if opcode in ("all-gather-start", "collective-permute-start"):
            if p == (0,) and len(operands) == 1:
                return [(operands[0], ())]
            if len(p) == 2 and p[0] == 0:
                return [(operands[p[1]], ())]
        if opcode in ("all-gather-done", "collective-permute-done") and not is_tuple:
            return [(operands[0], (1, *p))]
        return None

    def passed(self, i: Instruction, p: tuple[int, ...]) -> list[Position] | None:
        """What callers pass for a parameter."""
        found: list[Position] = []
        for caller in self.callers.get(i.computation, []):
            number = i.parameter_number
            callees = caller.called_computations
            if caller.opcode == "while":
                found += [(caller.operands[0], p), (callees[0].root, p)]
            elif caller.opcode == "conditional":
                found += [
                    (operand, p)
                    for callee, operand in zip(
                        callees, caller.operands[1:], strict=True
                    )
                    if callee is i.computation
                ]
            elif caller.opcode in _CONTROL:
                found.append((caller.operands[number], p))
            else:
                return None
        return found or None

    # -- buffers ------------------------------------------------------------

    def _merge(self, everything: Iterable[Instruction]) -> None:
        together: list[set[Position]] = []
        for i in everything:
            if i.opcode in ("while", "conditional"):
                together += [self.values[i, p] for p in paths(i)]
            for operand, source, target in self.in_place(i):
                together.append(
                    self.values[i.operands[operand], source] | self.values[i, target]
                )
        text = self.module.attributes.get("input_output_alias")
        if text:
            for alias in parse_input_output_alias(text).aliases:
                donor = self.module.entry.parameters[alias.parameter]
                together.append(
                    self.values[self.module.entry.root, alias.output]
                    | self.values[donor, alias.path]
                )
        for one in together:
            touching = [other for other in self.merged if other & one]
            self.merged = [other for other in self.merged if not other & one]
            self.merged.append(set(one).union(*touching))

    def in_place(
        self, i: Instruction
    ) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        if i.opcode == "dynamic-update-slice":
            return [(0, (), ())]
        if i.opcode == "custom-call" and "output_to_operand_aliasing" in i.attributes:
            text = i.attributes["output_to_operand_aliasing"]
            return [(o, s, t) for t, o, s in parse_output_aliasing(text).aliases]
        if i.opcode == "fusion":
            root = i.called_computations[0].root
            if root.opcode == "dynamic-update-slice":
                return [(root.operands[0].parameter_number, (), ())]
        return []

    def buffer_of(self, value: Position) -> frozenset[Position]:
        for group in self.merged:
            if value in group:
                return frozenset(group)
        return frozenset({value})

    def _number(self) -> None:
        self.at: dict[Position, list[frozenset[Position]]] = {}
        known: dict[Position, frozenset[Position]] = {}
        for position, values in self.values.items():
            buffers = []
            for value in values:
                if value not in known:
                    known[value] = self.buffer_of(value)
                if known[value] not in buffers:
                    buffers.append(known[value])
            self.at[position] = buffers

    def size(self, buffer: frozenset[Position]) -> int:
        """Bytes; the programs of the tests have one size per buffer."""
        sizes = {
            parts_of(i.shape).sizes_bytes[parts_of(i.shape).offsets[p]]
            for i, p in buffer
        }
        (size,) = sizes
        return size

    def is_in_device(self, buffer: frozenset[Position]) -> bool:
        shapes = [i.shape.at(p) for i, p in buffer]
        return all(s.layout is None or s.layout.memory_space == 0 for s in shapes)

    # -- pressure -----------------------------------------------------------

    def walk(self) -> None:
        """First definitions and call stacks."""
        self.first: dict[frozenset[Position], Instruction] = {}
        self.stack: dict[frozenset[Position], tuple[Instruction, ...]] = {}
        self._walk(self.module.entry, ())

    def _walk(self, body: Computation, calls: tuple[Instruction, ...]) -> None:
        for i in body.instructions:
            if i.opcode != "fusion":
                for callee in i.called_computations:
                    self._walk(callee, (*calls, i))
            for p in paths(i):
                for buffer in self.at[i, p]:
                    if buffer not in self.first:
                        self.first[buffer] = i
                        self.stack[buffer] = calls

    def allocs(self, i: Instruction) -> list[frozenset[Position]]:
        found = []
        for operand in i.operands:
            for p in paths(operand):
                if p and i.opcode in ("get-tuple-element", "bitcast"):
                    continue
                for buffer in self.at[operand, p]:
                    first = self.first[buffer]
                    is_given = (
                        first.opcode == "parameter"
                        and first.computation is self.module.entry
                    )
                    if self.is_in_device(buffer) and not is_given:
                        found.append(buffer)
        return found

    def frees(self, i: Instruction) -> list[frozenset[Position]]:
        if i.opcode == "parameter":
            return []
        found = []
        calls = i.called_computations
        for p in paths(i):
            for buffer in self.at[i, p]:
                inside = bool(calls) and i in self.stack[buffer]
                defines = inside or any(v[0] is i for v in buffer)
                is_first = inside or self.first[buffer] is i
                if self.is_in_device(buffer) and defines and is_first:
                    found.append(buffer)
        return found

    def last_uses(self) -> dict[frozenset[Position], Instruction]:
        """Who reads each buffer last, callees before the caller's operands."""
        found: dict[frozenset[Position], Instruction] = {}

        def walk(body: Computation) -> None:
            for i in body.instructions:
                if i.opcode != "fusion":
                    for callee in i.called_computations:
                        walk(callee)
                for p in paths(i):
                    for buffer in self.at[i, p]:
                        found.setdefault(buffer, i)
                for operand in i.operands:
                    for p in paths(operand):
                        for buffer in self.at[operand, p]:
                            found[buffer] = i

        walk(self.module.entry)
        return found

    def top_down(
        self, i: Instruction, last: dict[frozenset[Position], Instruction]
    ) -> tuple[list[frozenset[Position]], list[frozenset[Position]]]:
        """(allocs, frees) of placing from above."""
        made = [
            buffer
            for p in paths(i)
            if not (p and i.opcode in ("get-tuple-element", "bitcast"))
            for buffer in self.at[i, p]
            if self.is_in_device(buffer)
            and not (
                self.first[buffer].opcode == "parameter"
                and self.first[buffer].computation is self.module.entry
            )
        ]
        users = [i]
        if i.opcode in ("async-start", "async-done"):
            users.append(start_of(i).called_computations[0].root)
        ended = [
            buffer
            for operand in i.operands
            for p in paths(operand)
            for buffer in self.at[operand, p]
            if self.is_in_device(buffer) and last[buffer] in users
        ]
        return made, [] if i.opcode == "parameter" else ended

    def replay(self) -> dict[Computation, tuple[int, int]]:
        """(initial bytes, peak over it) of every computation that runs."""
        self.walk()
        self.result: dict[Computation, tuple[int, int]] = {}
        self._replay(self.module.entry, frozenset())
        return self.result

    def _replay(
        self, body: Computation, initial: frozenset[frozenset[Position]]
    ) -> None:
        live = set(initial)
        usage = peak = 0
        for i in reversed(body.instructions):
            inner = 0
            if i.opcode != "fusion":
                for callee in i.called_computations:
                    self._replay(callee, frozenset(live))
                    inner = max(inner, self.result[callee][1])
            peak = max(peak, usage + inner)
            for buffer in self.allocs(i):
                if buffer not in live:
                    live.add(buffer)
                    usage += self.size(buffer)
            peak = max(peak, usage)
            for buffer in self.frees(i):
                if buffer in live:
                    live.remove(buffer)
                    usage -= self.size(buffer)
        self.result[body] = (sum(self.size(b) for b in initial), peak)


def classes(groups: Mapping[Position, Sequence[object]]) -> dict[object, set[Position]]:
    """Positions by what they hold."""
    found: dict[object, set[Position]] = {}
    for position, held in groups.items():
        for one in held:
            found.setdefault(one, set()).add(position)
    return found
