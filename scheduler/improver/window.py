"""An order of atoms, and what a change of it is worth: evaluated in its window alone.

    order      ... a | s f g d | h ...          in flight at |: kept by place
    new window       | f s g d |                run from what is in flight at its left,
                                                and on until what is in flight at its
                                                right agrees again

    step = costs + waits of dones, so a change needs no shifting of what follows.

Memory is counted from the bottom up, from the bytes live at the right edge. They depend
on what stands below that edge, not on its order, so nothing outside the window changes.

A change is tested in the order of its price: limits and time first, then whether it
is accepted, then memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.improver.atoms import COMPUTES, ENDS, STARTS, Atoms
from hlo_passes.scheduler.sums import sequential_sum

#: Times closer than this are the same, us.
RESOLUTION_US: Final = 1e-7
#: What is in flight at a place: (start, for how long still).
InFlight = tuple[tuple[int, float], ...]
#: Up to so many in flight are written down at every place. Of k, at every (k / 8)th,
#: so that all places together take no more than eight entries each.
_FEW: Final = 8


class Window:
    """The state of a search.

    Attributes:
        atoms: that are ordered.
        cap_bytes: the most that may be live.
        order: of atoms.
        position: by atom.
        open_at: by place, what is in flight before it, or how many places before it
            that is written down; one more for the end.
        usage: by place, bytes live before it, above those below the computation.
        wait_us: by done.
        total_us: the step.
        peak_bytes: of the order that was set last; moves do not update it.
    """

    __slots__ = (
        "_most_wait",
        "atoms",
        "cap_bytes",
        "open_at",
        "order",
        "peak_bytes",
        "position",
        "total_us",
        "usage",
        "wait_us",
    )

    def __init__(
        self, atoms: Atoms, cap_bytes: int, most_wait_us: Sequence[float] | None = None
    ) -> None:
        """`set_order` comes next.

        Args:
            atoms: that are ordered.
            cap_bytes: the most that may be live.
            most_wait_us: by done, the most that it may wait.
        """
        count = len(atoms)
        self.atoms = atoms
        self.cap_bytes = cap_bytes
        self.order: list[int] = []
        self.position = [0] * count
        self.open_at: list[InFlight | int] = [()] * (count + 1)
        self.usage = [0] * (count + 1)
        self.wait_us = [0.0] * count
        self.total_us = 0.0
        self.peak_bytes = 0
        self._most_wait = (
            [math.inf] * count if most_wait_us is None else list(most_wait_us)
        )

    def set_order(self, order: Sequence[int]) -> bool:
        """Take an order as a whole; False if it breaks a limit (memory apart)."""
        self.order[:] = order
        position = self.position
        for place, v in enumerate(self.order):
            position[v] = place
        count = len(self.order)
        self.open_at[0] = ()
        legal = self._change(0, self.order, math.inf) is not None
        self._record(0, count)
        self.total_us = sequential_sum(self.atoms.cost_us) + sequential_sum(
            self.wait_us
        )
        self.usage[count] = 0
        found = self._memory(self.order, count, math.inf)
        assert found is not None
        self.usage[: count + 1], self.peak_bytes = found
        return legal

    def try_window(self, low: int, new: list[int], threshold_us: float) -> bool:
        """Take a new arrangement of `order[low:]` if it is legal and worth it.

        Args:
            low: the first place that changes.
            new: as many atoms as the window has; all edges hold.
            threshold_us: the most by which the step may become longer.
        """
        high = low + len(new)
        if self.atoms.group_of is not None and not self._keeps_groups(low, new):
            return False
        found = self._change(low, new, threshold_us)
        if found is None:
            return False
        delta, same_from = found
        memory = self._memory(new, high, self.cap_bytes)
        if memory is None:
            return False
        self.order[low:high] = new
        position = self.position
        for place, v in enumerate(new, low):
            position[v] = place
        self.usage[low:high] = memory[0][:-1]
        self._record(low, same_from)
        self.total_us += delta
        return True

    # -- time -----------------------------------------------------------------

    def in_flight(self, place: int) -> dict[int, float]:
        """What is in flight before a place, in order of issue, and for how long, us."""
        found = self.open_at[place]
        if not isinstance(found, int):
            return dict(found)
        # Run on from where it is written down.
        atoms = self.atoms
        known_at = place - found
        ends = self.in_flight(known_at)
        free = self._free(ends)
        now = 0.0
        for v in self.order[known_at:place]:
            if atoms.kind[v] == ENDS:
                now = max(now, ends.pop(atoms.partner[v]))
            elif atoms.stream[v] >= 0:
                k = atoms.stream[v]
                ends[v] = free[k] = max(now, free.get(k, 0.0)) + atoms.latency_us[v]
            now += atoms.cost_us[v]
        return {s: end - now if end > now else 0.0 for s, end in ends.items()}

    def _free(self, ends: dict[int, float]) -> dict[int, float]:
        """When each stream with something in flight is free."""
        stream = self.atoms.stream
        free: dict[int, float] = {}
        for s, end in ends.items():
            k = stream[s]
            if end > free.get(k, 0.0):
                free[k] = end
        return free

    def _used_at(self, low: int, ends: dict[int, float]) -> list[int]:
        """In flight by resource before a place."""
        atoms = self.atoms
        used = list(atoms.base_used)
        resource = atoms.resource
        for s in ends:
            r = resource[s]
            if r >= 0:
                used[r] += 1
            for r in atoms.more.get(s, ()):
                used[r] += 1
        for holder in atoms.holders:
            if self.position[holder] < low:
                for r, change in atoms.changes[holder]:
                    used[r] += change
        return used

    def _change(
        self, low: int, new: list[int], threshold_us: float
    ) -> tuple[float, int] | None:
        """(change of the step, where everything is as before again); None: refused."""
        atoms = self.atoms
        kinds, cost, latency = atoms.kind, atoms.cost_us, atoms.latency_us
        stream, partner, resource = atoms.stream, atoms.partner, atoms.resource
        limits, clashes, more = atoms.limits, atoms.clashes, atoms.more
        wait, most_wait = self.wait_us, self._most_wait
        ends = self.in_flight(low)
        free = self._free(ends)
        used = self._used_at(low, ends)
        now = delta = 0.0
        for v in new:
            kind = kinds[v]
            if kind == COMPUTES:
                now += cost[v]
                continue
            if kind == ENDS:
                end = ends.pop(partner[v])
                stall = end - now
                if stall > 0.0:
                    now = end
                    if stall > most_wait[v]:
                        return None
                    delta += stall - wait[v]
                else:
                    delta -= wait[v]
                r = resource[v]
                if r >= 0:
                    used[r] -= 1
                if more and v in more:
                    for r in more[v]:
                        used[r] -= 1
            elif kind == STARTS:
                r = resource[v]
                if r >= 0:
                    used[r] += 1
                    if used[r] > limits[r]:
                        return None
                if more and v in more:
                    for r in more[v]:
                        used[r] += 1
                        if used[r] > limits[r]:
                            return None
                if clashes and v in clashes:
                    against = clashes[v]
                    for s in ends:
                        if s in against:
                            return None
                k = stream[v]
                begin = free.get(k, 0.0)
                ends[v] = free[k] = (begin if begin > now else now) + latency[v]
            else:
                for r, change in atoms.changes.get(v, ()):
                    used[r] += change
                    if used[r] > limits[r]:
                        return None
                for r, count in atoms.needs.get(v, ()):
                    if used[r] + count > limits[r]:
                        return None
                k = stream[v]
                if k >= 0:
                    begin = free.get(k, 0.0)
                    ends[v] = free[k] = (begin if begin > now else now) + latency[v]
            now += cost[v]
        # Go on until what is in flight agrees with what was in flight before.
        place = low + len(new)
        order, open_at, count = self.order, self.open_at, len(self.order)
        may_agree = True
        while place < count:
            if may_agree:
                before = open_at[place]
                if not isinstance(before, int):
                    if _agree(ends, now, before):
                        break
                    may_agree = False
            v = order[place]
            place += 1
            kind = kinds[v]
            if kind != COMPUTES:
                may_agree = True
                if kind == ENDS:
                    end = ends.pop(partner[v])
                    stall = end - now
                    if stall > 0.0:
                        now = end
                        if stall > most_wait[v]:
                            return None
                        delta += stall - wait[v]
                    else:
                        delta -= wait[v]
                elif stream[v] >= 0:
                    k = stream[v]
                    begin = free.get(k, 0.0)
                    ends[v] = free[k] = (begin if begin > now else now) + latency[v]
            now += cost[v]
        return None if delta > threshold_us else (delta, place)

    def _record(self, low: int, high: int) -> None:
        """Write waits, and what is in flight, from one place on to another."""
        atoms = self.atoms
        kinds, cost, latency = atoms.kind, atoms.cost_us, atoms.latency_us
        stream, partner = atoms.stream, atoms.partner
        order, open_at, wait = self.order, self.open_at, self.wait_us
        ends = self.in_flight(low)
        free = self._free(ends)
        now = 0.0
        known_at = low
        for place in range(low, high):
            v = order[place]
            if not ends:
                open_at[place] = ()
            elif place == low or (place - known_at) * _FEW >= len(ends):
                known_at = place
                open_at[place] = tuple(
                    [(s, end - now if end > now else 0.0) for s, end in ends.items()]
                )
            else:
                open_at[place] = place - known_at
            kind = kinds[v]
            if kind == ENDS:
                end = ends.pop(partner[v])
                if end > now:
                    wait[v] = end - now
                    now = end
                else:
                    wait[v] = 0.0
            elif stream[v] >= 0:
                k = stream[v]
                begin = free.get(k, 0.0)
                ends[v] = free[k] = (begin if begin > now else now) + latency[v]
            now += cost[v]
        if high == len(order):
            open_at[high] = tuple(
                [(s, end - now if end > now else 0.0) for s, end in ends.items()]
            )

    # -- memory ---------------------------------------------------------------

    def _memory(
        self, new: list[int], high: int, cap_bytes: float
    ) -> tuple[list[int], int] | None:
        """(bytes live at each place of a window, and its peak); None above the cap."""
        atoms, position = self.atoms, self.position
        all_allocs, all_frees, users = atoms.allocs, atoms.frees, atoms.users
        inner, memory = atoms.inner_bytes, atoms.problem.memory
        sizes, below = memory.sizes_bytes, memory.initial_live
        live: dict[int, bool] = {}
        usage = self.usage[high]
        peak = 0
        k = len(new)
        found = [usage] * (k + 1)
        for v in reversed(new):
            if inner[v] and usage + inner[v] > peak:
                peak = usage + inner[v]
            for b in all_allocs[v]:
                lives = live.get(b)
                if lives is None:
                    lives = b in below
                    if not lives:
                        for a in users[b]:
                            if position[a] >= high:
                                lives = True
                                break
                if not lives:
                    usage += sizes[b]
                live[b] = True
            if usage > peak:
                peak = usage
            if peak > cap_bytes:
                return None
            for b in all_frees[v]:
                lives = live.get(b)
                if lives is None:
                    lives = b in below
                    if not lives:
                        for a in users.get(b, ()):
                            if position[a] >= high:
                                lives = True
                                break
                if lives:
                    usage -= sizes[b]
                live[b] = False
            k -= 1
            found[k] = usage
        return found, peak

    # -- scheduling groups ----------------------------------------------------

    def _keeps_groups(self, low: int, new: list[int]) -> bool:
        """Whether every scheduling group in a window stays in one piece."""
        group_of = self.atoms.group_of
        assert group_of is not None
        order, high = self.order, low + len(new)
        left = group_of[order[low - 1]] if low else -1
        right = group_of[order[high]] if high < len(order) else -1
        seen: set[int] = set()
        before = left
        for v in new:
            group = group_of[v]
            if group != before:
                if group >= 0 and (group in seen or group == left):
                    return False
                if before >= 0:
                    seen.add(before)
                before = group
        if right < 0:
            return True
        # One that goes on at the right must reach that edge.
        return before == right or (right not in seen and right != left)


def _agree(ends: dict[int, float], now: float, before: InFlight) -> bool:
    """Whether what is in flight ends when it did."""
    if len(ends) != len(before):
        return False
    for s, left in before:
        end = ends.get(s)
        if end is None:
            return False
        difference = (end - now if end > now else 0.0) - left
        if difference > RESOLUTION_US or difference < -RESOLUTION_US:
            return False
    return True
