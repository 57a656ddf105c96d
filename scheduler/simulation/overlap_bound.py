"""How much of the communication of one stream compute can hide, whatever the order.

    lane     h: 30 us, b: 10 us, t: 20 us
    stream   i: 40 us, j: 40 us
    i and j need h, t needs both

    Only b may run beside i or j, so at most 10 us overlap: no order takes less than
    60 + 80 - 10 = 130 us, though compute takes 60, the stream 80, the longest chain 90.

The lane runs one instruction at a time and the stream one pair at a time, so the time
in which both are busy is a sum of overlaps: of an instruction with all pairs no more
than its own time, of a pair with all instructions no more than its own time, and 0 for
two that a path puts in order. The greatest such sum is a flow

    source -- time --> instruction -- no path --> pair -- time --> sink

and a step is at least as long as the time in which one of both is busy.

Where an overlap limit keeps pairs of a stream apart, an instruction is in the window of
one of them at most: it hides no more than the longest pair that it may stand beside.
`one_window` says more about that, and takes longer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.scheduler.simulation.one_window import most_hidden_us

#: Pairs that are told apart, the longest ones; the others count as if any instruction
#: could run beside them.
MOST_PAIRS: Final = 1_024
#: Steps that the search for the greatest flow may take: so many, so many more for each
#: instruction. What is not placed by then counts as overlapped.
_STEPS: Final = 100_000
_STEPS_PER_NODE: Final = 8
#: Times are whole numbers in the flow, of which the longest has so many bits.
_BITS: Final = 52


@dataclass(frozen=True, slots=True)
class Pair:
    """Work of a stream between two instructions.

    Attributes:
        start: number of the instruction that begins it.
        done: number of the instruction that waits for it, -1 for none.
        us: how long its stream is busy.
    """

    start: int
    done: int
    us: float


@dataclass(slots=True)
class Overlaps:
    """Which instructions of one computation may run beside which pairs.

    Attributes:
        preds: by instruction, those that come before it. Numbers follow an order; a
            path through one with a greater number is not seen.
        pairs: of all streams.
        apart: by instruction, starts of pairs that never run beside it, though no path
            says so.
        before: by instruction, the pairs that it must come before, as bits; starts
            come before their own.
        after: by instruction, the pairs that it must come after, dones after their own.
        steps: that the searches for a flow took so far.
    """

    preds: Sequence[Sequence[int]]
    pairs: Sequence[Pair]
    apart: Mapping[int, frozenset[int]] = field(default_factory=dict)
    before: list[int] = field(init=False)
    after: list[int] = field(init=False)
    steps: int = field(init=False, default=0)
    _bits: dict[int, int] = field(init=False)
    _ordered: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Find by instruction the pairs that are before or after it: one bit each."""
        longest = sorted(self.pairs, key=lambda pair: -pair.us)[:MOST_PAIRS]
        longest.sort(key=lambda pair: pair.start)
        self._bits = {pair.start: 1 << k for k, pair in enumerate(longest)}
        above = self.after = self._above(longest)
        below = self.before = [0] * len(self.preds)
        for pair in longest:
            below[pair.start] = self._bits[pair.start]
        for v in reversed(range(len(below))):
            mask = below[v]
            for p in self.preds[v] if mask else ():
                below[p] = _joined(below[p], mask)
        self._ordered = list(map(_joined, above, below))
        masks: dict[frozenset[int], int] = {}
        for v, starts in self.apart.items():
            if starts not in masks:
                masks[starts] = self._mask(starts)
            self._ordered[v] |= masks[starts]

    def _above(self, pairs: Iterable[Pair]) -> list[int]:
        own = {pair.done: 0 for pair in pairs}
        for pair in pairs:
            own[pair.done] |= self._bits[pair.start]
        above = [0] * len(self.preds)
        for v, near in enumerate(self.preds):
            mask = own.get(v, 0)
            for p in near:
                mask = _joined(mask, above[p])
            above[v] = mask
        return above

    def _mask(self, starts: Iterable[int]) -> int:
        mask = 0
        for start in starts:
            mask |= self._bits.get(start, 0)
        return mask

    def bit(self, pair: Pair) -> int:
        """The bit of a pair; 0 for one that is not told apart."""
        return self._bits.get(pair.start, 0)

    def most_us(
        self,
        pairs: Sequence[Pair],
        room_us: Mapping[int, float],
        *,
        one_by_one: bool = False,
    ) -> float:
        """The longest time in which the lane and one stream can both be busy, us.

        Args:
            pairs: those of `pairs` that run on that stream.
            room_us: by instruction, how long a pair can run beside it.
            one_by_one: whether two of these pairs are never in flight together.
        """
        total = max(math.fsum(room_us.values()), math.fsum(p.us for p in pairs))
        if not (0.0 < total < math.inf):
            return 0.0 if total == 0.0 else math.nan
        _, exponent = math.frexp(total)
        scale = _BITS - exponent
        # Rounded up on both sides, so that no overlap is left out.
        told = [pair for pair in pairs if pair.start in self._bits]
        others = sum(
            _whole(pair.us, scale) for pair in pairs if pair.start not in self._bits
        )
        mine = self._mask(pair.start for pair in told)
        place = {self._bits[pair.start].bit_length() - 1: pair for pair in told}
        most: dict[int, float] = {}
        groups: dict[int, int] = {}
        for v, us in room_us.items():
            mask = mine & ~self._ordered[v]
            if us > 0.0 and (mask or others):
                if one_by_one and not others:
                    if mask not in most:
                        most[mask] = max(place[k].us for k in _places(mask))
                    us = min(us, most[mask])
                groups[mask] = groups.get(mask, 0) + _whole(us, scale)
        left = {k: _whole(pair.us, scale) for k, pair in place.items() if pair.us > 0.0}
        steps = _STEPS + _STEPS_PER_NODE * len(self.preds)
        flow = _Flow(groups, left, others, steps)
        placed = flow.most()
        self.steps += len(room_us) + steps - flow.steps
        return math.ldexp(float(placed), -scale)

    def most_in_one_window_us(
        self, pairs: Sequence[Pair], room_us: Mapping[int, float]
    ) -> float:
        """The same where two of the pairs are never in flight together.

        Neither is always the shorter time.
        """
        if any(pair.start not in self._bits for pair in pairs):
            return math.inf
        place = {
            self._bits[pair.start].bit_length() - 1: k for k, pair in enumerate(pairs)
        }
        mine = self._mask(pair.start for pair in pairs)
        near: dict[int, tuple[int, ...]] = {}
        beside: dict[tuple[tuple[int, ...], float], int] = {}
        for v, us in room_us.items():
            mask = mine & ~self._ordered[v]
            if mask not in near:
                near[mask] = tuple(place[k] for k in _places(mask))
            key = near[mask], us
            beside[key] = beside.get(key, 0) + 1
        return most_hidden_us([pair.us for pair in pairs], beside)


def _joined(one: int, other: int) -> int:
    """Two sets of bits; one of both themselves where that is enough, to save memory."""
    if not other or one is other:
        return one
    if not one:
        return other
    both = one | other
    if both == one:
        return one
    return other if both == other else both


def _places(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _whole(us: float, scale: int) -> int:
    return math.ceil(math.ldexp(us, scale))


class _Flow:
    """The greatest flow from groups of instructions to pairs.

    A group sends to a free pair of its own, else makes another group give one up, along
    a shortest path. A group that finds no such path marks everything that it reached:
    nothing there can become free again.
    """

    def __init__(
        self, groups: Mapping[int, int], left: dict[int, int], others: int, steps: int
    ) -> None:
        # In order of the last pair that they may run beside, which leaves little to
        # change afterward.
        self.masks = sorted(groups, key=lambda mask: (mask.bit_length(), mask))
        self.supply = [groups[mask] for mask in self.masks]
        self.left = left
        self.others = others
        self.steps = steps
        self.held: dict[int, dict[int, int]] = {k: {} for k in left}
        self.free = sum(1 << k for k in left)
        self.closed = ~self.free

    def most(self) -> int:
        """The sum of what is placed, with what may still be."""
        can, room = sum(self.supply), sum(self.left.values()) + self.others
        unplaced = 0
        for group, amount in enumerate(self.supply):
            rest = self._place(group, amount)
            if self.steps <= 0:
                break
            unplaced += rest
        # What no pair takes may run beside those that are not told apart.
        return min(room, can - max(0, unplaced - self.others))

    def _place(self, group: int, amount: int) -> int:
        """Place as much of a group as there is room for; return the rest."""
        mask = self.masks[group]
        while amount:
            near = mask & self.free
            if near:
                pair = (near & -near).bit_length() - 1
                amount -= self._send([(pair, group)], amount)
                self.steps -= 1
                continue
            path = self._path(group)
            if not path:
                break
            amount -= self._send(path, amount)
        return amount

    def _send(self, path: list[tuple[int, int]], amount: int) -> int:
        """Send along (pair, the group that gets it) from the free pair backward."""
        end = path[0][0]
        amount = min(amount, self.left[end])
        # Each group but the last gives up as much of the pair that it held before.
        for (_, group), (pair, _) in itertools.pairwise(path):
            amount = min(amount, self.held[pair][group])
        self.left[end] -= amount
        if not self.left[end]:
            self.free ^= 1 << end
        for pair, group in path:
            held = self.held[pair]
            held[group] = held.get(group, 0) + amount
        for (_, group), (pair, _) in itertools.pairwise(path):
            held = self.held[pair]
            held[group] -= amount
            if not held[group]:
                del held[group]
        return amount

    def _path(self, group: int) -> list[tuple[int, int]]:
        """The shortest path from a group to a free pair; [] for none, or no time."""
        asked: dict[int, int] = {}
        gives: dict[int, int] = {group: -1}
        seen = self.closed
        queue = [group]
        for each in queue:
            new = self.masks[each] & ~seen
            seen |= new
            near = new & self.free
            if near:
                pair = (near & -near).bit_length() - 1
                asked[pair] = each
                return _backward(pair, asked, gives)
            while new:
                low = new & -new
                new ^= low
                pair = low.bit_length() - 1
                asked[pair] = each
                self.steps -= 1 + len(self.held[pair])
                for other in self.held[pair]:
                    if other not in gives:
                        gives[other] = pair
                        queue.append(other)
            if self.steps <= 0:
                return []
        self.closed = seen
        return []


def _backward(
    pair: int, asked: Mapping[int, int], gives: Mapping[int, int]
) -> list[tuple[int, int]]:
    """The path that ends at a pair, from its end to the group that it begins with."""
    path: list[tuple[int, int]] = []
    while pair >= 0:
        path.append((pair, asked[pair]))
        pair = gives[asked[pair]]
    return path
