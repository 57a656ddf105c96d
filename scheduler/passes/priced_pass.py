"""What the passes share that decide by price: options, refusals, the trials' schedule.

PricedPass          asks whether a trial of the module would say anything, then rewrites
PricedRewrite       does so unless `always` is set
BoundedRewrite      also knows a limit of memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice.trials import MOST_INSTRUCTIONS
from hlo_passes.scheduler.estimators.choice import require_priced
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.xla_gpu import XlaGpu


@dataclass(frozen=True, slots=True)
class PricedPass(Pass):
    """A pass that schedules and simulates copies of a module before it changes it.

    Attributes:
        min_gain: least share of the step that a change must save.
        most_instructions: the most instructions that all trials together may schedule,
            each counted as large as the module is before it.
        parallel_collective_overlap_limit: the most collectives in flight in the trials.
        disable_async_collectives: kinds that run synchronously in the trials, as in
            `async-collective-annotator`.
        left: how the remark begins that says why a module is left as it is.
    """

    left: ClassVar[str] = "nothing changed"

    min_gain: float = 0.001
    most_instructions: int = MOST_INSTRUCTIONS
    parallel_collective_overlap_limit: int = 1
    disable_async_collectives: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        if self.most_instructions < 0:
            raise ValueError("most-instructions must be 0 or more")
        if not 0.0 <= self.min_gain < 1.0:
            raise ValueError("min-gain must be a share of the step, as in 0.001")
        self.schedule.passes()

    @property
    def asks(self) -> bool:
        """Whether prices decide."""
        return True

    @property
    def schedule(self) -> GpuSchedule:
        """The passes that schedule a trial."""
        return GpuSchedule(handed_on=self._handed_on)

    @property
    def follow(self) -> XlaGpu:
        """What XLA does by default with a module, its scheduler included."""
        return XlaGpu(handed_on=self._handed_on)

    @property
    def _handed_on(self) -> tuple[tuple[str, str], ...]:
        given = {
            "parallel-collective-overlap-limit": str(
                self.parallel_collective_overlap_limit
            ),
            "disable-async-collectives": " ".join(self.disable_async_collectives),
        }
        return tuple((name, text) for name, text in given.items() if text)

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Rewrite what pays.

        Raises WrongStateError S017, S018 for a module that no GPU can run, if prices
        decide.
        """
        if self.asks:
            reason = reason_to_leave(module, context.pricing)
            if reason:
                report.remark(f"{self.left}: {reason}")
                return False
        version = module.version
        self.rewrite(module, context, report)
        return module.version != version

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Rewrite what pays in a module of which trials say something."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PricedRewrite(PricedPass):
    """A pass that can also rewrite without asking.

    Attributes:
        always: rewrite whatever is possible, without asking for a price.
        after_xla: also leave alone what makes the step longer after XLA's own passes
            (`xla-gpu`).
    """

    always: bool = False
    after_xla: bool = True

    @property
    def asks(self) -> bool:
        """Whether prices decide."""
        return not self.always


@dataclass(frozen=True, slots=True)
class BoundedRewrite(PricedRewrite):
    """A pass that also leaves alone what needs too much memory.

    Attributes:
        always: rewrite whatever is possible, without a price or a limit.
        memory_limit_bytes: the most memory that the step may need; 0: XLA's share of
            the device.
    """

    memory_limit_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        if self.memory_limit_bytes < 0:
            raise ValueError("memory-limit-bytes must be 0 or more")
        PricedRewrite.__post_init__(self)


def reason_to_leave(module: Module, on: Pricing) -> str:
    """Why a trial of a module would say nothing; '' if it would say something.

    Raises WrongStateError S017, S018 for a module that no GPU can run.
    """
    require_priced(module, on)
    if module.is_scheduled:
        return "the module is scheduled"
    if on.costs or on.profile:
        return "costs by name do not know what would be new"
    return ""
