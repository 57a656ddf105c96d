"""Times of collectives that hold the compute stream.

%r = all-reduce(%x), ... is_sync                   its latency to a reader
%k = all-reduce(%x), ... is_sync, one-shot kernel  its latency is XLA's constant,
                                                   since its start held the time:
                                                   the time of the kernel
%f = fusion(%x), "kind":"__triton_collective"      the time of the kernel
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.latency.estimate import Estimate

#: Models of a latency that say nothing about the time of an operation.
_SAY_NOTHING: Final = ("none", "sol/constant")


def time_of_synchronous(
    estimator: Estimator, collective: Instruction
) -> Estimate | None:
    """What a synchronous collective takes, us; None where no model knows it."""
    if collective.opcode == "fusion":
        return _kernel_time(estimator, collective)
    user = collective.users[0] if collective.users else collective
    found = estimator.latency(collective, user)
    if found is not None and found.model not in _SAY_NOTHING:
        return found
    return _kernel_time(estimator, collective)


def _kernel_time(estimator: Estimator, collective: Instruction) -> Estimate | None:
    """What the first model of kernels says of a collective; None if it is none."""
    if isinstance(estimator, SolEstimator):
        return estimator.kernel_time(collective)
    if isinstance(estimator, EstimatorStack):
        for part in estimator.estimators:
            found = _kernel_time(part, collective)
            if found is not None:
                return found
    return None
