"""Uses of memory that a collective in flight writes to.

    g = get-tuple-element(p)         d shares g's memory: readers of g must run
    c = collective-permute-start(g)  before c starts, or after d
    a = add(g, g)
    d = collective-permute-done(c)

Source: openxla/xla `xla/service/latency_hiding_scheduler.cc`,
`xla/service/hlo_value.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffers import Buffers
from hlo_passes.scheduler.memory.dataflow import Dataflow, ValueRanks

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

#: They read only the top of their operand: its table or its array.
_READ_TOP: Final = frozenset({"get-tuple-element", "copy"})
#: They pass their operands on without reading them.
_READ_NOTHING: Final = frozenset({"tuple", "domain"})


class HazardTable:
    """Positions by buffer, one computation at a time, made when first needed."""

    def __init__(self, buffers: Buffers) -> None:
        """Start with empty tables."""
        self._buffers = buffers
        self._ranks = ValueRanks(buffers.flow)
        self._uses_of_value = ValueUses(buffers.flow)
        self._positions: dict[Computation, dict[int, list[int]]] = {}
        self._uses: dict[
            tuple[Computation, int], list[tuple[int, list[tuple[Instruction, int]]]]
        ] = {}

    def buffers_of(self, done: Instruction) -> tuple[int, ...]:
        """The buffers of the top of `done`; () if nothing reaches it."""
        flow = self._buffers.flow
        n = flow.reached.number.get(done)
        return () if n is None else tuple(self._buffers.at(flow.start[n]))

    def uses_of_buffers(
        self, buffers: tuple[int, ...], computation: Computation
    ) -> list[tuple[Instruction, int]]:
        """(user, operand number) of all that uses them; `done` does not matter."""
        return [
            use
            for b in buffers
            for _, uses in self._uses_of_buffer(b, computation)
            for use in uses
        ]

    def uses(self, done: Instruction) -> list[tuple[Instruction, int]]:
        """(user, operand number) of all that shares memory with the top of `done`.

        They are in XLA's order, in the computation of `done`, and not of values that
        `done` defines. They include uses by the start of `done`, by what follows from
        `done`, and of tokens: the caller has to skip those.
        """
        n = self._buffers.flow.reached.number.get(done)
        return [
            use
            for b in self.buffers_of(done)
            for owner, uses in self._uses_of_buffer(b, done.computation)
            if owner != n
            for use in uses
        ]

    def _uses_of_buffer(
        self, b: int, computation: Computation
    ) -> list[tuple[int, list[tuple[Instruction, int]]]]:
        """Uses by value; the number of each value's definer comes first."""
        known = self._uses.get((computation, b))
        if known is not None:
            return known
        flow = self._buffers.flow
        by_value: dict[int, list[int]] = {}
        for position in self._by_buffer(computation)[b]:
            by_value.setdefault(flow.value[position], []).append(position)
        found: list[tuple[int, list[tuple[Instruction, int]]]] = []
        order = list(by_value) if len(by_value) == 1 else None
        for value in order or sorted(by_value, key=self._ranks):
            positions = by_value[value]
            # The defining position comes first, wherever it is.
            positions.sort(key=lambda p, v=value: p != v)
            uses = self._uses_of_value(positions, computation.root)
            found.append((flow.owner(value), uses))
        self._uses[computation, b] = found
        return found

    def _by_buffer(self, computation: Computation) -> dict[int, list[int]]:
        known = self._positions.get(computation)
        if known is not None:
            return known
        buffers = self._buffers
        flow = buffers.flow
        block = flow.reached.block[computation]
        found: dict[int, list[int]] = {}
        for position in range(flow.start[block.start], flow.start[block.stop]):
            for b in buffers.at(position):
                found.setdefault(b, []).append(position)
        self._positions[computation] = found
        return found


class ValueUses:
    """Uses of one value through the positions that hold it.

    A tuple holds many values at parts that the same instructions read: what each
    instruction's users read is found once.
    """

    def __init__(self, flow: Dataflow) -> None:
        """Nothing is known of any instruction."""
        self._flow = flow
        self._known: dict[
            tuple[int, bool, Instruction | None], list[tuple[Instruction, int]]
        ] = {}

    def __call__(
        self, positions: list[int], root: Instruction
    ) -> list[tuple[Instruction, int]]:
        """(user, operand number) by position; a root that holds the value uses it."""
        flow = self._flow
        owners = [flow.owner(p) for p in positions]
        holder = root if flow.reached.number[root] in owners else None
        found: list[tuple[Instruction, int]] = []
        for position, n in zip(positions, owners, strict=True):
            found += self._of_part(n, position == flow.start[n], holder)
        return found

    def _of_part(
        self, n: int, is_top: bool, holder: Instruction | None
    ) -> list[tuple[Instruction, int]]:
        """Uses of the top, or of any other part, of instruction `n`."""
        known = self._known.get((n, is_top, holder))
        if known is not None:
            return known
        instruction = self._flow.reached.instructions[n]
        numbers = self._flow.uses
        found: list[tuple[Instruction, int]] = []
        for user in instruction.users:
            opcode = user.opcode
            passes = opcode in _READ_NOTHING or (opcode in _READ_TOP and not is_top)
            if not passes or user is holder:
                found += [(user, k) for k in numbers.of(user, instruction)]
        self._known[n, is_top, holder] = found
        return found
