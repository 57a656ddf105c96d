"""The list scheduler: first to last, it always takes what frees the most memory.

    ready: a (frees 0, makes 1024), b (frees 512, makes 4)     -> b, then a
    scalars go first; of equals, what became ready last

The latency-hiding scheduler starts from an order that this, the depth-first or the post
order scheduler made.

Source: openxla/xla `hlo/transforms/simplifiers/hlo_memory_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.value_sizes import ValueSizes

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

#: More than any number of bytes: scalars stay together, near where they are used.
_SCALAR: Final = (1 << 63) - 1
#: Rank of an outfeed and an infeed with a config: one goes early, the other late.
_OUTFEED: Final = (1 << 31) - 1
_INFEED: Final = -(1 << 31)


def list_order(computation: Computation, sizes: ValueSizes) -> list[Instruction]:
    """The order of one computation. `sizes` holds the values of its module."""
    scheduler = _ListScheduler(computation, sizes)
    return scheduler.run()


class _ListScheduler:
    def __init__(self, computation: Computation, sizes: ValueSizes) -> None:
        self.instructions = computation.instructions
        self.sizes = sizes
        self.index = {i: k for k, i in enumerate(self.instructions)}
        self.used: list[list[int]] = [self._used_values(i) for i in self.instructions]
        self.made_bytes = [
            0
            if i.opcode in ("parameter", "constant")
            else sum(sizes.bytes_of(v) for v in sizes.defined(i))
            for i in self.instructions
        ]
        self.uses_left: dict[int, int] = {}
        for values in self.used:
            for v in values:
                self.uses_left[v] = self.uses_left.get(v, 0) + 1
        for v in sizes.held(computation.root):
            self.uses_left[v] = self.uses_left.get(v, 0) + 1
        self.ready: dict[int, tuple[int, int, int]] = {}
        self.queue: list[tuple[int, int, int, int]] = []
        self.inserted = 0

    def _used_values(self, instruction: Instruction) -> list[int]:
        found: dict[int, None] = {}
        for operand in dict.fromkeys(instruction.operands):
            for v in self.sizes.held(operand):
                found[v] = None
        return list(found)

    def _priority(self, k: int) -> tuple[int, int]:
        instruction = self.instructions[k]
        shape = instruction.shape
        if shape.is_array and all(d == 1 for d in shape.dimensions):
            return _SCALAR, _SCALAR
        return self._freed_bytes(k), instruction.user_count

    def _freed_bytes(self, k: int) -> int:
        """Bytes that end with the instruction, minus those that it makes."""
        instruction = self.instructions[k]
        if instruction.opcode == "outfeed" and _has_config(instruction):
            return _OUTFEED
        if instruction.opcode == "infeed" and _has_config(instruction):
            return _INFEED
        uses_left, sizes = self.uses_left, self.sizes
        freed = sum(
            sizes.bytes_of(v)
            for v in self.used[k]
            if uses_left[v] == 1 and not sizes.is_given(v)
        )
        return freed - self.made_bytes[k]

    def _insert(self, k: int, priority: tuple[int, int]) -> None:
        """Put an instruction into the queue; an older entry for it becomes stale."""
        self.inserted += 1
        self.ready[k] = (*priority, self.inserted)
        freed, users = priority
        heapq.heappush(self.queue, (-freed, -users, -self.inserted, k))

    def run(self) -> list[Instruction]:
        index, uses_left = self.index, self.uses_left
        waiting = [
            len(set(i.operands)) + len(i.control_predecessors)
            for i in self.instructions
        ]
        for k in self._starting_order():
            if waiting[k] == 0:
                self._insert(k, self._priority(k))
        order: list[Instruction] = []
        while self.queue:
            *_, stamp, k = heapq.heappop(self.queue)
            if k not in self.ready or self.ready[k][2] != -stamp:
                continue
            del self.ready[k]
            best = self.instructions[k]
            order.append(best)
            one_use_left = False
            for v in self.used[k]:
                uses_left[v] -= 1
                one_use_left |= uses_left[v] == 1
            for following in (*best._users, *best.control_successors):
                j = index[following]
                waiting[j] -= 1
                if waiting[j] == 0:
                    self._insert(j, self._priority(j))
            if one_use_left:
                self._rank_again(best)
        return order

    def _starting_order(self) -> list[int]:
        """All instructions in the order of XLA's list, as far as a text shows it.

        A text has parameters where their users need them, XLA has them by number.
        """
        places = [k for k, i in enumerate(self.instructions) if i.opcode == "parameter"]
        by_number = sorted(places, key=lambda k: self.instructions[k].parameter_number)
        found = list(range(len(self.instructions)))
        for place, k in zip(places, by_number, strict=True):
            found[place] = k
        return found

    def _rank_again(self, best: Instruction) -> None:
        """Insert again what frees more now that other uses have ended."""
        for operand in best.operands:
            for user in operand._users:
                j = self.index[user]
                if j in self.ready:
                    priority = self._priority(j)
                    if priority != self.ready[j][:2]:
                        self._insert(j, priority)


def _has_config(instruction: Instruction) -> bool:
    name = f"{instruction.opcode}_config"
    return instruction.attributes.get(name, '""') not in ("", '""')
