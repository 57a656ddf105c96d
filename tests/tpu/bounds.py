"""Between which values a statistic lies, by the digits that the log leaves open.

    order:  x (100.5 +- 0.0005)   start   y (2.0)   done      latency 1234.57 +- 0.005
    total cycles, wasted cycles   (low, high) each

The log rounds each cost and latency to six digits, and the statistic adds them up. So
its figures are compared within the sum of what the rounding can have taken. A total never
falls if a cost rises, so it lies between the totals of the lowest and of the highest costs.
A wait is a latency less what passes between a start and its done: only the costs between
them count, and up to one cycle, where these digits decide by which whole one the start
begins. Every bound holds; the true range can be narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.async_form import work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency_hiding.statistics import WASTE_KINDS
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.tpu.costs import TpuCosts
from tests.tpu.digits import half_unit

#: (low, high).
Bounds = tuple[float, float]
_ZERO: Final[Bounds] = (0.0, 0.0)
_LEAST: Final[Bounds] = (1.0, 1.0)


def figure_bounds(
    order: Iterable[Instruction], costs: TpuCosts, tracker: AsyncTracker
) -> dict[str, Bounds]:
    """The figures of `Statistics.to_json` but the peak, for costs that print the same.

    Complexity: linear in instructions, quadratic in pairs in flight.
    """
    walk = _Walk()
    for instruction in order:
        walk.work(_behind(costs.node_cycles.get(instruction.name), _LEAST))
        if tracker.is_supported_start(instruction):
            walk.start(instruction)
        elif tracker.is_supported_done(instruction):
            start = instruction.operands[0]
            if tracker.is_supported_start(start):
                latency = _behind(costs.latency_cycles.get(start.name), _ZERO)
                walk.done(start, latency)
    found = {"total wasted cycles": walk.total_wasted()}
    found |= {f"wasted cycles for {k}": pair for k, pair in walk.wasted.items()}
    return found | {"total cycles": walk.now}


def _behind(printed: float | None, absent: Bounds) -> Bounds:
    """What a number of the log can have been."""
    if printed is None:
        return absent
    half = half_unit(printed)
    return printed - half, printed + half


@dataclass(slots=True)
class _Walk:
    """The statistic's walk along an order, with bounds instead of numbers.

    Attributes:
        now: the time.
        begun: when each start in flight began, a whole number.
        passed: since then, by start in flight.
        between: how much later one start began than another, by (later, earlier).
        wasted: by kind.
    """

    now: Bounds = _ZERO
    begun: dict[Instruction, Bounds] = field(default_factory=dict)
    passed: dict[Instruction, Bounds] = field(default_factory=dict)
    between: dict[tuple[Instruction, Instruction], Bounds] = field(default_factory=dict)
    wasted: dict[str, Bounds] = field(
        default_factory=lambda: dict.fromkeys(WASTE_KINDS.values(), _ZERO)
    )

    def work(self, cost: Bounds) -> None:
        self.now = _sum(self.now, cost)
        for start, passed in self.passed.items():
            self.passed[start] = _sum(passed, cost)

    def start(self, start: Instruction) -> None:
        low, high = self.now
        whole = math.floor(low), math.floor(high)
        # Where the whole number is known, so is what is cut off.
        cut = (low - whole[0], high - whole[0]) if whole[0] == whole[1] else (0.0, 1.0)
        for other, (least, most) in self.passed.items():
            self.between[start, other] = least - cut[1], most - cut[0]
        self.begun[start], self.passed[start] = whole, cut

    def done(self, start: Instruction, latency: Bounds) -> None:
        begun, passed = self.begun.pop(start), self.passed.pop(start)
        gap = max(0.0, latency[0] - passed[1]), max(0.0, latency[1] - passed[0])
        # It is over at the later of now and the end of its latency.
        self.now = _later(self.now, _sum(begun, latency))
        for other, since in self.passed.items():
            if (found := self.between.get((start, other))) is not None:
                later = found
            else:
                least, most = self.between[other, start]
                later = -most, -least
            self.passed[other] = _later(since, _sum(later, latency))
        kind = WASTE_KINDS.get(work_of(start))
        if kind is not None:
            self.wasted[kind] = _sum(self.wasted[kind], gap)

    def total_wasted(self) -> Bounds:
        total = _ZERO
        for pair in self.wasted.values():
            total = _sum(total, pair)
        return total


def _sum(one: Bounds, other: Bounds) -> Bounds:
    return one[0] + other[0], one[1] + other[1]


def _later(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), max(one[1], other[1])
