"""Latencies of edges; the estimator is asked only if the answer may differ from 1.

fusion -> fusion                   1, the estimator is not asked
all-gather-start -> its done       the estimator's answer
all-gather-start -> anything else  the estimator's answer: the analytical model
                                   gives every such edge the collective's time
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.estimators.approximate import (
    ApproximateEstimator,
    GpuApproximateEstimator,
)
from hlo_passes.scheduler.estimators.base import LOW, Estimator
from hlo_passes.scheduler.estimators.profile import ProfileEstimator
from hlo_passes.scheduler.estimators.ring import RingEstimator
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator

#: Latency of an edge that is not estimated.
PLAIN_LATENCY_US: Final = LOW

#: Estimators whose answer differs from 1 for starts and synchronous collectives only.
_STARTS_ONLY: Final = (
    ApproximateEstimator,
    GpuApproximateEstimator,
    RingEstimator,
    SolEstimator,
)


def delays(estimator: Estimator) -> Callable[[Instruction], bool]:
    """Whether an edge out of an instruction can have a latency other than 1.

    An estimator of another package is asked about every edge.
    """
    parts = (
        estimator.estimators if isinstance(estimator, EstimatorStack) else (estimator,)
    )
    names: set[str] = set()
    for part in parts:
        if isinstance(part, TableEstimator):
            names.update(part.latencies)
        elif isinstance(part, ProfileEstimator):
            names.update(source for source, _ in part.profile.latencies)
        elif not isinstance(part, _STARTS_ONLY):
            return lambda _: True

    def is_delaying(instruction: Instruction) -> bool:
        opcode = instruction.opcode
        return (
            facts(opcode).half == "start"
            or opcode in opcodes.SYNC_COLLECTIVES
            or instruction.name in names
        )

    return is_delaying
