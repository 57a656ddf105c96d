"""Makes three schedules of a module, and takes the one that needs the least memory.

Before:  HloModule m                         no schedule, any valid order
After:   HloModule m, is_scheduled=true      every computation in the order that XLA's
                                             GPU back end starts latency hiding from
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_passes.analysis.module_state import require_priceable
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.scheduler.memory.base_order import base_order


@dataclass(frozen=True, slots=True)
class HloMemoryScheduler(Pass):
    """Order every computation so that the module needs little memory.

    ```
    Before:  %a = f32[4096] broadcast(%p)   After:   %a = f32[4096] broadcast(%p)
             %b = f32[4096] broadcast(%q)            %x = f32[] reduce(%a, %zero)
             %x = f32[] reduce(%a, %zero)            %b = f32[4096] broadcast(%q)
             %y = f32[] reduce(%b, %zero)            %y = f32[] reduce(%b, %zero)
    ```

    The pass makes three orders: a greedy one that frees the most bytes at each step, a
    depth-first one that visits widely used operands first, and the plain post order. In
    each order, it puts pairs marked synchronous together, moves other starts up, and
    moves dones down. Then it simulates each order as one program in which results take
    over the memory of dying operands. The order that needs the least memory wins. The
    pass replaces an existing schedule.

    If several choices are equal, XLA's greedy order follows lists that it holds in
    memory and that no text shows. Here, the order of the text decides, and the number
    decides among parameters. The other two orders have no equal choices.

    Attributes:
        scheduler: `best` of all three, or the name of one.
        keep_schedule: leave a module alone if it has a schedule.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "hlo-memory-scheduler"

    scheduler: Literal["best", "list", "dfs", "post-order"] = "best"
    keep_schedule: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Order everything that the entry reaches, except fusion bodies.

        Raises WrongStateError S017 for a module that is not partitioned yet.
        """
        require_priceable(module, has_costs=True)
        if self.keep_schedule and module.is_scheduled:
            report.remark("not ordered: the module is scheduled already")
            return False
        chosen = "" if self.scheduler == "best" else self.scheduler
        found = base_order(
            module,
            scheduler=chosen,
            progress=context.progress,
            release=context.release_for(module, self.xla),
        )
        changed = not module.is_scheduled
        for computation, order in found.orders.items():
            if list(computation.instructions) != order:
                computation.set_order(order)
                report.count("computations-reordered")
                changed = True
        module.set_attribute("is_scheduled", "true")
        report.details["memory-scheduler"] = {
            "scheduler": found.scheduler,
            "minimum_bytes": found.minimum_bytes,
            "considered_bytes": found.considered_bytes,
        }
        return changed
