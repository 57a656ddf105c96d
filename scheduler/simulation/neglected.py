"""Kernels that count next to nothing in a step, since XLA has no model for them.

    %softmax = f32[4096,4096] fusion(%x), kind=kCustom, ... "kind":"__triton"    0.01 us
        -> "no price for 1 kernel whose bytes take 40.0 us or more"

XLA's scheduler takes a hundredth of a microsecond for a fusion of Triton, a sort or a
copy. A step that is made of such times is too short by at least what their bytes take.

    %d = bf16[8,8192] dot(%x, %w)                              2.6 us, 40.1 us of bytes
        -> "the price of 1 matrix product leaves out 37.6 us or more for bytes"

Its table of matrix products leaves out the bytes, which is what products of few rows
take their time for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.async_form import half
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.plurals import counted
from hlo_passes.scheduler.estimators.base import (
    UNKNOWN,
    Estimator,
    is_constant,
    least_us,
)
from hlo_passes.scheduler.simulation.prices import fusion_of
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

#: Shares of a step below this are not worth a word.
_WORTH: Final = 0.005
#: A kernel of less is small beside its launch.
_LEAST_US: Final = 1.0


@dataclass(frozen=True, slots=True)
class Neglected:
    """Kernels whose price leaves out their bytes.

    Attributes:
        count: instructions without a price.
        us: what they take at least, in a step.
        products: matrix products that take longer than their price.
        products_us: by how much at least, in a step.
    """

    count: int = 0
    us: float = 0.0
    products: int = 0
    products_us: float = 0.0

    @property
    def missing_us(self) -> float:
        """What a step lacks at least."""
        return self.us + self.products_us

    def matters(self, step_us: float) -> bool:
        """Whether a step that lacks them is much too short."""
        return self.missing_us > _WORTH * step_us

    def remark(self, step_us: float) -> tuple[str, ...]:
        """For a report's first line; () where they do not matter."""
        if not self.matters(step_us):
            return ()
        told = []
        if self.count:
            told.append(
                f"no price for {counted(self.count, 'kernel')} whose bytes take "
                f"{time_text(self.us)} or more (--extended counts them)"
            )
        if self.products:
            told.append(
                f"the price of {counted(self.products, 'matrix product')} leaves out "
                f"{time_text(self.products_us)} or more for bytes (--extended counts "
                "them)"
            )
        return tuple(told)


NOTHING_NEGLECTED: Final = Neglected()


def neglected_in(
    computations: Iterable[Computation],
    often: Mapping[str, float],
    estimator: Estimator,
) -> Neglected:
    """The kernels of a step whose price leaves out their bytes.

    Args:
        computations: that the step runs.
        often: by the name of a computation, how often.
        estimator: whose prices the step has.
    """
    kernels: list[float] = []
    products: list[float] = []
    for computation in computations:
        times = often[computation.name]
        if times <= 0:
            continue
        for instruction in computation.instructions:
            if runs_callees(instruction):
                continue
            # What runs beside the compute lane has a latency; a fusion has its time.
            is_start = half(instruction) == "start"
            kernel = fusion_of(instruction) if is_start else instruction
            if kernel is None or half(kernel):
                continue
            us = least_us(estimator, kernel)
            if us < _LEAST_US:
                continue
            found = estimator.node_cost(kernel) or UNKNOWN
            if not is_constant(found.model):
                if us - found.us >= _LEAST_US:
                    products.append(times * (us - found.us))
            elif not is_start:
                kernels.append(times * us)
    return Neglected(
        len(kernels), sequential_sum(kernels), len(products), sequential_sum(products)
    )
