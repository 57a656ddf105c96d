"""Combinations by chance, of all levers at once.

    drawn({"overlap limit": ("2", "4"), "loop unrolling": ("full",)}, seed=1)
        ->  overlap limit 4;  nothing;  overlap limit 2, loop unrolling full;  ...

Levers that help together and not alone are found by trying many at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from hlo_passes.scheduler.tuning.combination import Combination, Family


def drawn(
    choices: Mapping[str, Sequence[str]], *, seed: int, family: Family = "gpu"
) -> Iterator[Combination]:
    """Combinations without end; each lever is set with even chances.

    Args:
        choices: settings by lever.
        seed: the same one gives the same combinations.
        family: of the levers.
    """
    chance = random.Random(seed)
    while True:
        settings = {
            name: chance.choice(values)
            for name, values in choices.items()
            if chance.random() < 1 / 2
        }
        yield Combination.of(settings, family).sound()
