"""The cheapest division of a part into fusions that fit into the scratch.

    nothing yet  --{m, e}-->  e in memory  --{d}-->  e, d in memory    price: both

A state is the set of values in memory; an arrow is a kernel whose loads are there. The
cheapest way to all values that others read is found by going through the states, each
larger than those before it. A value that several kernels need is written once and
loaded, or computed in each, whichever is cheaper.

With more kernels than `exact_limit`, the part is laid out in the order that needs least
scratch and cut into runs of it, at the best places. Then single values are computed
again in place of being loaded, as long as that saves time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_
from typing import Final

from hlo_passes.scheduler.scratch_fusion.kernels import Kernel, Kernels
from hlo_passes.scheduler.scratch_fusion.parts import members

#: Instructions of a part that is searched through: its states are their subsets.
_MOST_NODES: Final = 12
#: Instructions of a run, where a part is cut into runs.
_LONGEST_RUN: Final = 24
#: Values that are computed again, for a try.
_MOST_TRIES: Final = 500
#: Orders of evaluation that are followed at a time, where not all are.
STATES_FOLLOWED: Final = 16

#: Ticks, kernels, and instructions of all of them; less is better.
_Cost = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Division:
    """A way to compute a part.

    Attributes:
        kernels: in an order in which they can run.
        is_exact: whether no other way is cheaper.
    """

    kernels: tuple[Kernel, ...]
    is_exact: bool

    @property
    def ticks(self) -> int:
        """Of all kernels."""
        return sum(kernel.ticks for kernel in self.kernels)


def divide(kernels: Kernels, exact_limit: int) -> Division:
    """The cheapest way to compute a part, or a good one.

    Args:
        kernels: of the part.
        exact_limit: kernels of a part that is searched through.
    """
    choices = _choices(kernels, exact_limit)
    if choices is None:
        kernels.most_states = STATES_FOLLOWED
        return Division(_in_runs(kernels), is_exact=False)
    found = [kernels.kernel(nodes, outputs) for nodes, outputs in choices]
    return Division(_shortest(kernels, [k for k in found if k]), is_exact=True)


def _choices(kernels: Kernels, most: int) -> list[tuple[int, int]] | None:
    """What a kernel may compute and write; None if there are more than `most`."""
    part = kernels.part
    if len(part.nodes) > _MOST_NODES:
        return None
    whole: list[tuple[int, int]] = []
    count = 0
    for nodes in range(1, part.everything + 1):
        if not part.is_connected(nodes):
            continue
        # What nobody reads in the kernel is written; the rest may be.
        must = sum(1 << n for n in members(nodes) if not part.readers[n] & nodes)
        count += 1 << (nodes & ~must).bit_count()
        if count > most:
            return None
        whole.append((nodes, must))
    return [
        (nodes, must | more)
        for nodes, must in whole
        if nodes.bit_count() == 1 or kernels.fits(nodes)
        for more in _subsets(nodes & ~must)
    ]


def _subsets(numbers: int) -> list[int]:
    found = [0]
    for number in members(numbers):
        found += [subset | 1 << number for subset in found]
    return found


def _shortest(kernels: Kernels, choices: Sequence[Kernel]) -> tuple[Kernel, ...]:
    part = kernels.part
    everything = part.everything
    steps = [(k, part.loads(k.nodes) & everything, _cost(k)) for k in choices]
    best: dict[int, tuple[_Cost, Kernel | None, int]] = {0: ((0, 0, 0), None, 0)}
    # A kernel only adds values, so that every state is complete when it is its turn.
    for state in range(everything + 1):
        if state not in best:
            continue
        so_far = best[state][0]
        for kernel, loads, cost in steps:
            if loads & ~state or kernel.outputs & state:
                continue
            after = state | kernel.outputs
            total = _sum(so_far, cost)
            if after not in best or total < best[after][0]:
                best[after] = total, kernel, state
    end = min(
        (state for state in best if not part.kept & ~state),
        key=lambda state: (best[state][0], state),
    )
    found: list[Kernel] = []
    _, kernel, before = best[end]
    while kernel is not None:
        found.append(kernel)
        _, kernel, before = best[before]
    return tuple(reversed(found))


def _cost(kernel: Kernel) -> _Cost:
    return kernel.ticks, 1, kernel.nodes.bit_count()


def _sum(one: _Cost, other: _Cost) -> _Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


# -- large parts ---------------------------------------------------------------


def _in_runs(kernels: Kernels) -> tuple[Kernel, ...]:
    part = kernels.part
    if kernels.fits(part.everything):
        sets = [part.everything]
    else:
        sets = _runs(kernels)
    found = _kernels_of(kernels, sets)
    assert found is not None
    # Compute one value again in one kernel, as long as that pays.
    tries, k = 0, 0
    while k < len(found) and tries < _MOST_TRIES:
        sets = [kernel.nodes for kernel in found]
        better = None
        for value in members(part.loads(sets[k]) & part.everything):
            nodes = sets[k] | 1 << value
            tries += 1
            if not kernels.fits(nodes):
                continue
            other = _kernels_of(kernels, [*sets[:k], nodes, *sets[k + 1 :]])
            if other is not None and _total(other) < _total(found):
                better = other
                break
        if better is None:
            k += 1
        else:
            found = better
    return found


def _runs(kernels: Kernels) -> list[int]:
    """The cheapest cuts of one order, if every kernel is a run of it."""
    part = kernels.part
    order = kernels.narrowest(part.everything)[1]
    best: list[tuple[_Cost, int]] = [((0, 0, 0), 0)]
    for end in range(1, len(order) + 1):
        nodes, cheapest = 0, None
        for start in range(end - 1, max(-1, end - 1 - _LONGEST_RUN), -1):
            nodes |= 1 << order[start]
            kernel = kernels.kernel(nodes, _read_later(kernels, nodes))
            if kernel is None:
                break
            total = _sum(best[start][0], _cost(kernel))
            if cheapest is None or total < cheapest[0]:
                cheapest = total, start
        assert cheapest is not None  # one instruction can always stay
        best.append(cheapest)
    sets: list[int] = []
    end = len(order)
    while end:
        start = best[end][1]
        sets.append(sum(1 << node for node in order[start:end]))
        end = start
    return sets[::-1]


def _read_later(kernels: Kernels, nodes: int) -> int:
    part = kernels.part
    return sum(
        1 << n for n in members(nodes) if part.kept >> n & 1 or part.readers[n] & ~nodes
    )


def _kernels_of(kernels: Kernels, sets: Sequence[int]) -> tuple[Kernel, ...] | None:
    """The kernels that compute these sets in this order; None if they cannot.

    Each value is written by the first kernel that has it, if others need it. What then
    serves nothing is left out.
    """
    part = kernels.part
    wanted = part.kept
    before = [0, *accumulate(sets, or_)]
    found: list[Kernel] = []
    # From the end on: only what is wanted, and what that reads.
    for k in range(len(sets) - 1, -1, -1):
        earlier = before[k]
        outputs = sets[k] & wanted & ~earlier
        if not outputs:
            continue
        nodes = _needed(kernels, sets[k], outputs)
        loads = part.loads(nodes) & part.everything
        if loads & ~earlier:
            return None
        kernel = kernels.kernel(nodes, outputs)
        if kernel is None:
            return None
        wanted |= loads
        found.append(kernel)
    return tuple(reversed(found))


def _needed(kernels: Kernels, nodes: int, outputs: int) -> int:
    found = outputs
    for node in sorted(members(nodes), reverse=True):
        if found >> node & 1:
            found |= kernels.part.reads[node] & nodes
    return found


def _total(found: Sequence[Kernel]) -> _Cost:
    total = 0, 0, 0
    for kernel in found:
        total = _sum(total, _cost(kernel))
    return total
