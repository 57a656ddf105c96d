"""Which readers must come before a start, and which of these demands no order can meet.

    %v = permute-done(%s0)
    %s = all-reduce-start(%v)     overwrites %v from here on
    %r = add(%p, %v)              broken: reads %v, so it had to come before %s
    %d = all-reduce-done(%s)
    %n = negate(%d)               no demand on %s0: this value is younger than %v

A value is alive from its writer to a reader. No other value of its buffer may be in
flight there. In a module before copy insertion some demands contradict one another, or
what the program computes: together with the dependences they form cycles, which no
order can follow. Only such a demand may be broken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

#: Values of one buffer that a reader reads before it is called wide.
_MANY_READS: Final = 8
#: Positions that all answers of `_needed_by` together may hold: so many for each
#: instruction, and so many in any case. What was not asked for longest goes first.
_KEPT_FOR_EACH, _KEPT_IN_ANY_CASE = 8, 1 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """One read of a place: the reader, its position, and the value."""

    position: int
    user: Instruction
    value: int


@dataclass(slots=True)
class Contents:
    """What happens to one buffer in one computation.

    `written`: (position, writer, value); the writer is None for an input.
    """

    written: list[tuple[int, Instruction | None, int]] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Write:
    """An asynchronous operation by the positions of start and done, and its value."""

    begin: int
    end: int
    value: int


@dataclass(frozen=True, slots=True)
class _Broken:
    """A reader that comes after the start of what overwrites its value.

    `is_forced`: no order lets the value be written after the other one.
    """

    user: int
    start: int
    is_forced: bool


class _Buffer:
    """What is written and read in one buffer, ready to be asked by position."""

    def __init__(self, contents: Contents, writes: Sequence[Write]) -> None:
        self.uses = contents.uses
        self.writes = writes
        self.begun = {value: at for at, _, value in contents.written}
        self.begins = [write.begin for write in writes]
        self._furthest = list(accumulate((write.end for write in writes), max))

    def around(self, use: Use, user: int) -> range:
        """Numbers of writes that may overlap the life of a value until a reader."""
        return range(
            bisect_right(self._furthest, self.begun[use.value]),
            bisect_left(self.begins, user),
        )


class Demands:
    """The demands on the present order of one computation; positions are its nodes."""

    def __init__(self, computation: Computation) -> None:
        """Without any demand so far."""
        self._instructions = computation.instructions
        self._position = {i: k for k, i in enumerate(self._instructions)}
        self._buffers: list[_Buffer] = []
        self._needed: dict[int, tuple[int, set[int]]] = {}
        self._kept = 0
        self._most_kept = max(
            _KEPT_IN_ANY_CASE, _KEPT_FOR_EACH * len(self._instructions)
        )
        #: The start before it that overwrites the same value, and the first of them.
        self._rival: dict[int, int] = {}
        self._first_rival: dict[int, int] = {}

    def add(self, contents: Contents, writes: Sequence[Write]) -> None:
        """Add what asynchronous operations write into a buffer, by where they begin."""
        self._buffers.append(_Buffer(contents, writes))

    def avoidable(self) -> list[tuple[Instruction, Instruction]]:
        """(reader, start) of demands that are broken, but need not be.

        At most one for each reader, in order of the starts.
        """
        for buffer in self._buffers:
            self._note_rivals(buffer)
        broken = [b for buffer in self._buffers for b in self._broken(buffer)]
        if not broken:
            return []
        further = self._demanded(broken)
        reachable: dict[int, set[int]] = {}
        found: dict[int, int] = {}
        for demand in broken:
            source = self._first_rival.get(demand.start, demand.start)
            if source not in reachable:
                reachable[source] = self._reachable_from(source, further)
            if demand.user not in reachable[source]:
                earliest = found.get(demand.user, demand.start)
                found[demand.user] = min(earliest, demand.start)
        at = self._instructions
        return [
            (at[user], at[start])
            for start, user in sorted((start, user) for user, start in found.items())
        ]

    def _note_rivals(self, buffer: _Buffer) -> None:
        """Find starts that overwrite one value which each of them reads.

        Each would have to come before all others: they form a cycle.
        """
        begins = set(buffer.begins)
        rivals: dict[int, list[int]] = {}
        for use in buffer.uses:
            user = self._position[use.user]
            if user in begins:
                rivals.setdefault(use.value, []).append(user)
        for starts in rivals.values():
            for one, other in pairwise(sorted(set(starts))):
                if one not in self._needed_by(other, one):
                    self._rival[other] = one
                    self._first_rival[other] = self._first_rival.get(one, one)

    def _broken(self, buffer: _Buffer) -> Iterator[_Broken]:
        """Readers after the start of a write that overlaps the life of their value.

        A reader that needs the start has no other place. Of rivals one is enough.
        """
        before = self._before_rivals(buffer)
        earlier, repeats, free = -1, 0, None
        for use in buffer.uses:
            user = self._position[use.user]
            numbers: Sequence[int] = buffer.around(use, user)
            if not numbers:
                continue
            needed = self._needed_by(user, buffer.begins[numbers[0]])
            repeats = repeats + 1 if user == earlier else 0
            if not repeats:
                earlier, free = user, None
            elif repeats >= _MANY_READS:
                # A wide reader needs most of the starts: find the others once.
                if free is None:
                    all_needed = self._needed_by(user, buffer.begins[0])
                    begins = enumerate(buffer.begins)
                    free = [k for k, at in begins if at not in all_needed]
                first, last = numbers[0], numbers[-1]
                numbers = free[bisect_left(free, first) : bisect_right(free, last)]
            begun = buffer.begun[use.value]
            at = len(numbers) - 1
            while at >= 0:
                write = buffer.writes[numbers[at]]
                if (
                    write.end > begun
                    and write.value != use.value
                    and write.begin not in needed
                ):
                    is_forced = begun < 0 or begun in self._needed_by(write.end, begun)
                    yield _Broken(user, write.begin, is_forced)
                    at = bisect_right(numbers, before[numbers[at]]) - 1
                else:
                    at -= 1

    def _before_rivals(self, buffer: _Buffer) -> list[int]:
        """For each write the number of the last one before it that is no rival."""
        before: list[int] = []
        groups = [self._first_rival.get(begin, begin) for begin in buffer.begins]
        for number, group in enumerate(groups):
            follows = number > 0 and groups[number - 1] == group
            before.append(before[-1] if follows else number - 1)
        return before

    def _needed_by(self, position: int, lowest: int) -> set[int]:
        """What comes before an instruction in every order, down to a position."""
        down_to, seen = self._needed.pop(position, (position, set[int]()))
        self._kept -= len(seen)
        if lowest < down_to or not seen:
            # It grows by more than was asked, so that growing costs no more in all.
            down_to = max(0, 2 * lowest - position)
            seen = {position}
            work = [position]
            while work:
                current = self._instructions[work.pop()]
                for earlier in (*current.operands, *current.control_predecessors):
                    at = self._position[earlier]
                    if at >= down_to and at not in seen:
                        seen.add(at)
                        work.append(at)
        self._kept += len(seen)
        while self._kept > self._most_kept and self._needed:
            _, forgotten = self._needed.pop(next(iter(self._needed)))
            self._kept -= len(forgotten)
        self._needed[position] = (down_to, seen)
        return seen

    def _demanded(self, broken: Sequence[_Broken]) -> dict[int, list[int]]:
        """Edges of the demands that hold, or that every order has to meet.

        The starts of a buffer form a chain of nodes of their own: a reader leads to the
        node of the first start after it, a node to its start and to the next node.
        """
        further: dict[int, list[int]] = {}
        node = len(self._instructions)
        for buffer in self._buffers:
            for use in buffer.uses:
                user = self._position[use.user]
                following = bisect_right(buffer.begins, user)
                if following < len(buffer.begins):
                    further.setdefault(user, []).append(node + following)
            for number, begin in enumerate(buffer.begins):
                further[node + number] = [begin]
                if number:
                    further[node + number - 1].append(node + number)
            node += len(buffer.begins)
        for start, rival in self._rival.items():
            further.setdefault(start, []).append(rival)
        for demand in broken:
            if demand.is_forced:
                further.setdefault(demand.user, []).append(demand.start)
        return further

    def _reachable_from(
        self, source: int, further: Mapping[int, Sequence[int]]
    ) -> set[int]:
        """What follows through operands, control edges and `further` edges."""
        seen = {source}
        work = [source]
        while work:
            current = work.pop()
            following = list(further.get(current, ()))
            if current < len(self._instructions):
                instruction = self._instructions[current]
                following += [
                    self._position[each]
                    for each in (*instruction.users, *instruction.control_successors)
                ]
            for each in following:
                if each not in seen:
                    seen.add(each)
                    work.append(each)
        return seen
