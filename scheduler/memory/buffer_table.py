"""Where each buffer begins, and which buffers an instruction starts or ends.

    p  = parameter(0)            begins p's buffer
    w  = while(t), body=%body    descends: what body makes begins there, called by w
    r  = call(x), to_apply=%f    frees what f has made; its call stack has w and r

It is one walk over the whole program; callees come before the caller's own results.

Source: openxla/xla `xla/service/latency_hiding_scheduler.cc`, BufferInfoTracker and
MemoryPressureTracker (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffers import Buffers
from hlo_passes.scheduler.memory.reached import Reached

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

#: An order for some computations; the others keep the order of the text.
Orders = Mapping["Computation", Sequence["Instruction"]]

#: They make only the top of their operand live: a pointer table or an array.
_TOP_ONLY: Final = frozenset({"get-tuple-element", "bitcast"})

_NOWHERE: Final = -1


def ordered_blocks(
    reached: Reached, orders: Orders
) -> dict[Computation, Sequence[int]]:
    """Numbers of the instructions of each computation, in its order."""
    number = reached.number
    return {
        c: [number[i] for i in orders[c]] if c in orders else block
        for c, block in reached.block.items()
    }


@dataclass(frozen=True, slots=True)
class BufferTable:
    """The effect of placing an instruction, by its number.

    Attributes:
        buffers: the buffers.
        first: buffer -> number of the first instruction of the walk that holds it, -1
            if the walk never reaches it.
        stack: buffer -> numbers of the calls that led there, outermost first.
        last: buffer -> number of the last instruction that reads it; empty unless
            asked for.
        allocs: number -> buffers that placing it makes live, with multiplicity.
        frees: number -> buffers that placing it ends, with multiplicity.
    """

    buffers: Buffers
    first: list[int]
    stack: list[tuple[int, ...]]
    last: list[int]
    allocs: list[tuple[int, ...]]
    frees: list[tuple[int, ...]]


def build_buffer_table(
    buffers: Buffers,
    blocks: Mapping[Computation, Sequence[int]],
    *,
    top_down: bool = False,
) -> BufferTable:
    """Walk the program in the given orders.

    Args:
        buffers: of the module.
        blocks: computation -> numbers of its instructions, in order.
        top_down: outputs allocate and last uses free, instead of operands and first
            definitions.
    """
    walk = _Walk(buffers, blocks)
    walk.run(buffers.flow.reached.module.entry)
    last = _last_uses(buffers, blocks) if top_down else []
    lists = _Lists(buffers, walk.first, walk.stack)
    lists.fill()
    table = BufferTable(
        buffers, walk.first, walk.stack, last, lists.allocs, lists.frees
    )
    if not top_down:
        return table
    return _top_down(table, lists)


class _Walk:
    """Finds the first definition of every buffer."""

    def __init__(
        self, buffers: Buffers, blocks: Mapping[Computation, Sequence[int]]
    ) -> None:
        count = len(buffers.sizes_bytes)
        self.buffers = buffers
        self.blocks = blocks
        self.first = [_NOWHERE] * count
        self.stack: list[tuple[int, ...]] = [()] * count
        self.walked: set[Computation] = set()

    def run(self, entry: Computation) -> None:
        """Visit each computation once: its first call finds all that it holds."""
        reached = self.buffers.flow.reached
        callees = reached.callees
        stack: list[tuple[tuple[int, ...], Sequence[int], int]] = []
        self.walked.add(entry)
        calls: tuple[int, ...] = ()
        block, at = self.blocks[entry], 0
        while True:
            descend = None
            while at < len(block):
                n = block[at]
                if n in callees:
                    descend = next(
                        (
                            c
                            for c in callees[n]
                            if c not in self.walked and reached.runs_on(c)
                        ),
                        None,
                    )
                    if descend is not None:
                        break
                self._note(n, calls)
                at += 1
            if descend is not None:
                # Return to this instruction until all its callees are walked.
                stack.append((calls, block, at))
                self.walked.add(descend)
                calls = (*calls, block[at])
                block, at = self.blocks[descend], 0
            elif stack:
                calls, block, at = stack.pop()
            else:
                return

    def _note(self, n: int, calls: tuple[int, ...]) -> None:
        start, of_position = self.buffers.flow.start, self.buffers.of_position
        first = self.first
        for position in range(start[n], start[n + 1]):
            b = of_position[position]
            if b >= 0:
                if first[b] < 0:
                    first[b] = n
                    self.stack[b] = calls
            else:
                for one in self.buffers.at(position):
                    if first[one] < 0:
                        first[one] = n
                        self.stack[one] = calls


class _Lists:
    """allocs and frees of every instruction, for scheduling from the bottom up."""

    def __init__(
        self, buffers: Buffers, first: list[int], stack: list[tuple[int, ...]]
    ) -> None:
        self.buffers = buffers
        self.flow = buffers.flow
        self.first = first
        self.stack = stack
        self.allocs: list[tuple[int, ...]] = []
        self.frees: list[tuple[int, ...]] = []
        self.is_counted = self._counted()

    def _counted(self) -> list[bool]:
        """Buffers that count: in device memory, and not owned by the caller."""
        reached = self.flow.reached
        entry = reached.block[reached.module.entry]
        instructions = reached.instructions
        return [
            counted and not (n in entry and instructions[n].opcode == "parameter")
            for counted, n in zip(self.buffers.is_counted, self.first, strict=True)
        ]

    def fill(self) -> None:
        """Make both lists."""
        reached = self.flow.reached
        number, callees = reached.number, reached.callees
        for n, instruction in enumerate(reached.instructions):
            opcode = instruction.opcode
            operands = instruction.operands
            if opcode in _TOP_ONLY:
                self.allocs.append(self.counted_top(number[operands[0]]))
            elif not operands:
                self.allocs.append(())
            else:
                # A list: tuples of a tuple's thousand parts would be copied each time.
                found: list[int] = []
                for operand in operands:
                    found += self.counted_all(number[operand])
                self.allocs.append(tuple(found))
            if opcode == "parameter":
                self.frees.append(())
            elif n in callees:
                self.frees.append(self.ended_by_call(n))
            else:
                self.frees.append(self.ended(n))

    def counted_top(self, n: int) -> tuple[int, ...]:
        """Counted buffers of the whole result, without its parts."""
        counted = self.is_counted
        return tuple(b for b in self.buffers.at(self.flow.start[n]) if counted[b])

    def counted_all(self, n: int) -> tuple[int, ...]:
        """Counted buffers of all parts, in their order."""
        start, of_position = self.flow.start, self.buffers.of_position
        counted = self.is_counted
        first, stop = start[n], start[n + 1]
        if stop - first == 1:
            b = of_position[first]
            if b >= 0:
                return (b,) if counted[b] else ()
        found: list[int] = []
        for position in range(first, stop):
            b = of_position[position]
            if b >= 0:
                if counted[b]:
                    found.append(b)
            else:
                found += [one for one in self.buffers.at(position) if counted[one]]
        return tuple(found)

    def ended(self, n: int) -> tuple[int, ...]:
        """Buffers that instruction `n` defines and is the first to hold."""
        flow = self.flow
        value, of_position = flow.value, self.buffers.of_position
        in_device, first = self.buffers.is_counted, self.first
        low, high = flow.start[n], flow.start[n + 1]
        if high - low == 1:
            b = of_position[low]
            if value[low] == low and b >= 0 and first[b] == n and in_device[b]:
                return (b,)
            return ()
        own = {of_position[p] for p in range(low, high) if value[p] == p}
        return tuple(
            b
            for b in of_position[low:high]
            if b in own and b >= 0 and first[b] == n and in_device[b]
        )

    def ended_by_call(self, n: int) -> tuple[int, ...]:
        """The same for a call: what the callee made counts as the call's own."""
        flow = self.flow
        low, high = flow.start[n], flow.start[n + 1]
        own = {
            b
            for p in range(low, high)
            if flow.value[p] == p
            for b in self.buffers.at(p)
        }
        return tuple(
            b
            for p in range(low, high)
            for b in self.buffers.at(p)
            if self.buffers.is_counted[b]
            and ((self.first[b] == n and b in own) or n in self.stack[b])
        )


# -- scheduling from the top down --------------------------------------------------


def _last_uses(
    buffers: Buffers, blocks: Mapping[Computation, Sequence[int]]
) -> list[int]:
    """By buffer, the last instruction of the walk that reads it or first holds it."""
    reached = buffers.flow.reached
    last = [_NOWHERE] * len(buffers.sizes_bytes)

    def walk(computation: Computation) -> None:
        for n in blocks[computation]:
            for callee in reached.callees.get(n, ()):
                if reached.runs_on(callee):
                    walk(callee)
            for b in _held(buffers, n):
                if last[b] < 0:
                    last[b] = n
            for operand in reached.instructions[n].operands:
                for b in _held(buffers, reached.number[operand]):
                    last[b] = n

    walk(reached.module.entry)
    return last


def _held(buffers: Buffers, n: int) -> list[int]:
    """Buffers of all parts of instruction `n`."""
    start = buffers.flow.start
    return [b for p in range(start[n], start[n + 1]) for b in buffers.at(p)]


def _top_down(table: BufferTable, lists: _Lists) -> BufferTable:
    """Outputs allocate; operands are freed at their last use."""
    reached = table.buffers.flow.reached
    in_device = table.buffers.is_counted
    allocs: list[tuple[int, ...]] = []
    frees: list[tuple[int, ...]] = []
    for n, instruction in enumerate(reached.instructions):
        top_only = instruction.opcode in _TOP_ONLY
        allocs.append(lists.counted_top(n) if top_only else lists.counted_all(n))
        if instruction.opcode == "parameter":
            frees.append(())
            continue
        frees.append(
            tuple(
                b
                for operand in instruction.operands
                for b in _held(table.buffers, reached.number[operand])
                if in_device[b] and table.last[b] == n
            )
        )
    return BufferTable(
        table.buffers, table.first, table.stack, table.last, allocs, frees
    )
