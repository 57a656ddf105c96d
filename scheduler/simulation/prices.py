"""What things cost in a simulation: an estimator's answers, read its way.

A start and a done take no time of their own: what the estimator says of them counts in
XLA's statistic alone. A synchronous collective takes its latency, else its node cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.instruction import Instruction
from scheduler.estimators.base import Estimator
from scheduler.estimators.stack import EstimatorStack
from scheduler.estimators.table import TableEstimator
from scheduler.latency.estimate import Estimate

#: Models whose microseconds are abstract constants of XLA.
_ABSTRACT: Final = ("approximate", "gpu-approximate")
_UNKNOWN: Final = Estimate(0.0, "none", "no estimator of the stack knows it")


@dataclass(slots=True)
class Prices:
    """An estimator, and where its answers are worth little.

    Attributes:
        estimator: who answers.
        abstract: by model, how often it had only an abstract constant to give.
        absent: starts and synchronous collectives that a table of costs has not.
    """

    estimator: Estimator
    abstract: dict[str, int] = field(default_factory=dict)
    absent: int = 0

    def node(self, instruction: Instruction) -> float:
        """Time on the compute lane, us."""
        found = self.estimator.node_cost(instruction)
        return 0.0 if found is None else found.us

    def latency(self, start: Instruction, done: Instruction) -> Estimate:
        """Time from an asynchronous start to its done."""
        table = _table_of(self.estimator)
        self.absent += table is not None and start.name not in table.latencies
        return self._noted(start, self.estimator.latency(start, done) or _UNKNOWN)

    def synchronous(self, collective: Instruction) -> Estimate:
        """Time of a collective that runs on the compute lane.

        For a collective kernel of the compiler's the time stands in the node cost, and
        its latency is a constant.
        """
        node = self.estimator.node_cost(collective) or _UNKNOWN
        table = _table_of(self.estimator)
        if table is not None:
            known = table.latencies.get(collective.name)
            self.absent += known is None and collective.name not in table.node_costs
            return node if known is None else Estimate(known, table.name)
        user = collective.users[0] if collective.users else collective
        found = self.estimator.latency(collective, user)
        if found is None or found.model == "sol/constant":
            found = node
        return self._noted(collective, found)

    def _noted(self, instruction: Instruction, found: Estimate) -> Estimate:
        if found.model in _ABSTRACT and found.us > 0.0:
            self.abstract[found.model] = self.abstract.get(found.model, 0) + 1
        return found


def _table_of(estimator: Estimator) -> TableEstimator | None:
    """The table that answers for everything, if there is one."""
    if isinstance(estimator, TableEstimator):
        return estimator
    if isinstance(estimator, EstimatorStack):
        for part in estimator.estimators:
            found = _table_of(part)
            if found is not None:
                return found
    return None
