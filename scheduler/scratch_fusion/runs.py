"""A part too large for all divisions: cut into runs of one order, then improved.

    order  a b c | d e f | g h       the best places to cut one order into runs
           a b c | c d e f | g h     c is computed again, in place of being loaded

The order is the one that needs least scratch, of those that are followed. Each value is
written by the first kernel that has it, if others need it; what then serves nothing is
left out. Another value in a kernel changes what few others write, and only these are
made anew: a part of n instructions takes n times as long as one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from hlo_passes.scheduler.scratch_fusion.kernels import Cost, Kernel, Kernels, added
from hlo_passes.scheduler.scratch_fusion.parts import Numbers

#: Instructions of a run.
_LONGEST_RUN: Final = 24
#: Values that are computed again, for a try.
_MOST_TRIES: Final = 500

#: Kernels by number; None where one serves nothing any more.
_Changed = dict[int, Kernel | None]


def in_runs(kernels: Kernels) -> tuple[Kernel, ...]:
    """A good way to compute a part whose `order` is known.

    Returns:
        Kernels in an order in which they can run.
    """
    part = kernels.part
    sets = [part.everything] if kernels.fits(part.everything) else _runs(kernels)
    # A run has all that it reads, itself or in runs before it.
    plan = _Plan(kernels, [_run(kernels, nodes) for nodes in sets])
    # Compute one value again in one kernel, as long as that pays.
    tries, k = 0, 0
    while k < len(plan.numbers) and tries < _MOST_TRIES:
        number = plan.numbers[k]
        for value in sorted(plan.loads(number)):
            tries += 1
            changed = plan.with_value(number, value)
            if changed is not None and plan.gain(changed) < (0, 0, 0):
                plan.change(changed)
                break
        else:
            k += 1
    return plan.chosen()


def _run(kernels: Kernels, nodes: Numbers) -> Kernel:
    kernel = kernels.kernel(nodes, _read_later(kernels, nodes))
    assert kernel is not None  # it was priced when the run was chosen
    return kernel


def _runs(kernels: Kernels) -> list[Numbers]:
    """The cheapest cuts of one order, if every kernel is a run of it."""
    order = kernels.order
    best: list[tuple[Cost, int]] = [((0, 0, 0), 0)]
    for end in range(1, len(order) + 1):
        cheapest = None
        for start in range(end - 1, max(-1, end - 1 - _LONGEST_RUN), -1):
            nodes = frozenset(order[start:end])
            kernel = kernels.kernel(nodes, _read_later(kernels, nodes))
            if kernel is None:
                break
            total = added(best[start][0], kernel.cost)
            if cheapest is None or total < cheapest[0]:
                cheapest = total, start
        assert cheapest is not None  # one instruction can always stay
        best.append(cheapest)
    sets: list[Numbers] = []
    end = len(order)
    while end:
        start = best[end][1]
        sets.append(frozenset(order[start:end]))
        end = start
    return sets[::-1]


def _read_later(kernels: Kernels, nodes: Numbers) -> Numbers:
    part = kernels.part
    return frozenset(
        n
        for n in nodes
        if n in part.kept or any(reader not in nodes for reader in part.readers[n])
    )


class _Plan:
    """Kernels that compute a part, by number, and who needs what of whom.

    Attributes:
        numbers: of the kernels, in the order in which they run.
    """

    def __init__(self, kernels: Kernels, chosen: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._chosen = dict(enumerate(chosen))
        self.numbers = list(self._chosen)
        #: How many kernels load a value, and which compute it.
        self._needed: Counter[int] = Counter()
        self._holders: dict[int, set[int]] = {}
        for number in self.numbers:
            self._note(number, 1)

    def chosen(self) -> tuple[Kernel, ...]:
        """The kernels, in the order in which they run."""
        return tuple(self._chosen[number] for number in self.numbers)

    def loads(self, number: int) -> Numbers:
        """What a kernel loads that another one has computed."""
        return self._kernels.part.loads_of_others(self._chosen[number].nodes)

    def with_value(self, number: int, value: int) -> _Changed | None:
        """What changes if a kernel computes a value that it loads.

        Returns:
            None if it cannot.
        """
        kernels, part = self._kernels, self._kernels.part
        grown = self._chosen[number].nodes | {value}
        if not kernels.fits(grown):
            return None
        changed: _Changed = {}
        more: Counter[int] = Counter()
        # From the last one on: what a kernel needs decides what those before it write.
        work = [-number]
        while work:
            each = -heapq.heappop(work)
            if each in changed:
                continue
            nodes = grown if each == number else self._chosen[each].nodes
            outputs = frozenset(
                v
                for v in nodes
                if self._first(v) == each
                and (v in part.kept or self._needed[v] + more[v])
            )
            changed[each], loads = None, frozenset[int]()
            if outputs:
                nodes = _serving(kernels, nodes, outputs)
                loads = part.loads_of_others(nodes)
                if any(self._first(v, each) >= each for v in loads):
                    return None
                changed[each] = kernels.kernel(nodes, outputs)
                if changed[each] is None:
                    return None
            before = self.loads(each)
            for v, count in self._moved(before, loads):
                was_needed = self._needed[v] + more[v]
                more[v] += count
                if v not in part.kept and not (was_needed and was_needed + count):
                    heapq.heappush(work, -self._first(v))
        return changed

    def gain(self, changed: _Changed) -> Cost:
        """What changes cost, less what they save."""
        total = 0, 0, 0
        for number, kernel in changed.items():
            ticks, count, nodes = self._chosen[number].cost
            total = added(total, (-ticks, -count, -nodes))
            if kernel is not None:
                total = added(total, kernel.cost)
        return total

    def change(self, changed: _Changed) -> None:
        """Take these kernels."""
        for number, kernel in changed.items():
            self._note(number, -1)
            if kernel is None:
                del self._chosen[number]
            else:
                self._chosen[number] = kernel
                self._note(number, 1)
        self.numbers = [number for number in self.numbers if number in self._chosen]

    def _note(self, number: int, count: int) -> None:
        for value in self.loads(number):
            self._needed[value] += count
        for value in self._chosen[number].nodes:
            holders = self._holders.setdefault(value, set())
            if count > 0:
                holders.add(number)
            else:
                holders.discard(number)

    def _first(self, value: int, if_none: int = -1) -> int:
        """The kernel that writes a value, if anybody needs it."""
        return min(self._holders.get(value, ()), default=if_none)

    @staticmethod
    def _moved(before: Numbers, now: Numbers) -> Iterable[tuple[int, int]]:
        """Values that are no longer loaded, and those that are now."""
        yield from ((v, -1) for v in sorted(before - now))
        yield from ((v, 1) for v in sorted(now - before))


def _serving(kernels: Kernels, nodes: Numbers, outputs: Numbers) -> Numbers:
    """What of these instructions the outputs need."""
    found = set(outputs)
    for node in sorted(nodes, reverse=True):
        if node in found:
            found.update(v for v in kernels.part.reads[node] if v in nodes)
    return frozenset(found)
