"""How long a stream can be hidden if each instruction is in one of its windows at most.

    pairs i 20 us and j 20 us, never in flight together; b 30 us may stand beside both

    A flow would place 20 us of b beside i and 10 us beside j. But b does not end in the
    middle: it is beside i or beside j, and hides 20 us.

Let hidden(i) be how long instructions run beside pair i, with i's time and those of the
instructions in its window as limits. For any shares p(i) from 0 to 1

    hidden(i) = (1 - p(i)) hidden(i) + p(i) hidden(i)
    hidden(i) <= (1 - p(i)) us(i) + p(i) * the sum of min(us(v), us(i)) in its window

and no v is in two windows, so all that is hidden is at most

    sum over i of (1 - p(i)) us(i)
    sum over v of the greatest p(i) min(us(v), us(i)) of the pairs that v may be beside

The shares that make this least are searched along subgradients. Each sum on the way
bounds what is hidden, so that the search may end anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from hlo_passes.scheduler.sums import sequential_sum

#: Places that may be looked at: instructions times the pairs that they may be beside.
_MOST_LOOKS: Final = 1_000_000
#: Fewer rounds than this find nothing.
_LEAST_ROUNDS: Final = 50
_MOST_ROUNDS: Final = 1_000
_FIRST_SHARE: Final = 0.5
#: How much less is aimed at, as a share of what is known: at first, and at last.
_AIM: Final = 0.1
_LEAST_AIM: Final = 1e-5
#: Rounds without a gain after which the aim is halved.
_PATIENCE: Final = 10
#: What counts as a gain.
_GAIN: Final = 1e-5


def most_hidden_us(
    pairs_us: Sequence[float], beside: Mapping[tuple[tuple[int, ...], float], int]
) -> float:
    """The longest time in which lane and stream can both be busy, us.

    Args:
        pairs_us: how long each pair takes.
        beside: (pairs that an instruction may be beside, its time) -> how many alike.
    """
    items = [
        [(i, min(us, pairs_us[i]) * count) for i in near]
        for (near, us), count in beside.items()
        if near
    ]
    all_us = sequential_sum(pairs_us)
    looks = len(pairs_us) + sum(map(len, items))
    rounds = min(_MOST_ROUNDS, _MOST_LOOKS // looks) if looks else 0
    if rounds < _LEAST_ROUNDS:
        return all_us
    shares = [_FIRST_SHARE] * len(pairs_us)
    best, best_shares = _sum_and_slope(pairs_us, items, shares)[0], shares
    aim, idle = _AIM * best, 0
    for _ in range(rounds):
        now, slope = _sum_and_slope(pairs_us, items, shares)
        if now < best * (1 - _GAIN):
            best, best_shares, idle = now, shares, 0
        else:
            idle += 1
            if idle >= _PATIENCE:
                aim, idle, shares = aim / 2, 0, best_shares
                if aim < _LEAST_AIM * best:
                    break
                now, slope = _sum_and_slope(pairs_us, items, shares)
        for i, share in enumerate(shares):
            if (share <= 0.0 and slope[i] > 0.0) or (share >= 1.0 and slope[i] < 0.0):
                slope[i] = 0.0
        length = sequential_sum(s * s for s in slope)
        if not 0.0 < length < math.inf:
            break
        step = (now - best + aim) / length
        shares = [
            min(1.0, max(0.0, share - step * s))
            for share, s in zip(shares, slope, strict=True)
        ]
    return min(best, all_us)


def _sum_and_slope(
    pairs_us: Sequence[float],
    items: Sequence[Sequence[tuple[int, float]]],
    shares: Sequence[float],
) -> tuple[float, list[float]]:
    """The bound with such shares, and how it changes with each."""
    slope = [-us for us in pairs_us]
    total = sequential_sum(
        (1.0 - share) * us for share, us in zip(shares, pairs_us, strict=True)
    )
    for item in items:
        most, place, full = 0.0, -1, 0.0
        for i, us in item:
            here = shares[i] * us
            if here > most:
                most, place, full = here, i, us
        total += most
        if place >= 0:
            slope[place] += full
    return total, slope
