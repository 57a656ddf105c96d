"""List schedules: other orders from which a search may begin.

    key of an atom = the longest chain from it to the end, times a random factor;
                     in some schedules how soon a start can follow it
    at each step, the first of: what costs nothing; a done that is due; the start with
    the greatest key that fits; the work with the greatest key that fits; the next done

Ready atoms that need the same resources wait in one heap, so one that does not fit is
looked at once per kind and not once per atom.

Where one stream has more to run than compute, as with the reduce-scatters of many equal
layers, all depends on feeding it early: the gradient of a weight comes before the next
layer's then, though nothing but its reduce-scatter needs it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.improver.atoms import ENDS, STARTS, Atoms, Counts

_TRIES: Final = 20
#: Of schedules that feed the streams, after the others.
_FEEDING_TRIES: Final = 4
#: What the chain to the end counts among atoms that feed equally.
_TIE: Final = 1e-6
#: How much keys vary, one after the other; the first schedule's do not.
_SPREADS: Final = (0.05, 0.2, 0.5, 1.0)
_SEED: Final = 1


def list_orders(atoms: Atoms) -> list[list[int]]:
    """Orders of list scheduling, each better than those before it, best first."""
    if atoms.group_of is not None or atoms.clashes:
        return []  # they must hold more than limits
    tails = _tails(atoms)
    draw = random.Random(_SEED).random
    found: list[list[int]] = []
    best_us: float | None = None
    feeding = _feeding(atoms, tails)
    for k in range(_TRIES + _FEEDING_TRIES):
        number, of = (k, tails) if k < _TRIES else (k - _TRIES, feeding)
        spread = _SPREADS[number % len(_SPREADS)] if number else 0.0
        keys = [us * (1 + spread * (2 * draw() - 1)) for us in of]
        made = _List(atoms, keys).run()
        if made is not None and (best_us is None or made[0] < best_us):
            best_us = made[0]
            found.insert(0, made[1])
    return found


def _tails(atoms: Atoms) -> list[float]:
    """The longest chain from each atom to the end, us."""
    tails = [0.0] * len(atoms)
    for v in reversed(range(len(atoms))):
        tail = max([tails[s] for s in atoms.succs[v]], default=0.0)
        if atoms.kind[v] == STARTS:
            tail = max(tail, tails[atoms.partner[v]] + atoms.latency_us[v])
        tails[v] = tail + atoms.cost_us[v]
    return tails


def _feeding(atoms: Atoms, tails: Sequence[float]) -> list[float]:
    """How soon a start can follow each atom: the greater, the sooner."""
    heads = [0.0] * len(atoms)
    for v, near in enumerate(atoms.preds):
        head = max([heads[p] + atoms.cost_us[p] for p in near], default=0.0)
        if atoms.kind[v] == ENDS:
            start = atoms.partner[v]
            head = max(head, heads[start] + atoms.latency_us[start])
        heads[v] = head
    last = max(heads, default=0.0)
    found = [0.0] * len(atoms)
    for v in reversed(range(len(atoms))):
        own = last - heads[v] if atoms.kind[v] == STARTS else 0.0
        found[v] = max([own, *[found[s] for s in atoms.succs[v]]])
    return [us + _TIE * tail for us, tail in zip(found, tails, strict=True)]


#: What an atom needs of resources: what it changes, what it has inside.
_Demand = tuple[Counts, Counts]


class _List:
    """One list schedule."""

    def __init__(self, atoms: Atoms, keys: Sequence[float]) -> None:
        self.atoms = atoms
        self.keys = keys
        self.left = [len(near) for near in atoms.preds]
        self.now = 0.0
        self.used = list(atoms.base_used)
        self.free: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.order: list[int] = []
        # Ready atoms: without cost, starts and work by demand, dones by their ends.
        self.free_of_cost: dict[_Demand, list[tuple[float, int]]] = {}
        self.starts: dict[_Demand, list[tuple[float, int]]] = {}
        self.work: dict[_Demand, list[tuple[float, int]]] = {}
        self.dones: list[tuple[float, int]] = []

    def run(self) -> tuple[float, list[int]] | None:
        """(step, order); None if nothing fits at some point."""
        for v, count in enumerate(self.left):
            if not count:
                self._ready(v)
        while len(self.order) < len(self.atoms):
            v = self._next()
            if v is None:
                return None
            self._place(v)
        return self.now, self.order

    def _next(self) -> int | None:
        v = self._first_that_fits(self.free_of_cost)
        if v is not None:
            return v
        if self.dones and self.dones[0][0] <= self.now:
            return heapq.heappop(self.dones)[1]
        for heaps in (self.starts, self.work):
            v = self._first_that_fits(heaps)
            if v is not None:
                return v
        return heapq.heappop(self.dones)[1] if self.dones else None

    def _first_that_fits(
        self, heaps: dict[_Demand, list[tuple[float, int]]]
    ) -> int | None:
        best: list[tuple[float, int]] | None = None
        for demand, heap in heaps.items():
            if heap and (best is None or heap[0] < best[0]) and self._fits(demand):
                best = heap
        return None if best is None else heapq.heappop(best)[1]

    def _fits(self, demand: _Demand) -> bool:
        changes, needs = demand
        used, limits = self.used, self.atoms.limits
        return all(
            change < 0 or used[r] + change <= limits[r] for r, change in changes
        ) and all(used[r] + count <= limits[r] for r, count in needs)

    def _changes(self, v: int) -> Counts:
        atoms = self.atoms
        r = atoms.resource[v]
        if r >= 0:
            change = 1 if atoms.kind[v] == STARTS else -1
            return tuple((held, change) for held in (r, *atoms.more.get(v, ())))
        return atoms.changes.get(v, ())

    def _ready(self, v: int) -> None:
        atoms = self.atoms
        if atoms.kind[v] == ENDS:
            heapq.heappush(self.dones, (self.ends[atoms.partner[v]], v))
            return
        demand = self._changes(v), atoms.needs.get(v, ())
        if atoms.stream[v] >= 0:
            heaps = self.starts
        else:
            heaps = self.work if atoms.cost_us[v] > 0.0 else self.free_of_cost
        heapq.heappush(heaps.setdefault(demand, []), (-self.keys[v], v))

    def _place(self, v: int) -> None:
        atoms = self.atoms
        self.order.append(v)
        stream = atoms.stream[v]
        if stream >= 0:
            begin = max(self.now, self.free.get(stream, 0.0))
            self.ends[v] = self.free[stream] = begin + atoms.latency_us[v]
        elif atoms.kind[v] == ENDS:
            self.now = max(self.now, self.ends[atoms.partner[v]])
        for r, change in self._changes(v):
            self.used[r] += change
        self.now += atoms.cost_us[v]
        for s in atoms.succs[v]:
            self.left[s] -= 1
            if not self.left[s]:
                self._ready(s)
