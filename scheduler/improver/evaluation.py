"""Whole orders, walked from the first atom to the last: the step, and other opinions.

    step_us       as the simulator counts: one queue per stream
    one queue     as if all pairs of a computation shared one stream
    XLA's own     its statistic: no queues, a start's time in whole microseconds

An order is better only if the other two do not call it worse than the order given. This
file shares no code with the evaluation of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.improver.annealing import Opinion
from hlo_passes.scheduler.improver.atoms import ENDS, Atoms

#: Sums of the same numbers in another order differ by less.
ROUNDING: Final = 1e-9


def step_us(
    atoms: Atoms,
    order: Sequence[int],
    cost_us: Sequence[float] | None = None,
    latency_us: Sequence[float] | None = None,
    *,
    one_queue: bool = False,
) -> float:
    """The step of an order, all streams idle before it.

    Args:
        atoms: of a computation.
        order: of all of them.
        cost_us: instead of the atoms' own.
        latency_us: instead of the starts' own.
        one_queue: all pairs share one stream.
    """
    cost = atoms.cost_us if cost_us is None else cost_us
    latency = atoms.latency_us if latency_us is None else latency_us
    ends = [0.0] * len(atoms)
    free = [0.0] * (max(atoms.stream, default=-1) + 1)
    now = 0.0
    for v in order:
        stream = atoms.stream[v]
        if stream >= 0:
            queue = 0 if one_queue else stream
            ends[v] = free[queue] = max(now, free[queue]) + latency[v]
        elif atoms.kind[v] == ENDS:
            now = max(now, ends[atoms.partner[v]])
        now += cost[v]
    return now


def xla_total_us(atoms: Atoms, order: Sequence[int]) -> float:
    """The length of an order in XLA's statistic, without instructions that float."""
    begun: dict[int, int] = {}
    starts = {s for s in atoms.xla_start if s >= 0}
    now = 0.0
    for v in order:
        now += atoms.xla_before_us[v]
        if v in starts:
            begun[v] = int(now)
        elif atoms.xla_start[v] >= 0:
            passed = now - begun[atoms.xla_start[v]]
            now += max(0.0, atoms.xla_latency_us[v] - passed)
        now += atoms.xla_after_us[v]
    return now


def opinion_against(atoms: Atoms, given: Sequence[int]) -> Opinion:
    """Whether neither of the other two opinions calls an order worse than one given."""
    several = len({s for s in atoms.stream if s >= 0}) > 1
    most_queued = step_us(atoms, given, one_queue=True) if several else 0.0
    most_xla = xla_total_us(atoms, given)

    def is_acceptable(order: Sequence[int]) -> bool:
        if several:
            queued = step_us(atoms, order, one_queue=True)
            if queued > most_queued * (1 + ROUNDING):
                return False
        return xla_total_us(atoms, order) <= most_xla * (1 + ROUNDING)

    return is_acceptable
