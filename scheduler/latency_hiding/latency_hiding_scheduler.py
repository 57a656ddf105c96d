"""Puts instructions in the order that XLA's latency-hiding scheduler gives them.

%s = all-gather-start(%p)          %s = all-gather-start(%p)
%d = all-gather-done(%s)           %f = fusion(%q)
%f = fusion(%q)                    %d = all-gather-done(%s)
ROOT %r = add(%d, %f)              ROOT %r = add(%d, %f)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.module_state import how_to_price_tpus
from hlo_passes.errors import UsageError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import (
    estimator_for,
    estimator_names,
    priced_by,
    require_priced,
)
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.estimators.table_gaps import require_table_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.explain import why_left_alone
from hlo_passes.scheduler.latency_hiding.report import fill_report
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.rule_list import parse_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.base_order import base_order
from hlo_passes.scheduler.memory.memory_limit import (
    DEFAULT_SLOP_PERCENT,
    scheduler_memory_limit_bytes,
)
from hlo_passes.scheduler.memory.tpu_sizes import tpu_memory_limit_bytes
from hlo_passes.scheduler.tpu.chips import chip
from hlo_passes.scheduler.tpu.costs import TpuCosts, require_tpu_costs, tpu_costs
from hlo_passes.scheduler.tpu.costs_of_module import require_costs_of
from hlo_passes.scheduler.tpu.settings import require_settings, tpu_settings
from hlo_passes.scheduler.tpu.unpriced import why_unpriced, why_unsearched

_OF_GPU: Final = SchedulerSettings()
_SETTINGS: Final = tuple(f.name for f in dataclasses.fields(SchedulerSettings))


@dataclass(frozen=True, slots=True)
class LatencyHidingScheduler(Pass, SchedulerSettings):
    """Place starts early and dones late, as XLA's scheduler does, decision by decision.

    If a module is not scheduled, `latency-hiding-scheduler` first gives it XLA's
    memory-minimizing order, and marks it with is_scheduled=true. It changes nothing but
    the order.

    With the costs of a TPU compilation (docs/tpu.md), `latency-hiding-scheduler` works
    as XLA:TPU's scheduler, and counts in cycles. It then uses the chip's settings,
    changed by the compiler's flags and by all options that differ from the GPU's
    defaults. A computation keeps its order if the costs lack some of its work.

    Ensures: dependences, control edges and overlap limits hold, and there is one order
        of collectives.
    Source: openxla/xla `xla/service/latency_hiding_scheduler.cc` (Aug 2026).

    Attributes:
        estimator: approximate, gpu-approximate, sol, ring, profile, table; or several
            joined by '+'. None: table if costs are given, profile if a profile is
            given, else the pipeline's estimator, else sol, as in XLA. It is an error to
            give costs or a profile that none of them reads.
        costs: file of costs by name; none: the pipeline's. Instructions that the file
            leaves out cost 0, but sends and recvs that it leaves out have XLA's coarse
            latency.
        profile: file of measured costs.
        target: description of the GPU; none: the pipeline's.
        hosts: number of hosts; none: the pipeline's, otherwise as many as the module's
            devices need.
        gpus_per_host: number of GPUs of one host; none: the pipeline's, otherwise as
            many as a host of the target has.
        topology: for experts: NVLink domains x hosts per domain x GPUs per host; none:
            the pipeline's.
        latency_options: options of the analytical model, key=value,...
        enable_approx_costly_collectives: in the gpu-approximate model, all-reduces
            above 30 MiB cost four times as much.
        memory_limit_bytes: limit of the memory rules; it is only advice. None: XLA's
            own limit, from the target's memory and memory-limit-slop-factor.
        memory_limit_slop_factor: the percentage of the free memory that is the limit if
            memory-limit-bytes is not given.
        device_memory_bytes: memory of the GPU; none: the target's.
        rules: the rules to use, or changes to XLA's list of rules (docs/scheduler.md).
        tpu_flags: flags of XLA:TPU, name=value,..., that change a chip's settings.
    """

    name: ClassVar[str] = "latency-hiding-scheduler"
    needs_collectives: ClassVar[bool] = True
    checked_by: ClassVar[tuple[str, ...]] = ("schedule-checker",)
    estimator: str = ""
    costs: str = ""
    profile: str = ""
    target: str = ""
    hosts: int | None = None
    gpus_per_host: int | None = None
    topology: str = ""
    latency_options: str = ""
    enable_approx_costly_collectives: bool = False
    memory_limit_slop_factor: int = DEFAULT_SLOP_PERCENT
    device_memory_bytes: int | None = None
    rules: str | tuple[Rule, ...] = ""
    tpu_flags: str = ""

    def __post_init__(self) -> None:
        """Refuse values out of range (U013), and files that nothing reads (U219)."""
        SchedulerSettings.__post_init__(self)
        estimator_names(self._own_costs())
        if self.memory_limit_slop_factor < 0:
            raise ValueError("memory-limit-slop-factor must be a percentage, 0 or more")
        if self.device_memory_bytes is not None and self.device_memory_bytes < 0:
            raise ValueError("device-memory-bytes must be a number of bytes, 0 or more")
        for name, number in (
            ("hosts", self.hosts),
            ("gpus-per-host", self.gpus_per_host),
        ):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be 1 or more")

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Schedule the module.

        Raises WrongStateError S017, S018 for one that no GPU can run, S019 for costs of
        another one.
        """
        costs = self._tpu_costs(context)
        on = self.pricing(context)
        require_priced(module, on, has_costs=costs is not None)
        if costs is not None:
            gaps = require_costs_of(module, costs, on.costs, on.target)
        else:
            gaps = require_table_of(module, on)
        for gap in gaps:
            report.remark(gap)
        rules = self.rules or ""
        if isinstance(rules, str):
            rules = parse_rules(rules)
        settings = self.settings(module, context)
        estimator = self.make_estimator(module, context)
        was_scheduled = module.is_scheduled
        orders = [c.instructions for c in module.computations]
        if not was_scheduled:
            release = settings.release
            for computation, order in base_order(
                module, release=release
            ).orders.items():
                computation.set_order(order)
            module.set_attribute("is_scheduled", "true")
        result = schedule_module(
            module,
            estimator,
            settings,
            rules=rules,
            explain=context.explain,
            progress=context.progress,
            why_left=self._why_left(context),
        )
        fill_report(report, result, unit=settings.time_unit)
        if context.explain and not result.explanation:
            scheduled = {each.computation for each in result.computations}
            left = [c for c in result.left if c.find(context.explain)]
            why = (
                f"%{left[0].name} keeps its order: {result.left[left[0]]}"
                if left
                else why_left_alone(module, context.explain, scheduled)
            )
            if why:
                report.explain(why)
        # A hard memory limit may have restored the input order.
        return not was_scheduled or orders != [
            c.instructions for c in module.computations
        ]

    def settings(self, module: Module, context: PassContext) -> SchedulerSettings:
        """The scheduler's settings for a module, with its memory limit."""
        costs = self._tpu_costs(context)
        if costs is not None:
            return self._settings_of_tpu(module, costs)
        values = self.by_name
        values["xla"] = context.release_for(module, self.xla).name
        if self.memory_limit_bytes is None:
            memory_bytes = self.device_memory_bytes
            if memory_bytes is None:
                memory_bytes = target(self.pricing(context).target).memory_bytes
            values["memory_limit_bytes"] = scheduler_memory_limit_bytes(
                module,
                memory_bytes,
                slop_percent=self.memory_limit_slop_factor,
            )
        return SchedulerSettings(**values)

    def _why_left(self, context: PassContext) -> Callable[[Computation], str]:
        """Why a computation keeps its order: costs of a TPU that lack its work."""
        costs = self._tpu_costs(context)
        return lambda each: "" if costs is None else why_unpriced(each, costs)

    def why_unsearched(self, context: PassContext) -> Callable[[Computation], str]:
        """The same for a search, which also counts what a computation runs."""
        costs = self._tpu_costs(context)
        return lambda each: "" if costs is None else why_unsearched(each, costs)

    def options_of_checks(
        self, module: Module, context: PassContext
    ) -> dict[str, object]:
        """Its own options; with costs of a TPU the settings of the chip."""
        own = Pass.options_of_checks(self, module, context)
        if self._tpu_costs(context) is None:
            return own
        return own | self.settings(module, context).by_name

    def _tpu_costs(self, context: PassContext) -> TpuCosts | None:
        """The costs, if they are of a TPU; UsageError U206 where they have to be."""
        on = self.pricing(context)
        path = on.costs if isinstance(on.estimator, str) else ""
        if self.flavour == "tpu":
            if not path:
                raise UsageError(
                    "flavour=tpu needs the costs of the compiler's scheduler",
                    code="U208",
                    hint=how_to_price_tpus(),
                )
            return require_tpu_costs(path)
        return tpu_costs(path) if path else None

    def _settings_of_tpu(self, module: Module, costs: TpuCosts) -> SchedulerSettings:
        """The chip's settings, with the compiler's flags and the options given."""
        name = self.chip or costs.chip
        changed = {
            option: getattr(self, option)
            for option in _SETTINGS
            if getattr(self, option) != getattr(_OF_GPU, option)
        }
        for option in ("flavour", "chip"):
            changed.pop(option, None)
        if self.memory_limit_bytes is None:
            part = chip(name)
            memory_bytes = self.device_memory_bytes
            known = costs.memory_limit_bytes
            if memory_bytes is not None or known is None:
                memory_bytes = memory_bytes or part.device_bytes
                known = tpu_memory_limit_bytes(module, name, memory_bytes)
            changed["memory_limit_bytes"] = known
        # What the compilation had stays; what somebody writes here shall do something.
        require_settings(self.tpu_flags)
        flags = ",".join(filter(None, (costs.flags, self.tpu_flags)))
        return tpu_settings(name, flags, costs.slices, **changed)

    def pricing(self, context: PassContext) -> Pricing:
        """What the pass prices on: its own options, else what the pipeline was given.

        The pipeline's costs are for the passes that do not name their estimator.
        """
        on = priced_by(context.pricing, self._own_costs())
        machine = {
            "topology": self.topology,
            "hosts": self.hosts,
            "gpus_per_host": self.gpus_per_host,
        }
        if not any(machine.values()):
            machine = {name: getattr(on, name) for name in machine}
        return dataclasses.replace(
            on,
            **machine,
            target=self.target or on.target,
            options=self.latency_options or on.options,
            xla=self.xla or on.xla,
        )

    def _own_costs(self) -> Pricing:
        return Pricing(estimator=self.estimator, costs=self.costs, profile=self.profile)

    def make_estimator(self, module: Module, context: PassContext) -> EstimatorStack:
        """The estimator that the options ask for; for a TPU it answers in cycles."""
        costs = self._tpu_costs(context)
        if costs is not None:
            return EstimatorStack((costs.in_cycles(),))
        estimator, _ = estimator_for(module, self.pricing(context))
        if not isinstance(estimator, EstimatorStack):
            estimator = EstimatorStack((estimator,))
        return as_scheduled_by_xla(
            estimator, costly_collectives=self.enable_approx_costly_collectives
        )


def as_scheduled_by_xla(
    stack: EstimatorStack, *, costly_collectives: bool = False
) -> EstimatorStack:
    """Estimators, with the adjustments of XLA's scheduler.

    Args:
        stack: of estimators.
        costly_collectives: XLA's `xla_gpu_enable_approx_costly_collectives`.
    """
    changed: list[Estimator] = []
    for part in stack.estimators:
        if isinstance(part, GpuApproximateEstimator) and costly_collectives:
            part = dataclasses.replace(part, costly_collectives=True)
        elif isinstance(part, TableEstimator):
            part = dataclasses.replace(part, transfers_as_xla=True)
        changed.append(part)
    return EstimatorStack(tuple(changed))
