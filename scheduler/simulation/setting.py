"""How wrong the prices may be: what a simulation is repeated with.

Setting(latency=1.3)                  every collective takes 30% longer
Setting(compute=0.7)                  every kernel takes 30% less
Setting(contention=0.2)               a running collective takes 20% of the GPU
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

#: What times are multiplied by. Published comparisons of XLA's model with measurements
#: are mostly within this range.
FACTORS: Final = (0.7, 1.0, 1.3)
#: Shares of a GPU's compute that a running collective takes: NCCL's kernels occupy
#: multiprocessors.
CONTENTIONS: Final = (0.0, 0.1, 0.2)
#: More cannot be taken: compute would not end.
MOST_CONTENTION: Final = 0.9


@dataclass(frozen=True, slots=True)
class Setting:
    """One assumption about the prices.

    Attributes:
        latency: factor of collectives, transfers and copies.
        compute: factor of kernels.
        contention: the share of its speed that compute loses while a collective runs.
    """

    latency: float = 1.0
    compute: float = 1.0
    contention: float = 0.0


#: As the estimator answers.
PLAIN: Final = Setting()


def settings(contention: float | None = 0.0) -> tuple[Setting, ...]:
    """The fixed grid: all combinations of factors and contentions, 27 settings.

    Args:
        contention: that of the simulation itself, which is the least of the grid; None
            for rules that have none, then 9 settings.
    """
    taken = (0.0,)
    if contention is not None:
        taken = tuple(min(contention + c, MOST_CONTENTION) for c in CONTENTIONS)
    return tuple(
        Setting(latency, compute, share)
        for latency, compute, share in itertools.product(FACTORS, FACTORS, taken)
    )
