"""Choice among orders that are equally good, if the costs should be wrong.

16 times, every cost and every latency is changed by up to 20 %, each by itself, with
the same random numbers in every run. The mean of (order / order given) decides.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.improver.atoms import Atoms
from hlo_passes.scheduler.improver.evaluation import step_us
from hlo_passes.scheduler.sums import sequential_sum

_SAMPLES: Final = 16
_SPREAD: Final = 0.2
#: Seed of the first sample; the next ones follow.
_SEED: Final = 1


def robustness(
    atoms: Atoms, given: Sequence[int], orders: Sequence[Sequence[int]]
) -> list[float]:
    """The mean step of each order under wrong costs, as a share of the given one."""
    ratios: list[list[float]] = [[] for _ in orders]
    for sample in range(_SAMPLES):
        draw = random.Random(_SEED + sample).random
        cost = [us * (1 + _SPREAD * (2 * draw() - 1)) for us in atoms.cost_us]
        latency = [us * (1 + _SPREAD * (2 * draw() - 1)) for us in atoms.latency_us]
        whole = step_us(atoms, given, cost, latency)
        for found, order in zip(ratios, orders, strict=True):
            found.append(step_us(atoms, order, cost, latency) / whole if whole else 1.0)
    return [sequential_sum(found) / _SAMPLES for found in ratios]
