"""The list scheduler: first to last, it always takes what frees the most memory.

    ready: a (frees 0, makes 1024), b (frees 512, makes 4)     -> b, then a
    scalars go first; of equals, what became ready last

The latency-hiding scheduler starts from an order that this, the depth-first or the post
order scheduler made.

Source: openxla/xla `hlo/transforms/simplifiers/hlo_memory_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
#: More users than a tuple's values are counted for one by one.
_SEVERAL: Final = 2


def list_order(computation: Computation, sizes: ValueSizes) -> list[Instruction]:
    """The order of one computation. `sizes` holds the values of its module."""
    scheduler = _ListScheduler(computation, sizes)
    return scheduler.run()


@dataclass(eq=False, slots=True)
class _Group:
    """The values of one tuple: each of its users uses all of them.

    A value has one use left only if its group has at most one: so the uses of a group
    that has several count as two of each value.

    Attributes:
        values: each once.
        left: how many users were not yet placed.
        users: the sum of their numbers.
    """

    values: frozenset[int]
    left: int = 0
    users: int = 0


class _ListScheduler:
    def __init__(self, computation: Computation, sizes: ValueSizes) -> None:
        self.instructions = computation.instructions
        self.sizes = sizes
        self.index = {i: k for k, i in enumerate(self.instructions)}
        self.uses_left: dict[int, int] = {}
        # The sum of the numbers of a value's users, one by one: the number of the user,
        # where one is left. A result has none, so numbers begin with 1.
        self.users: dict[int, int] = {}
        self.group_of: dict[Instruction, _Group | None] = {}
        self.disjoint: dict[frozenset[_Group], bool] = {}
        self.used: list[tuple[list[int], list[_Group]]] = [
            self._used_values(k, i) for k, i in enumerate(self.instructions)
        ]
        self.made_bytes = [
            0
            if i.opcode in ("parameter", "constant")
            else sum(sizes.bytes_of(v) for v in sizes.defined(i))
            for i in self.instructions
        ]
        uses_left, users = self.uses_left, self.users
        for k, (values, _) in enumerate(self.used):
            for v in values:
                uses_left[v] = uses_left.get(v, 0) + 1
                users[v] = users.get(v, 0) + k + 1
        for group in filter(None, self.group_of.values()):
            for v in group.values:
                uses_left[v] = uses_left.get(v, 0) + min(group.left, _SEVERAL)
                if group.left == 1:
                    users[v] = users.get(v, 0) + group.users
        for v in sizes.held(computation.root):
            uses_left[v] = uses_left.get(v, 0) + 1
        self.ready: dict[int, tuple[int, int, int]] = {}
        self.queue: list[tuple[int, int, int, int]] = []
        self.inserted = 0
        # Bytes that end with each instruction, as of now.
        self.freed_bytes = [0] * len(self.instructions)
        # By operand, the users that free more than when they were ranked.
        self.outranked: dict[Instruction, dict[int, None]] = {}
        self.positions: dict[Instruction, dict[Instruction, int]] = {}
        for v, uses in uses_left.items():
            if uses == 1:
                self._note_last_use(v)

    def _used_values(
        self, k: int, instruction: Instruction
    ) -> tuple[list[int], list[_Group]]:
        """Values that end with their last user: single ones, and those of tuples."""
        operands = list(dict.fromkeys(instruction.operands))
        groups = [g for g in map(self._group_of, operands) if g is not None]
        # A value counts once, in however many operands it is.
        if len(groups) > 1 and not self._are_disjoint(groups):
            groups = []
        found: dict[int, None] = {}
        for operand in operands:
            group = self.group_of[operand]
            if group is None or group not in groups:
                found |= dict.fromkeys(self.sizes.held(operand))
        for group in groups:
            group.left += 1
            group.users += k + 1
        return [v for v in found if not any(v in g.values for g in groups)], groups

    def _group_of(self, operand: Instruction) -> _Group | None:
        """The values of a tuple with many users; None where there are few."""
        if operand not in self.group_of:
            group = None
            if operand.user_count > _SEVERAL and not operand.shape.is_array:
                group = _Group(frozenset(self.sizes.held(operand)))
            self.group_of[operand] = group
        return self.group_of[operand]

    def _are_disjoint(self, groups: Sequence[_Group]) -> bool:
        key = frozenset(groups)
        if key not in self.disjoint:
            several = frozenset[int]().union(*(g.values for g in groups))
            self.disjoint[key] = len(several) == sum(len(g.values) for g in groups)
        return self.disjoint[key]

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
        return self.freed_bytes[k] - self.made_bytes[k]

    def _note_last_use(self, v: int) -> None:
        """Note that a value has one use left: its user frees it, if it is ours."""
        k = self.users.get(v, 0) - 1
        freed = 0 if self.sizes.is_given(v) else self.sizes.bytes_of(v)
        if k < 0 or not freed:
            return
        self.freed_bytes[k] += freed
        if k in self.ready:
            for operand in self.instructions[k].operands:
                self.outranked.setdefault(operand, {})[k] = None

    def _end_uses(self, k: int) -> bool:
        """Count an instruction's uses as over; whether a value has one use left."""
        uses_left, users = self.uses_left, self.users
        values, groups = self.used[k]
        one_use_left = False
        for v in values:
            uses_left[v] -= 1
            users[v] -= k + 1
            if uses_left[v] == 1:
                one_use_left = True
                self._note_last_use(v)
        for group in groups:
            group.left -= 1
            group.users -= k + 1
            if group.left >= _SEVERAL:
                continue
            # The last user of a group is one of each of its values.
            change = group.users if group.left else -(k + 1)
            for v in group.values:
                uses_left[v] -= 1
                users[v] = users.get(v, 0) + change
                if uses_left[v] == 1:
                    one_use_left = True
                    self._note_last_use(v)
        return one_use_left

    def _insert(self, k: int, priority: tuple[int, int]) -> None:
        """Put an instruction into the queue; an older entry for it becomes stale."""
        self.inserted += 1
        self.ready[k] = (*priority, self.inserted)
        freed, users = priority
        heapq.heappush(self.queue, (-freed, -users, -self.inserted, k))

    def run(self) -> list[Instruction]:
        index = self.index
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
            one_use_left = self._end_uses(k)
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
            found: Iterable[int] = self.outranked.pop(operand, {})
            if len(found) > 1:
                found = sorted(found, key=self._position_in(operand))
            for j in found:
                if j in self.ready:
                    priority = self._priority(j)
                    if priority != self.ready[j][:2]:
                        self._insert(j, priority)

    def _position_in(self, operand: Instruction) -> Callable[[int], int]:
        """The place of an instruction, by number, among an operand's users."""
        if operand not in self.positions:
            self.positions[operand] = {u: n for n, u in enumerate(operand._users)}
        positions, instructions = self.positions[operand], self.instructions
        return lambda j: positions[instructions[j]]


def _has_config(instruction: Instruction) -> bool:
    name = f"{instruction.opcode}_config"
    return instruction.attributes.get(name, '""') not in ("", '""')
