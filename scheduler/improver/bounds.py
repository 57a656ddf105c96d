"""What no order can be shorter than: compute, one stream, the longest chain.

the greatest of
    all that the compute lane runs
    all that one stream runs
    the longest chain of atoms that need each other
"""

from __future__ import annotations

from hlo_passes.scheduler.improver.atoms import ENDS, STARTS, Atoms
from hlo_passes.scheduler.sums import sequential_sum


def lower_bound_us(atoms: Atoms) -> float:
    """A bound for the step of every order, us."""
    streams: dict[int, float] = {}
    for v, kind in enumerate(atoms.kind):
        if kind == STARTS:
            k = atoms.stream[v]
            streams[k] = streams.get(k, 0.0) + atoms.latency_us[v]
    compute = sequential_sum(atoms.cost_us)
    return max([compute, *streams.values(), _longest_chain_us(atoms)])


def _longest_chain_us(atoms: Atoms) -> float:
    # Numbers follow the order given, so predecessors come first.
    ends = [0.0] * len(atoms)
    for v, near in enumerate(atoms.preds):
        begin = max([ends[p] for p in near], default=0.0)
        if atoms.kind[v] == ENDS:
            start = atoms.partner[v]
            begin = max(begin, ends[start] + atoms.latency_us[start])
        ends[v] = begin + atoms.cost_us[v]
    return max(ends, default=0.0)
