"""Looks for an order with a shorter step, and never leaves one with a longer step.

%f = fusion(%p)                    %s = all-gather-start(%q)
%s = all-gather-start(%q)          %f = fusion(%p)
%d = all-gather-done(%s)           %d = all-gather-done(%s)
ROOT %r = add(%d, %f)              ROOT %r = add(%d, %f)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_passes.errors import TooDeepError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.scheduler.estimators.choice import estimator_for, require_priced
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.estimators.table_gaps import require_table_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.improver.offers import offers
from hlo_passes.scheduler.improver.prove import prove_module
from hlo_passes.scheduler.improver.report import fill_report
from hlo_passes.scheduler.improver.search import Effort
from hlo_passes.scheduler.improver.solvers import Limits, require
from hlo_passes.scheduler.improver.whole_module import (
    Conditions,
    ModuleImprovement,
    improve_module,
)
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.memory_limit import scheduler_memory_limit_bytes
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.whole_numbers import whole_number

_GIVEN = "given"
_LIMIT = "limit"
_SETTINGS = tuple(f.name for f in dataclasses.fields(SchedulerSettings))


@dataclass(frozen=True, slots=True)
class ScheduleImprover(Pass):
    """Search for an order with a shorter simulated step; XLA has no such pass.

    The pass runs after `latency-hiding-scheduler`, or after XLA itself, and uses XLA's
    costs, overlap limits and memory peak. It tries moves that keep every dependence. It
    takes a move if the step gets shorter. If the step gets only slightly longer, chance
    decides. The budget is a number of moves, so the same module, options and seed give
    the same bytes.

    The pass keeps the given order, with a remark, unless four conditions hold: the step
    that `simulate` reports gets shorter by `min-gain`; XLA's statistic does not say
    that any computation gets longer; the memory peak is within the cap; and
    `schedule-checker` finds nothing new.

    Ensures: dependences, control edges and overlap limits hold, scheduling groups stay
        in one piece, and there is one order of collectives. Only the order changes.

    Attributes:
        estimator: as in `latency-hiding-scheduler`, like the next seven options.
        costs: file of costs by name.
        profile: file of measured costs.
        target: description of the GPU.
        hosts: number of hosts.
        gpus_per_host: number of GPUs of one host.
        topology: for experts.
        latency_options: options of the analytical model, key=value,...
        xla: the release of XLA to follow; none: the release that the run follows.
        parallel_collective_overlap_limit: the most collectives in flight.
        parallel_async_compute_limit: the most asynchronous computations and copies in
            flight.
        enable_collective_multi_streaming: collectives in flight together may share at
            most one rank.
        memory_cap: the most memory that the new order may need. `given`: the peak of
            the given order; `limit`: that peak or XLA's own limit, whichever is more;
            or a number of bytes.
        effort: factor on the number of moves in a round; 0: only report.
        rounds: rounds of the search, after its starting orders. Computations below
            1,000 movable instructions get three times as many. The search ends after
            four rounds that bring nothing.
        seed: seed of the random moves.
        seconds: end the search after this time; the result is then not reproducible.
        min_gain: least share of the step that a new order must save; below it, the
            given order stays.
        refuse_regressions: no operation may be exposed longer than before.
        keep: names of computations to leave alone.
        prove: seconds for proofs that no order is faster, shared by all computations.
            The pass asks a solver where the bound is below the step. No order changes.
        prove_nodes: search nodes for each computation, instead of seconds or together
            with them; another run then says the same.
        prove_with: the solver: `highs` (scipy), for pairs with an overlap limit of 1,
            or `cp-sat` (OR-Tools), for all limits and streams.
        offer_limits: report what these overlap limits would bring, as in `2 4`; the
            pass does not apply them.
    """

    name: ClassVar[str] = "schedule-improver"
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
    xla: str = ""
    parallel_collective_overlap_limit: int = 1
    parallel_async_compute_limit: int = 2
    enable_collective_multi_streaming: bool = False
    memory_cap: str = _GIVEN
    effort: float = 1.0
    rounds: int = 6
    seed: int = 0
    seconds: float | None = None
    min_gain: float = 0.001
    refuse_regressions: bool = False
    keep: tuple[str, ...] = ()
    prove: float | None = None
    prove_nodes: int | None = None
    prove_with: Literal["highs", "cp-sat"] = "highs"
    offer_limits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values out of range (U013), and files that nothing reads (U219)."""
        self._scheduler()
        if (
            self.memory_cap not in (_GIVEN, _LIMIT)
            and whole_number(self.memory_cap) is None
        ):
            raise ValueError("memory-cap must be given, limit or a number of bytes")
        for name, number in (
            ("effort", self.effort),
            ("rounds", self.rounds),
            ("seed", self.seed),
            ("seconds", self.seconds or 0.0),
            ("prove", self.prove or 0.0),
            ("prove-nodes", self.prove_nodes or 0),
        ):
            if not 0 <= number < math.inf:
                raise ValueError(f"{name} must be 0 or more")
        if not 0.0 <= self.min_gain < 1.0:
            raise ValueError("min-gain must be a share of the step, as in 0.001")
        if not all(whole_number(limit) for limit in self.offer_limits):
            raise ValueError("offer-limits must be numbers from 1 on, as in '2 4'")

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Improve the module.

        Raises:
            WrongStateError: S017, S018 for one that no GPU can run, S019 for costs of
                another one.
            TooDeepError: S016 for calls that are nested deeper than it follows.
            UsageError: U229 for a proof without the package of its solver.
        """
        if self._limits is not None:
            require(self.prove_with)  # before the search, not after it
        on = self._scheduler().pricing(context)
        require_priced(module, on)
        if not module.is_scheduled:
            report.remark("kept: all orders: the module has no schedule")
            return False
        conditions = self.conditions(module, context)
        for gap in require_table_of(module, on):
            report.remark(gap)
        orders = [c.instructions for c in module.computations]
        with garbage_collection_paused():
            try:
                result = improve_module(module, conditions, progress=context.progress)
                fill_report(report, result, context.explain)
                self._say_more(module, conditions, result, context, report)
            except RecursionError as problem:
                raise TooDeepError("the simulation") from problem
        return orders != [c.instructions for c in module.computations]

    def options_of_checks(
        self, module: Module, context: PassContext
    ) -> dict[str, object]:
        """Its own options; with costs of a TPU the settings of the chip."""
        own = Pass.options_of_checks(self, module, context)
        scheduler = self._scheduler().options_of_checks(module, context)
        return own | {name: scheduler[name] for name in _SETTINGS}

    def conditions(self, module: Module, context: PassContext) -> Conditions:
        """Under which a scheduled module is improved."""
        scheduler = self._scheduler()
        on = scheduler.pricing(context)
        # Price as `simulate` does: its step is what must become shorter.
        found = reported(module, on)
        prices, machine = estimator_for(module, found.on)
        settings = scheduler.settings(module, context)
        return Conditions(
            topology=machine,
            prices=prices,
            xla_prices=scheduler.make_estimator(module, context),
            settings=settings,
            rules=Rules(release=found.release),
            cap_bytes=self._cap(module, on.target, settings),
            effort=Effort(self.effort, self.rounds, self.seed, self.refuse_regressions),
            min_gain=self.min_gain,
            seconds=self.seconds,
            keep=frozenset(self.keep),
            why_kept=scheduler.why_unsearched(context),
        )

    @property
    def _limits(self) -> Limits | None:
        """Of the proofs; None for none."""
        if self.prove is None and self.prove_nodes is None:
            return None
        return Limits(self.prove, self.prove_nodes, self.prove_with)

    def _say_more(
        self,
        module: Module,
        conditions: Conditions,
        result: ModuleImprovement,
        context: PassContext,
        report: Report,
    ) -> None:
        """Report what is proven about the orders, and what other limits would bring."""
        found = report.details["improvement"]
        if self._limits is not None:
            proofs = prove_module(
                module, conditions, self._limits, progress=context.progress
            )
            found["proofs"] = {p.computation: p.to_json() for p in proofs}
            for proof in proofs:
                report.remark(proof.text(self._limits))
        if self.offer_limits:
            limits = [int(limit) for limit in self.offer_limits]
            present = conditions.settings.parallel_collective_overlap_limit
            found["offers"] = []
            for offer in offers(
                module, conditions, result, limits, progress=context.progress
            ):
                found["offers"].append(dataclasses.asdict(offer))
                report.remark(offer.text(result, present))

    def _scheduler(self) -> LatencyHidingScheduler:
        """The scheduler whose prices, limits and release are used."""
        return LatencyHidingScheduler(
            estimator=self.estimator,
            costs=self.costs,
            profile=self.profile,
            target=self.target,
            hosts=self.hosts,
            gpus_per_host=self.gpus_per_host,
            topology=self.topology,
            latency_options=self.latency_options,
            xla=self.xla,
            parallel_collective_overlap_limit=self.parallel_collective_overlap_limit,
            parallel_async_compute_limit=self.parallel_async_compute_limit,
            enable_collective_multi_streaming=self.enable_collective_multi_streaming,
        )

    def _cap(
        self, module: Module, target_name: str, settings: SchedulerSettings
    ) -> Callable[[int], int]:
        """From the peak of the orders given, the most that may be live."""
        if self.memory_cap == _GIVEN:
            return lambda peak: peak
        if self.memory_cap == _LIMIT:
            limit = settings.memory_limit_bytes
            if settings.flavour != "tpu" or limit is None:
                memory_bytes = target(target_name).memory_bytes
                limit = scheduler_memory_limit_bytes(module, memory_bytes)
            return lambda peak: max(peak, limit)
        return lambda _: int(self.memory_cap)
