"""The cheapest division of a part into fusions that fit into the scratch.

    nothing yet  --{m, e}-->  e in memory  --{d}-->  e, d in memory    price: both

A state is the set of values in memory; an arrow is a kernel whose loads are there. The
cheapest way to all values that others read is found by going through the states, each
larger than those before it. A value that several kernels need is written once and
loaded, or computed in each, whichever is cheaper.

With more kernels than `exact_limit`, the part is cut into runs of one order: `runs.py`.
Here sets of instructions are bits of an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.scratch_fusion.kernels import Cost, Kernel, Kernels, added
from hlo_passes.scheduler.scratch_fusion.runs import in_runs

#: Instructions of a part that is searched through: its states are their subsets.
_MOST_NODES: Final = 12


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
        kernels.lay_out()
        return Division(in_runs(kernels), is_exact=False)
    return Division(_shortest(kernels, choices), is_exact=True)


def _choices(kernels: Kernels, most: int) -> list[tuple[int, int]] | None:
    """What a kernel may compute and write; None if there are more than `most`."""
    part = kernels.part
    if len(part.nodes) > _MOST_NODES:
        return None
    reads, readers = map(_masks, (part.reads, part.readers))
    whole: list[tuple[int, int]] = []
    count = 0
    for nodes in range(1, 1 << len(part.nodes)):
        if not _is_connected(nodes, reads):
            continue
        # What nobody reads in the kernel is written; the rest may be.
        must = sum(1 << n for n in _members(nodes) if not readers[n] & nodes)
        count += 1 << (nodes & ~must).bit_count()
        if count > most:
            return None
        whole.append((nodes, must))
    return [
        (nodes, must | more)
        for nodes, must in whole
        if nodes.bit_count() == 1 or kernels.fits(frozenset(_members(nodes)))
        for more in _subsets(nodes & ~must)
    ]


def _masks(sets: Sequence[Sequence[int]]) -> list[int]:
    return [sum(1 << number for number in numbers) for numbers in sets]


def _members(numbers: int) -> list[int]:
    return [k for k in range(numbers.bit_length()) if numbers >> k & 1]


def _is_connected(nodes: int, reads: Sequence[int]) -> bool:
    """Whether instructions hang together by values that they compute or read."""
    left = _members(nodes)
    values, found = 0, True
    while left and found:
        found = False
        for node in left:
            own = reads[node] | 1 << node
            if not values or values & own:
                values |= own
                left.remove(node)
                found = True
                break
    return not left


def _subsets(numbers: int) -> list[int]:
    found = [0]
    for number in _members(numbers):
        found += [subset | 1 << number for subset in found]
    return found


def _shortest(
    kernels: Kernels, choices: Sequence[tuple[int, int]]
) -> tuple[Kernel, ...]:
    part = kernels.part
    everything = (1 << len(part.nodes)) - 1
    reads = _masks(part.reads)
    steps: list[tuple[Kernel, int, int, Cost]] = []
    for nodes, outputs in choices:
        kernel = kernels.kernel(*(frozenset(_members(n)) for n in (nodes, outputs)))
        if kernel is not None:
            read = 0
            for node in kernel.nodes:
                read |= reads[node]
            steps.append((kernel, read & ~nodes & everything, outputs, kernel.cost))
    best: dict[int, tuple[Cost, Kernel | None, int]] = {0: ((0, 0, 0), None, 0)}
    # A kernel only adds values, so that every state is complete when it is its turn.
    for state in range(everything + 1):
        if state not in best:
            continue
        so_far = best[state][0]
        for kernel, loads, outputs, cost in steps:
            if loads & ~state or outputs & state:
                continue
            after = state | outputs
            total = added(so_far, cost)
            if after not in best or total < best[after][0]:
                best[after] = total, kernel, state
    (kept,) = _masks([sorted(part.kept)])
    end = min(
        (state for state in best if not kept & ~state),
        key=lambda state: (best[state][0], state),
    )
    found: list[Kernel] = []
    _, kernel, before = best[end]
    while kernel is not None:
        found.append(kernel)
        _, kernel, before = best[before]
    return tuple(reversed(found))
