"""The step by the compiler's own statistic: its totals, put together over the loops.

    step = step_of(module, costs)
    step.total_cycles, step.exposed_cycles

The compiler's log has a total for each computation that its scheduler looked at: the
costs of its nodes, and the cycles that it waits. A loop in it costs iterations times
the nodes of the body *without* what the body waits. So each loop is counted here as
iterations times the body's own total, and the entry's total becomes the step.
Iterations are the compiler's: the loop's cost over that of the body's nodes. The log
calls waits for collectives wasted; its total also has those for copies to the host. Of
a loop without anything asynchronous of its own the log has no body. What loops inside
it wait counts by the trip counts of the module. All of these are estimates of the
compiler, in cycles of the TensorCore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.errors import HloError
from hlo_passes.ir.async_form import half, is_collective
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.table import bodies_of
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.scheduler.tpu.comparison import TOTAL, WASTED
from hlo_passes.scheduler.tpu.costs import TpuCosts

_PEAK = "memory pressure peak (bytes)"
#: The share of a total that the six digits of its parts may be off.
_ROUNDED = 1e-4


class NoStatisticError(HloError):
    """The compiler's log has no total for the program."""

    default_code = "R004"


@dataclass(frozen=True, slots=True)
class TpuStep:
    """A step as the compiler's statistic has it.

    Attributes:
        total_cycles: of it all.
        exposed_cycles: of these, in waits for collectives, in synchronous ones, and in
            fusions that hold one.
        peak_bytes: of what the entry allocates, in whole tiles; parameters come on top.
    """

    total_cycles: float
    exposed_cycles: float
    peak_bytes: int


def step_of(module: Module, costs: TpuCosts) -> TpuStep:
    """The step of a module as the compiler's scheduler left it.

    Raises NoStatisticError R004 if the log has no total of its entry.

    Complexity: linear in instructions.
    """
    after = costs.statistics.get("after", {})
    return _Statistic(costs, after, TripCounts(module)).step(module)


@dataclass(slots=True)
class _Statistic:
    costs: TpuCosts
    after: Mapping[str, Mapping[str, float]]
    trips: TripCounts
    _known: dict[Computation, tuple[float, float]] = field(default_factory=dict)

    def step(self, module: Module) -> TpuStep:
        entry = module.entry
        if entry.name not in self.after:
            raise NoStatisticError("the compiler's log has no statistic of the program")
        # Callees come before their callers.
        for computation in module.computations:
            if computation.name in self.after:
                self._known[computation] = self._times(computation)
        total, exposed = self._known[entry]
        return TpuStep(total, exposed, int(self.after[entry.name].get(_PEAK, 0)))

    def _times(self, computation: Computation) -> tuple[float, float]:
        """(total, exposed) of one execution."""
        found = self.after[computation.name]
        total, exposed = found.get(TOTAL, 0.0), found.get(WASTED, 0.0)
        for instruction in computation.instructions:
            cycles = self.costs.node_cycles.get(instruction.name, 0.0)
            if runs_callees(instruction):
                times, more, hidden = self._callee(instruction, cycles)
                total += times * more
                exposed += times * hidden
            elif _communicates(instruction):
                exposed += cycles
        return total, exposed

    def _callee(self, caller: Instruction, cycles: float) -> tuple[float, float, float]:
        """(executions, cycles of each that its node lacks, exposed cycles of each).

        A conditional is left as the compiler prices it.
        """
        if caller.opcode == "conditional":
            return 0.0, 0.0, 0.0
        (body,) = bodies_of(caller)
        if body not in self._known:
            return (float(self._trips(caller)), *self._waits_within(body))
        total, exposed = self._known[body]
        nodes = self._nodes(body)
        if nodes <= 0.0:
            return 0.0, 0.0, 0.0
        return cycles / nodes, total - nodes, exposed

    def _trips(self, caller: Instruction) -> int:
        return self.trips.or_once(caller) if caller.opcode == "while" else 1

    def _waits_within(self, computation: Computation) -> tuple[float, float]:
        """(cycles that its callees wait, exposed ones), where the log has no total."""
        waits = exposed = 0.0
        for caller in computation.instructions:
            if not runs_callees(caller) or caller.opcode == "conditional":
                continue
            (body,) = bodies_of(caller)
            if body in self._known:
                total, hidden = self._known[body]
                more = total - self._nodes(body)
            else:
                more, hidden = self._waits_within(body)
            waits += self._trips(caller) * more
            exposed += self._trips(caller) * hidden
        return waits, exposed

    def _nodes(self, body: Computation) -> float:
        """Cycles of a body's nodes, without what it waits."""
        figures = self.after[body.name]
        total = figures.get(TOTAL, 0.0)
        nodes = total - figures.get(WASTED, 0.0)
        priced = sequential_sum(
            self.costs.node_cycles.get(i.name, 0.0) for i in body.instructions
        )
        # What is missing is waited for something that is no collective.
        waits = nodes - priced
        return priced if waits > _ROUNDED * total else nodes


def _communicates(instruction: Instruction) -> bool:
    """A synchronous collective, or a fusion that holds one."""
    if is_collective(instruction):
        return not half(instruction)
    return instruction.opcode == "fusion" and any(
        is_collective(inner)
        for callee in instruction.called_computations
        for inner in callee.instructions
    )
