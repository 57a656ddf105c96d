"""What the six digits of the log leave open: other costs that it would print the same.

The compiler's scheduler works with fractions of cycles, and its log rounds each of them
to six digits. Where two times are equal but for these digits, they decide: which of two
starts is ready, or by which whole cycle a start begins. A difference is left open if some
costs that print the same give XLA's answers in everything.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping
from typing import Final

from hlo_passes.scheduler.tpu.costs import TpuCosts

_DIGITS: Final = 6
#: What a node costs at least; the log has it as it is.
_LEAST_CYCLES: Final = 1.0


def printed(cycles: float) -> str:
    """A cost as the log has it."""
    return f"{cycles:.{_DIGITS}g}"


def half_unit(cycles: float) -> float:
    """By how much a cost can differ from what is printed; 0 where it is known."""
    if cycles in (0.0, _LEAST_CYCLES):
        return 0.0
    return 0.5 * 10.0 ** (math.floor(math.log10(cycles)) + 1 - _DIGITS)


def reprinted(costs: TpuCosts, tries: int) -> Iterator[TpuCosts]:
    """Costs that the log would print as these, the same ones in every run.

    Those that are printed the same stay the same.
    """
    for seed in range(tries):
        drawn = _Drawn(random.Random(seed))
        yield dataclasses.replace(
            costs,
            node_cycles=drawn.of(costs.node_cycles),
            latency_cycles=drawn.of(costs.latency_cycles),
        )


class _Drawn:
    """One choice of what each printed cost was."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._known = {0.0: 0.0, _LEAST_CYCLES: _LEAST_CYCLES}

    def of(self, table: Mapping[str, float]) -> dict[str, float]:
        return {name: self._behind(cycles) for name, cycles in table.items()}

    def _behind(self, cycles: float) -> float:
        known = self._known.get(cycles)
        if known is None:
            known = cycles + self._source.uniform(-1.0, 1.0) * half_unit(cycles)
            if printed(known) != printed(cycles):
                known = cycles
            self._known[cycles] = known
        return known
