"""What things cost in a simulation: the answers of an estimator, interpreted.

A start and a done take no time of their own: their estimates count only in XLA's
statistic. A synchronous collective takes its latency, otherwise its node cost.

For asynchronous operations that are not communication, XLA's estimators have no model
but a constant. If such an operation is a fusion, as XLA makes them since jax 0.12, it
keeps its stream busy as long as the same fusion would keep the compute lane busy:

    %s = ... async-start(%x), calls=%wrapped        latency 5000 for XLA
      ROOT %f = ... fusion(%q), kind=kLoop          node cost 2.1: the time used here

An asynchronous call takes as long as what it calls. A call on a SparseCore of a TPU
takes the latency that the compiler's log has for it: the log does not price what is
called. That log looks into a loop only if something in it is asynchronous, so any other
loop, branch or call takes the time that it has in its caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from hlo_passes.errors import UsageError
from hlo_passes.ir.async_form import half, work_of
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import (
    COARSE,
    UNKNOWN,
    Estimator,
    has_no_price,
)
from hlo_passes.scheduler.estimators.profile import MEASURED, PROFILE
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.synchronous import time_of_synchronous
from hlo_passes.scheduler.estimators.table import (
    TableEstimator,
    bodies_of,
    has_costs,
    is_priced_whole,
)
from hlo_passes.scheduler.latency.collectives import wrapped_collective
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.tpu.sparse_core import is_on_sparse_core


@dataclass(slots=True)
class Prices:
    """An estimator, and where its answers mean little.

    Attributes:
        estimator: that is asked.
        as_xla: whether asynchronous fusions keep XLA's constant.
        abstract: by model, how often it had only an abstract constant.
        inflated: matrix products by how often XLA's table counts their flops, above 1.
        fusions: asynchronous fusions that take as long as the fusion itself.
        absent: starts and synchronous collectives that a table of costs lacks.
        unknown: those that no estimator has a price for; each counts 0.
        whole: loops, branches and calls that were priced without a look inside.
    """

    estimator: Estimator
    as_xla: bool = False
    abstract: dict[str, int] = field(default_factory=dict)
    inflated: dict[int, int] = field(default_factory=dict)
    fusions: int = 0
    absent: int = 0
    unknown: int = 0
    whole: dict[Instruction, None] = field(default_factory=dict)

    @property
    def unpriced(self) -> int:
        """Operations that have only an abstract constant, or nothing at all."""
        return sum(self.abstract.values()) + self.unknown

    @property
    def overcounted(self) -> int:
        """Matrix products of which XLA's table takes more than their share."""
        return sum(self.inflated.values())

    @property
    def arrivals_us(self) -> dict[str, float]:
        """By send, how long until others have it, us, as far as a table has it."""
        table = _table_of(self.estimator)
        edges = {} if table is None else table.edges
        return {send: max(to.values()) for send, to in edges.items() if to}

    def node(self, instruction: Instruction) -> float:
        """Time on the compute lane, us. Raises UsageError U223 for an invalid time."""
        found = self.compute(instruction)
        if found is UNKNOWN or has_no_price(found.model, found.reason, found.us):
            self._noted(found, is_constant=True)
        return found.us

    def compute(self, instruction: Instruction) -> Estimate:
        """Price on the compute lane. Raises UsageError U223 for an invalid time."""
        found = self.estimator.node_cost(instruction) or UNKNOWN
        times = found.times_its_share
        if times > 1:
            self.inflated[times] = self.inflated.get(times, 0) + 1
        return self._checked(instruction, found)

    def latency(
        self, start: Instruction, done: Instruction, *, runs_body: bool = False
    ) -> Estimate:
        """Time from an asynchronous start to its done. Raises UsageError U223.

        Args:
            start: begins it.
            done: ends it; the start itself if that is elsewhere.
            runs_body: whether what it calls is simulated: then that is its time.
        """
        table = _table_of(self.estimator)
        self.absent += table is not None and start.name not in table.latencies
        found = self._latency(start, done)
        if runs_body:
            return found
        if not self.as_xla and found.model in COARSE:
            fusion = fusion_of(start)
            itself = UNKNOWN if fusion is None else self.compute(fusion)
            if itself.model not in COARSE:
                self.fusions += 1
                return self._noted(itself, is_constant=itself.reason != "")
        return self._noted(found)

    def has_whole_call(self, start: Instruction) -> bool:
        """Whether a call on a SparseCore has a time: what is inside has none then."""
        if not is_on_sparse_core(start):
            return False
        table = _table_of(self.estimator)
        if table is not None:
            return start.name in table.latencies
        return self.estimator.latency(start, start) is not None

    def has_whole_loop(self, caller: Instruction) -> bool:
        """Whether a loop, branch or call has a time, and nothing that it runs has."""
        if caller in self.whole:
            return True
        table = _table_of(self.estimator)
        if table is None or not table.has_whole_loops:
            return False
        found = is_priced_whole(caller, table.node_costs, table.latencies)
        if found:
            self.whole[caller] = None
        return found

    def unpriced_beside(
        self, caller: Instruction, trip_count: Callable[[Instruction], int]
    ) -> float:
        """What one run of a callee takes that has no cost itself, us.

            while (40 us, 4 times)  ->  body: add (no cost), while (8 us by its body)
                                        the rest of the body takes 2 us

        Args:
            caller: a loop or call. It has a cost, and so has what its callee runs.
            trip_count: how often a loop runs.
        """
        table = _table_of(self.estimator)
        bodies = bodies_of(caller)
        if table is None or not table.has_whole_loops or len(bodies) != 1:
            return 0.0
        if caller.name not in table.node_costs:
            return 0.0
        if has_costs(bodies[0], table.node_costs, table.latencies):
            return 0.0
        times = trip_count(caller) if caller.opcode == "while" else 1
        whole = table.node_costs[caller.name] / max(1, times)
        return max(0.0, whole - _priced_inside(bodies[0], table, trip_count))

    def synchronous(self, collective: Instruction) -> Estimate:
        """Time of a collective that runs on the compute lane.

        The latency of a collective kernel of the compiler is a constant: it takes its
        kernel's time. A profile has the time as node cost. Raises UsageError U223.
        """
        node = self.compute(collective)
        if node.model in (PROFILE, MEASURED) and not half(collective):
            return node
        table = _table_of(self.estimator)
        if table is not None:
            known = table.latencies.get(collective.name)
            self.absent += known is None and collective.name not in table.node_costs
            return node if known is None else Estimate(known, table.name)
        found = time_of_synchronous(self.estimator, collective)
        if found is not None:
            found = self._checked(collective, found)
        return self._noted(found or node)

    def _latency(self, start: Instruction, user: Instruction) -> Estimate:
        found = self.estimator.latency(start, user) or UNKNOWN
        return self._checked(start, found)

    def _checked(self, instruction: Instruction, found: Estimate) -> Estimate:
        if 0.0 <= found.us < math.inf:
            return found
        raise UsageError(
            f"{found.model} gives %{instruction.name} {found.us} us, "
            "which is not a time",
            code="U223",
            hint="a time is finite and not negative",
        )

    def _noted(self, found: Estimate, *, is_constant: bool = False) -> Estimate:
        if found is UNKNOWN:
            self.unknown += 1
        if (is_constant or found.model in COARSE) and found.us > 0.0:
            self.abstract[found.model] = self.abstract.get(found.model, 0) + 1
        return found


def _priced_inside(
    computation: Computation,
    table: TableEstimator,
    trip_count: Callable[[Instruction], int],
) -> float:
    """What the nodes with a cost take in a computation, or in its callees, us."""
    if has_costs(computation, table.node_costs, table.latencies):
        return sum(table.node_costs.get(i.name, 0.0) for i in computation.instructions)
    found = 0.0
    for inner in computation.instructions:
        if runs_callees(inner):
            times = trip_count(inner) if inner.opcode == "while" else 1
            most = (
                _priced_inside(each, table, trip_count) for each in bodies_of(inner)
            )
            found += times * max(most, default=0.0)
    return found


def fusion_of(start: Instruction) -> Instruction | None:
    """The fusion that a start wraps; None for anything else, and fused collectives."""
    if work_of(start) != "fusion" or wrapped_collective(start) is not None:
        return None
    if start.opcode == "async-start":
        return start.called_computations[0].root
    # `fusion-start` is XLA's short form of the same, without the computation.
    result = start.shape.elements[1]
    fusion = Instruction(start.name, "fusion", result, start.operands, start.attributes)
    fusion.computation = start.computation
    return fusion


def _table_of(estimator: Estimator) -> TableEstimator | None:
    """The table that gives all the answers, if one does."""
    if isinstance(estimator, TableEstimator):
        return estimator
    if isinstance(estimator, EstimatorStack):
        for part in estimator.estimators:
            found = _table_of(part)
            if found is not None:
                return found
    return None
