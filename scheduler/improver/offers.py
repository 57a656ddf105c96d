"""What other overlap limits would bring: searched and verified, never applied.

    with parallel-collective-overlap-limit=2: 56,480 us, 0.830 of the order given
                                                         (0.918 with limit 1)

A limit of 1 is a setting of XLA, not of the machine: with a greater one several
collectives may wait in the queue of one stream. Whether a job may run so is for its
owner to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlo_passes.ir.module import Module
from hlo_passes.scheduler.improver.whole_module import (
    Conditions,
    ModuleImprovement,
    improve_module,
)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a limit would bring.

    Attributes:
        limit: collectives in flight.
        us: the step.
        peak_bytes: the most that is live.
        kept: why nothing is gained, '' if something is.
    """

    limit: int
    us: float
    peak_bytes: int
    kept: str

    def text(self, result: ModuleImprovement, present: int) -> str:
        """One line for a user.

        Args:
            result: of the run with the limit that holds.
            present: that limit.
        """
        head = f"with parallel-collective-overlap-limit={self.limit}: "
        if self.kept:
            return f"{head}no order is better by enough: {self.kept}"
        return (
            f"{head}{self.us:.6g} us, {self.us / result.before_us:.3f} of the order "
            f"given ({result.after_us / result.before_us:.3f} with limit {present}), "
            f"{self.peak_bytes:,} bytes at the peak; simulator, memory and schedule "
            "checker agree. It is not applied"
        )


def offers(
    module: Module,
    conditions: Conditions,
    result: ModuleImprovement,
    limits: Sequence[int],
    *,
    progress: Callable[[str], None] | None = None,
) -> list[Offer]:
    """Search under other limits from the orders that a module has; all stay.

    Args:
        module: with its final orders.
        conditions: of its search.
        result: of that search.
        limits: to be tried; those that do not exceed the present one are left out.
        progress: receives a status line for each computation.
    """
    present = conditions.settings.parallel_collective_overlap_limit
    orders = {c: c.instructions for c in module.computations}
    found = []
    for limit in sorted({limit for limit in limits if limit > present}):
        settings = replace(conditions.settings, parallel_collective_overlap_limit=limit)
        # The memory that the first search could use, though its result needs less.
        changed = replace(
            conditions, settings=settings, cap_bytes=lambda _: result.cap_bytes
        )
        try:
            other = improve_module(module, changed, progress=progress)
        finally:
            for computation, order in orders.items():
                if computation.instructions != order:
                    computation.set_order(order)
        found.append(Offer(limit, other.after_us, other.peak_after_bytes, other.kept))
    return found
