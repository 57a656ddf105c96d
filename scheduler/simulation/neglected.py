"""Kernels that count next to nothing in a step, since XLA has no model for them.

    %softmax = f32[4096,4096] fusion(%x), kind=kCustom, ... "kind":"__triton"    0.01 us
        -> "no price for 1 kernel whose bytes take 40.0 us or more"

XLA's scheduler takes a hundredth of a microsecond for a fusion of Triton, a sort or a
copy. A step that is made of such times is too short by at least what their bytes take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.async_form import half
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.plurals import counted
from hlo_passes.scheduler.estimators.base import Estimator, least_us
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

#: Shares of a step below this are not worth a word.
_WORTH: Final = 0.005
#: A kernel of less is small beside its launch.
_LEAST_US: Final = 1.0


@dataclass(frozen=True, slots=True)
class Neglected:
    """Kernels without a price.

    Attributes:
        count: instructions.
        us: what they take at least, in a step.
    """

    count: int = 0
    us: float = 0.0

    def matters(self, step_us: float) -> bool:
        """Whether a step that lacks them is much too short."""
        return self.us > _WORTH * step_us

    def remark(self, step_us: float) -> tuple[str, ...]:
        """For a report's first line; () where they do not matter."""
        if not self.matters(step_us):
            return ()
        least = f"{time_text(self.us)} or more"
        told = f"whose bytes take {least} (--extended counts them)"
        return (f"no price for {counted(self.count, 'kernel')} {told}",)


NOTHING_NEGLECTED: Final = Neglected()


def neglected_in(
    computations: Iterable[Computation],
    often: Mapping[str, float],
    estimator: Estimator,
) -> Neglected:
    """The kernels of a step that have no price.

    Args:
        computations: that the step runs.
        often: by the name of a computation, how often.
        estimator: whose prices the step has.
    """
    found = []
    for computation in computations:
        times = often[computation.name]
        for instruction in computation.instructions:
            # What runs beside the compute lane has a latency.
            if runs_callees(instruction) or half(instruction):
                continue
            us = least_us(estimator, instruction)
            if us >= _LEAST_US:
                found.append(times * us)
    return Neglected(len(found), sequential_sum(found))
