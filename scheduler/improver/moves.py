"""Moves: new arrangements of a window that keep every edge.

    shift      an atom to another place; what depends on it goes along
    exchange   two pairs change places
    embrace    a pair goes around work that no window covers

A shift is legal by construction: going down it takes along everything in between that
needs it, going up everything that it needs. All other moves are made of shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hlo_passes.scheduler.improver.atoms import COMPUTES, ENDS, HOLDS, Atoms
from hlo_passes.scheduler.improver.window import Window

#: A window is this wide, and sometimes four times as wide.
_REACH: Final = 300
_WIDE: Final = 4 * _REACH
_WIDE_SHARE: Final = 0.1
#: How far a whole pair goes past its neighbor, and how far a gap reaches.
_NEAR: Final = 60
#: How far from a place atoms are that go across it.
_ACROSS: Final = 100
#: Share of the moves, cumulative; the rest moves any atom that costs.
_AT_EXPOSED: Final = 0.60
_AT_ANY_PAIR: Final = 0.75
_EXCHANGE: Final = 0.82
_EMBRACE: Final = 0.90
#: Share of the moves at one pair, cumulative; the rest moves the whole pair.
_START_EARLIER: Final = 0.15
_DONE_LATER: Final = 0.30
_FROM_ABOVE: Final = 0.60
_FROM_BELOW: Final = 0.90
#: How often an exchange is with a near pair, and how near that is.
_WITH_NEAR: Final = 0.7
_HOPS: Final = 6
#: How often an embrace is wider than one atom, and how often work is looked for.
_WIDER: Final = 0.7
_LOOKS: Final = 6

#: (first place, new arrangement from there on).
Move = tuple[int, list[int]]


def shift(
    segment: Sequence[int], source: int, target: int, atoms: Atoms
) -> list[int] | None:
    """A segment with one atom at another index; None if nothing can stay between."""
    v = segment[source]
    moved, stay = [v], []
    if target > source:
        near = atoms.succs
        hit = set(near[v])
        for u in segment[source + 1 : target + 1]:
            if u in hit:
                moved.append(u)
                hit.update(near[u])
            else:
                stay.append(u)
        if not stay:
            return None
        return [*segment[:source], *stay, *moved, *segment[target + 1 :]]
    near = atoms.preds
    hit = set(near[v])
    for u in segment[target:source][::-1]:
        if u in hit:
            moved.append(u)
            hit.update(near[u])
        else:
            stay.append(u)
    if not stay:
        return None
    moved.reverse()
    stay.reverse()
    return [*segment[:target], *moved, *stay, *segment[source + 1 :]]


class Moves:
    """Proposes moves of one window, by chance."""

    __slots__ = ("_atoms", "_busy", "_dones", "_exposed", "_random", "_window")

    def __init__(self, window: Window, random: Callable[[], float]) -> None:
        """`random` gives numbers from 0 up to 1."""
        atoms = self._atoms = window.atoms
        self._window = window
        self._random = random
        self._dones = atoms.dones
        self._exposed: list[int] = []
        self._busy = [
            a
            for a, us in enumerate(atoms.cost_us)
            if us > 0.0 and atoms.kind[a] in (COMPUTES, HOLDS)
        ]

    @property
    def can_move(self) -> bool:
        """Whether there are pairs, and work to hide them."""
        return bool(self._dones and self._busy)

    def look(self) -> bool:
        """Find out which pairs are exposed now; False if none is."""
        wait = self._window.wait_us
        self._exposed = [d for d in self._dones if wait[d] > 0.0]
        return bool(self._exposed)

    def propose(self) -> Move | None:
        """One move; None if the one that was drawn is none."""
        random = self._random
        reach = _WIDE if random() < _WIDE_SHARE else _REACH
        share = random()
        if share < _AT_ANY_PAIR:
            return self._at_pair(self._pair(share), reach)
        if share < _EXCHANGE:
            return self._exchange()
        if share < _EMBRACE:
            return self._embrace()
        v = self._busy[int(random() * len(self._busy))]
        far = min(len(self._window.order), reach)
        place = self._window.position[v]
        return self._to(v, place + int((random() * 2 - 1) * random() * far))

    def propose_across(self, place: int) -> Move | None:
        """A near atom before a place to one after it, or the other way."""
        random = self._random
        order = self._window.order
        above = place - 1 - int(random() * random() * min(place, _ACROSS))
        rest = len(order) - place
        below = place + int(random() * random() * min(rest, _ACROSS))
        if not 0 <= above < below < len(order):
            return None
        source, target = (above, below) if random() < 0.5 else (below, above)
        return self._to(order[source], target)

    def _pair(self, share: float) -> int:
        """A done: of two exposed ones the one that waits longer, or any."""
        random = self._random
        if share >= _AT_EXPOSED:
            return self._dones[int(random() * len(self._dones))]
        exposed, wait = self._exposed, self._window.wait_us
        one = exposed[int(random() * len(exposed))]
        other = exposed[int(random() * len(exposed))]
        return other if wait[other] > wait[one] else one

    def _to(self, v: int, target: int) -> Move | None:
        """An atom to a place, with what must go along."""
        window, atoms = self._window, self._atoms
        source, last = window.position[v], len(window.order) - 1
        target = min(max(target, 0), last)
        if target == source:
            return None
        low, high = (source, target) if source < target else (target, source)
        segment = window.order[low : high + 1]
        new = shift(segment, source - low, target - low, atoms)
        return None if new is None else (low, new)

    def _at_pair(self, done: int, reach: int) -> Move | None:
        window, atoms, random = self._window, self._atoms, self._random
        order, position = window.order, window.position
        start = atoms.partner[done]
        top, bottom = position[start], position[done]
        below = len(order) - bottom
        share = random()
        if share < _START_EARLIER:
            return self._to(start, top - 1 - int(random() ** 2 * min(top, reach)))
        if share < _DONE_LATER:
            return self._to(done, bottom + 1 + int(random() ** 2 * min(below, reach)))
        if share < _FROM_BELOW:
            if share < _FROM_ABOVE:
                # What is before the start goes into the window.
                place = top - 1 - int(random() ** 2 * min(top, reach))
                target = top + int(random() * (bottom - top))
            else:
                # What is after the done goes into the window.
                place = bottom + 1 + int(random() ** 2 * min(below, reach))
                target = top + 1 + int(random() * (bottom - top))
            if not 0 <= place < len(order):
                return None
            v = order[place]
            if atoms.partner[v] >= 0:
                return None
            return self._to(v, target)
        # The whole pair goes past its neighbor.
        if random() < 0.5:
            return self._to(done, top - 1 - int(random() * min(top, _NEAR)))
        return self._to(start, bottom + 1 + int(random() * min(below, _NEAR)))

    # -- two pairs ------------------------------------------------------------

    def _exchange(self) -> Move | None:
        """Two pairs change places."""
        window, atoms, random = self._window, self._atoms, self._random
        order, position, partner = window.order, window.position, atoms.partner
        first = self._dones[int(random() * len(self._dones))]
        if random() < _WITH_NEAR:
            second = self._next_done(first)
        else:
            second = self._dones[int(random() * len(self._dones))]
            if position[second] < position[first]:
                first, second = second, first
        if second in (-1, first):
            return None
        first_start, second_start = partner[first], partner[second]
        low, high = position[first_start], position[second]
        if position[second_start] < low or high - low > _WIDE:
            return None
        after = high - position[second_start]
        segment = order[low : high + 1]
        # The later start goes to the front, its done after the earlier done.
        segment = _moved(segment, len(segment) - 1 - after, 0, atoms)
        last = len(segment) - 1
        target = segment.index(first) + 1
        if target > last:
            return None
        segment = _moved(segment, last, target, atoms)
        # Then the earlier pair goes to where the later one was.
        segment = _moved(segment, segment.index(first), last, atoms)
        source = segment.index(first_start)
        if last - after > source:
            segment = _moved(segment, source, last - after, atoms)
        return low, segment

    def _next_done(self, done: int) -> int:
        """One of the next dones after one; -1 if there are not as many."""
        window, kinds = self._window, self._atoms.kind
        hops = 1 + int(self._random() ** 2 * _HOPS)
        order = window.order
        for place in range(window.position[done] + 1, len(order)):
            if kinds[order[place]] == ENDS:
                hops -= 1
                if not hops:
                    return order[place]
        return -1

    # -- a pair around work ---------------------------------------------------

    def _embrace(self) -> Move | None:
        """A pair goes around work that no window covers."""
        window, atoms, random = self._window, self._atoms, self._random
        order, position = window.order, window.position
        v = self._uncovered()
        done = self._dones[int(random() * len(self._dones))]
        start = atoms.partner[done]
        top, bottom, place = position[start], position[done], position[v]
        if top < place < bottom:
            return None
        left = right = 0
        if random() < _WIDER:
            left, right = self._gap(place)
            left = int(random() * (left + 1)) if random() < 0.5 else left
            right = int(random() * (right + 1)) if random() < 0.5 else right
        if top > place:
            low = place - left
            if bottom - place > 3 * _REACH:
                return None
            segment = _moved(order[low : bottom + 1], top - low, 0, atoms)
            last = len(segment) - 1  # the done
            target = min(segment.index(v) + 1 + right, last)
            return low, _moved(segment, last, target, atoms)
        if place - top > 3 * _REACH:
            return None
        segment = order[top : place + right + 1]
        segment = _moved(segment, bottom - top, len(segment) - 1, atoms)
        target = max(0, segment.index(v) - 1 - left)
        return (top, _moved(segment, 0, target, atoms)) if target > 0 else None

    def _uncovered(self) -> int:
        """Work during which nothing is in flight, if it is found soon."""
        window, busy, random = self._window, self._busy, self._random
        for _ in range(_LOOKS):
            v = busy[int(random() * len(busy))]
            if not window.open_at[window.position[v]]:
                return v
        return busy[int(random() * len(busy))]

    def _gap(self, place: int) -> tuple[int, int]:
        """How many atoms at both sides of a place belong to no pair."""
        order, partner = self._window.order, self._atoms.partner
        left = place - 1
        while left >= 0 and place - left < _NEAR and partner[order[left]] < 0:
            left -= 1
        right, count = place + 1, len(order)
        while right < count and right - place < _NEAR and partner[order[right]] < 0:
            right += 1
        return place - 1 - left, right - place - 1


def _moved(segment: list[int], source: int, target: int, atoms: Atoms) -> list[int]:
    """Like `shift`; the segment itself if nothing changes."""
    if source == target:
        return segment
    return shift(segment, source, target, atoms) or segment
