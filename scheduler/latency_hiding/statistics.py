"""The latency that a schedule leaves exposed, counted as XLA counts it.

    order:  x (0.6)  start (1.0)  y (2.0)  done (1.0)     latency of the pair 10
    begun = trunc(1.6) = 1;  at the done 4.6 have passed, 3.6 since then: 6.4 wasted

A start keeps its time as a whole number, so a gap is up to 1 too short; XLA's published
numbers show it. Only the order counts: there is no contention, and a loop takes its
node cost.

Source: openxla/xla `latency_hiding_scheduler.cc`, LatencyHidingStatistics (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.async_form import work_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.sums import sequential_sum

#: Kinds that XLA counts, in the order in which it prints them, by what is wrapped.
WASTE_KINDS: Final[dict[str, str]] = {
    "all-reduce": "all-reduce",
    "all-gather": "all-gather",
    "collective-broadcast": "collective-broadcast",
    "collective-permute": "collective-permute",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "ragged-all-to-all",
    "reduce-scatter": "reduce-scatter",
    "send": "send",
    "recv": "recv",
    "call": "asynchronous call",
}


@dataclass(frozen=True, slots=True)
class Exposure:
    """A pair whose latency is not covered.

    Attributes:
        start: its start.
        done: its done.
        latency_us: of the pair.
        wasted_us: the part that nothing covers.
    """

    start: Instruction
    done: Instruction
    latency_us: float
    wasted_us: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """XLA's statistics of one computation's order.

    Attributes:
        computation: its name.
        wasted_us: exposed latency by kind (keys as XLA prints them).
        total_us: length of the order, exposed latency of every kind included.
        peak_bytes: memory pressure peak, None where memory was not tracked.
        exposures: pairs with exposed latency, in order.
    """

    computation: str
    wasted_us: dict[str, float]
    total_us: float
    peak_bytes: int | None = None
    exposures: tuple[Exposure, ...] = ()

    @property
    def total_wasted_us(self) -> float:
        """Exposed latency of the kinds that XLA counts."""
        return sequential_sum(self.wasted_us.values())

    def to_json(self) -> dict[str, float]:
        """The keys and order of XLA's log."""
        view = {"total wasted cycles": self.total_wasted_us}
        view |= {f"wasted cycles for {k}": us for k, us in self.wasted_us.items()}
        view["total cycles"] = self.total_us
        if self.peak_bytes is not None:
            view["memory pressure peak (bytes)"] = float(self.peak_bytes)
        return view


def lhs_statistics(
    computation: Computation,
    estimator: Estimator,
    tracker: AsyncTracker,
    *,
    order: Iterable[Instruction] | None = None,
    costs_us: dict[Instruction, float] | None = None,
    latencies_us: dict[Instruction, float] | None = None,
    peak_bytes: int | None = None,
) -> Statistics:
    """Walk an order and add up what no work covers.

    Args:
        computation: whose order.
        estimator: of costs and latencies, us.
        tracker: knows what is asynchronous.
        order: instead of the computation's own.
        costs_us: node costs known already.
        latencies_us: latencies of pairs by their dones, as far as they are known; new
            ones are added.
        peak_bytes: memory pressure peak, passed through.
    """
    known = {} if latencies_us is None else latencies_us
    now = 0.0
    begun: dict[Instruction, int] = {}
    wasted = dict.fromkeys(WASTE_KINDS.values(), 0.0)
    exposures: list[Exposure] = []
    for instruction in computation.instructions if order is None else order:
        if costs_us is None:
            now += node_cost_us(estimator, instruction)
        else:
            now += costs_us[instruction]
        half = facts(instruction.opcode).half
        if not half:
            continue
        if tracker.is_supported_start(instruction):
            begun[instruction] = int(now)
        elif tracker.is_supported_done(instruction):
            start = instruction.operands[0]
            if not tracker.is_supported_start(start):
                continue
            latency = known.get(instruction)
            if latency is None:
                latency = latency_us(estimator, start, instruction)
                known[instruction] = latency
            gap = max(0.0, latency - (now - begun[start]))
            now += gap
            kind = WASTE_KINDS.get(work_of(start))
            if kind is not None:
                wasted[kind] += gap
            if gap > 0:
                exposures.append(Exposure(start, instruction, latency, gap))
    return Statistics(computation.name, wasted, now, peak_bytes, tuple(exposures))


def node_cost_us(estimator: Estimator, instruction: Instruction) -> float:
    """Cost of an instruction; 0 if no estimator of the stack knows it."""
    found = estimator.node_cost(instruction)
    return 0.0 if found is None else found.us


def latency_us(estimator: Estimator, first: Instruction, then: Instruction) -> float:
    """Latency of an edge; 0 if no estimator of the stack knows it."""
    found = estimator.latency(first, then)
    return 0.0 if found is None else found.us
