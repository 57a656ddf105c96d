"""Our scheduler beside XLA:TPU's, on a module and costs of the user's own compilation.

    compared = compare_schedules(before, after, costs, log)
    compared.orders_equal, compared.computations        3, 3

Figures are those of the compiler's statistic: cycles, and microseconds by its clock.
They are estimates of the compiler, and nobody has measured them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo_passes.ir.module import Module
from hlo_passes.plurals import counted
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.latency_hiding.driver import (
    computations_to_schedule,
    schedule_module,
)
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.statistics import Statistics
from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.log import SchedulerLog
from hlo_passes.scheduler.tpu.settings import tpu_settings
from hlo_passes.scheduler.tpu.unpriced import why_unpriced

TOTAL = "total cycles"
WASTED = "total wasted cycles"
_US_PER_MS = 1000.0

#: (total, wasted) cycles of one computation.
Figures = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ComputationFigures:
    """One computation, as the compiler's log and as our statistic has it.

    Attributes:
        name: of the computation.
        is_same_order: whether our order is the compiler's.
        xla: (total, wasted) cycles before, and after.
        ours: the same of our statistic.
    """

    name: str
    is_same_order: bool
    xla: tuple[Figures, Figures]
    ours: tuple[Figures, Figures]

    def to_json(self) -> dict[str, Any]:
        """Keys by whose statistic, and before or after."""
        view: dict[str, Any] = {"name": self.name, "same_order": self.is_same_order}
        for whose, pairs in (("xla", self.xla), ("ours", self.ours)):
            for phase, (total, wasted) in zip(("before", "after"), pairs, strict=True):
                view[f"{whose}_{phase}"] = {
                    "total_cycles": total,
                    "wasted_cycles": wasted,
                }
        return view


@dataclass(frozen=True, slots=True)
class Compared:
    """All computations that both schedulers looked at.

    Attributes:
        mhz: TensorCore clock.
        rows: by computation, the largest total first.
    """

    mhz: float
    rows: tuple[ComputationFigures, ...]

    @property
    def orders_equal(self) -> int:
        """Computations whose order is the compiler's."""
        return sum(row.is_same_order for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Keys for a command's JSON."""
        return {
            "orders_equal": self.orders_equal,
            "computations": [row.to_json() for row in self.rows],
        }

    def to_text(self) -> str:
        """A table, and what its figures are."""
        lines = [
            f"our scheduler gives {self.orders_equal} of "
            f"{counted(len(self.rows), 'computation')} "
            "the compiler's order",
            f"{'':34}{'before':>24}{'after':>24}",
            f"{'compiler statistic, ms':34}" + f"{'total':>12}{'exposed':>12}" * 2,
        ]
        for row in self.rows:
            figures = "".join(
                f"{cycles / self.mhz / _US_PER_MS:12.3f}"
                for pair in row.xla
                for cycles in pair
            )
            lines.append(f"%{row.name[:32]:33}{figures}")
            if row.ours != row.xla and not _are_close(row.ours, row.xla):
                figures = "".join(
                    f"{cycles / self.mhz / _US_PER_MS:12.3f}"
                    for pair in row.ours
                    for cycles in pair
                )
                lines.append(f"{'  ours':34}{figures}")
        lines.append(
            f"cycles of the compiler's scheduler at {self.mhz:g} MHz; a loop counts "
            "as its node"
        )
        return "".join(f"{line}\n" for line in lines)


def _are_close(one: Any, other: Any) -> bool:
    """Whether figures are the same within the log's six digits."""
    return all(
        abs(a - b) <= 1e-5 * max(abs(a), abs(b), 1.0)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def compare_schedules(
    before: Module, after: Module, costs: TpuCosts, log: SchedulerLog
) -> Compared:
    """Schedule a module as XLA:TPU does, and compare.

    Args:
        before: what the compiler's scheduler got; it is scheduled in place.
        after: what it made of it.
        costs: of the compilation.
        log: of the compilation.
    """
    settings = tpu_settings(
        costs.chip,
        costs.flags,
        costs.slices,
        memory_limit_bytes=costs.memory_limit_bytes,
    )
    estimator = EstimatorStack((costs.in_cycles(),))
    result = schedule_module(before, estimator, settings)
    rows = []
    for own in result.computations:
        name = own.computation.name
        other = after.computation(name)
        if other is None or name not in log.statistics["after"]:
            continue
        rows.append(
            ComputationFigures(
                name,
                [i.name for i in own.order] == [i.name for i in other.instructions],
                (
                    _logged(log.statistics["before"].get(name, {})),
                    _logged(log.statistics["after"][name]),
                ),
                (_counted(own.before), _counted(own.after)),
            )
        )
    rows.sort(key=lambda row: -row.xla[1][0])
    return Compared(costs.mhz, tuple(rows))


def figures_of(module: Module, costs: TpuCosts) -> dict[str, Figures]:
    """Our statistic of the order that each computation has; the module is reordered.

    Computations with work that the costs lack have none.
    """
    settings = tpu_settings(
        costs.chip,
        costs.flags,
        costs.slices,
        memory_limit_bytes=costs.memory_limit_bytes,
    )
    result = schedule_module(
        module,
        EstimatorStack((costs.in_cycles(),)),
        settings,
        why_left=lambda each: why_unpriced(each, costs),
    )
    rows = result.computations
    return {each.computation.name: _counted(each.before) for each in rows}


def without_figures(module: Module, costs: TpuCosts) -> dict[str, str]:
    """By computation, why it has no statistic of ours: work that the costs lack."""
    tracker = make_tracker(tpu_settings(costs.chip, costs.flags, costs.slices))
    found = computations_to_schedule(module, tracker)
    return {each.name: why for each in found if (why := why_unpriced(each, costs))}


def logged_figures(log: SchedulerLog, phase: str) -> dict[str, Figures]:
    """XLA:TPU's statistic 'before' or 'after' its scheduler, by computation."""
    return {name: _logged(found) for name, found in log.statistics[phase].items()}


def _logged(figures: Any) -> Figures:
    return figures.get(TOTAL, 0.0), figures.get(WASTED, 0.0)


def _counted(own: Statistics) -> Figures:
    return own.total_us, own.total_wasted_us
