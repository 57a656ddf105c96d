"""A stack of estimators: the first one that has a price is used.

profile, then sol, then gpu-approximate
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator, least_us
from hlo_passes.scheduler.latency.estimate import Estimate


@dataclass(frozen=True, slots=True)
class EstimatorStack:
    """Several estimators as one; the last one of a useful stack always has a price."""

    estimators: tuple[Estimator, ...]

    @property
    def name(self) -> str:
        """The names, joined by '+'."""
        return "+".join(e.name for e in self.estimators)

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """The first cost."""
        for estimator in self.estimators:
            found = estimator.node_cost(instruction)
            if found is not None:
                return found
        return None

    def least_us(self, instruction: Instruction) -> float:
        """As `SolEstimator.least_us`, where that is the one with the cost."""
        for estimator in self.estimators:
            if estimator.node_cost(instruction) is not None:
                return least_us(estimator, instruction)
        return 0.0

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """The first latency."""
        for estimator in self.estimators:
            found = estimator.latency(start, user)
            if found is not None:
                return found
        return None
