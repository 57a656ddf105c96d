"""Prices levers that change the order alone: our scheduler on XLA's module.

    before = the module that XLA's scheduler received
    price_order(before, Combination.of({"overlap limit": "2"}), on, rules)

Our scheduler decides as XLA's does, so one compilation serves for all such levers. What
XLA does to the order afterwards follows: synchronous form for pairs that hide nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.passes.streams import assign_streams
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome, Source
from hlo_passes.text.reader import parse

_SCHEDULER: Final = "latency-hiding-scheduler"
#: What XLA runs after its scheduler that changes the order or its prices.
_AFTER: Final = "gpu-convert-async-collectives-to-sync"
_COPY: Final = "copy"
_FUSION: Final = "fusion"


@dataclass(frozen=True, slots=True)
class BeforeScheduling:
    """A module as XLA's scheduler received it, and how to price it.

    Attributes:
        text: of the module, in the order that the scheduler starts from.
        elided: names of copies that XLA leaves out after scheduling.
        rewritten: fusions that XLA makes another kind of kernel of after scheduling, by
            name: kind and backend config.
        on: the machine and the source of costs; it names the release.
        rules: of the simulation.
    """

    text: str
    elided: frozenset[str]
    on: Pricing
    rules: Rules
    rewritten: tuple[tuple[str, str, str], ...] = ()

    def price(self, chosen: Combination) -> Outcome:
        """The step with the schedule levers of a combination."""
        try:
            module = self.scheduled(chosen)
            # A search compares steps alone, of very many orders.
            return simulated(
                module, chosen, self.on, self.rules, source="own", with_range=False
            )
        except HloError as problem:
            first = problem.message.splitlines()[0]
            return Outcome.failed(first, source="own")

    def scheduled(self, chosen: Combination) -> Module:
        """The module in the order of our scheduler. Raises HloError as passes do."""
        module = parse(self.text, filename="<before XLA's scheduler>")
        # XLA's scheduler has no formulas but its own.
        context = PassContext(replace(self.on, extended=False))
        Pipeline.parse(schedule_pipeline(chosen), context).run(module)
        for computation in scheduled_computations(module):
            _elide(computation, self.elided)
            self._rewrite(computation)
        return module

    def _rewrite(self, computation: Computation) -> None:
        for name, kind, config in self.rewritten:
            fusion = computation.find(name)
            if fusion is not None:
                fusion.set_attribute("kind", kind)
                fusion.set_attribute("backend_config", config or None)


def _elide(computation: Computation, elided: frozenset[str]) -> None:
    """Leave copies out, as XLA does where two values may share a buffer."""
    for copy in [i for i in computation.instructions if i.name in elided]:
        computation.replace(copy, copy.operands[0])


def elided_copies(before: Module, after: Module) -> frozenset[str]:
    """Copies that XLA left out between its scheduler and the end of its HLO passes.

    One that came back under another name was not left out. Where XLA schedules
    otherwise it may leave out others; a copy within the GPU is short.
    """
    elided: set[str] = set()
    for computation in scheduled_computations(before):
        later = after.computation(computation.name)
        if later is None:
            continue
        names = {i.name for i in computation.instructions}
        kept = {i.name for i in later.instructions}
        back = Counter(
            i.shape.text
            for i in later.instructions
            if i.opcode == _COPY and i.name not in names
        )
        for instruction in computation.instructions:
            if instruction.opcode != _COPY or instruction.name in kept:
                continue
            if back[instruction.shape.text]:
                back[instruction.shape.text] -= 1
            else:
                elided.add(instruction.name)
    return frozenset(elided)


def rewritten_fusions(
    before: Module, after: Module
) -> tuple[tuple[str, str, str], ...]:
    """Fusions whose kind XLA changed after its scheduler, as they are then.

    XLA 0.10.2 makes custom kernels of slices that move as they are.
    """
    found = []
    for computation in scheduled_computations(before):
        later = after.computation(computation.name)
        if later is None:
            continue
        for fusion in computation.instructions:
            now = later.find(fusion.name) if fusion.opcode == _FUSION else None
            if now is None or now.opcode != _FUSION:
                continue
            kind = now.attributes.get("kind", "")
            if kind != fusion.attributes.get("kind", ""):
                config = now.attributes.get("backend_config", "")
                found.append((fusion.name, kind, config))
    return tuple(found)


def schedule_pipeline(chosen: Combination) -> str:
    """Our scheduler with the options of a combination, and what XLA runs after it."""
    return f"{with_options(_SCHEDULER, chosen.part('schedule'))},{_AFTER}"


def with_options(passes: str, chosen: Combination) -> str:
    """A pipeline of ours with the options of a combination."""
    options = ",".join(
        f"{option}={text}"
        for name, setting in chosen.settings
        for option, text in LEVERS[name].candidate(setting).options
    )
    return f"{passes}{{{options}}}" if options else passes


def _streams(chosen: Combination) -> int | None:
    """The communication streams that a combination asks for; None for XLA's own."""
    return next(filter(None, (LEVERS[name].streams for name in chosen.levers)), None)


def rules_for(chosen: Combination, rules: Rules) -> Rules:
    """The rules of a simulation, with the streams that a combination asks for."""
    given = _streams(chosen)
    if rules.streams is None and given is not None:
        return replace(rules, streams=given)
    return rules


def _cyclic_wait(module: Module, chosen: Combination, on: Pricing) -> str:
    """Which collectives of a scheduled module could wait for each other in a cycle.

    XLA's runtime takes the streams in turn and relies on the schedule.
    """
    given = _streams(chosen)
    if given is None:
        return ""
    release = reported(module, on).release
    assigned = assign_streams(module, communication_streams=given, release=release)
    if not assigned.moved:
        return ""
    first = assigned.moved[0]
    return (
        f"%{first.start.name} and %{first.beside.name} would be in flight on two "
        "streams, where they could wait for each other in a cycle"
    )


def simulated(
    module: Module,
    chosen: Combination,
    on: Pricing,
    rules: Rules,
    *,
    source: Source = "xla",
    digest: str = "",
    with_range: bool = True,
) -> Outcome:
    """The step of a scheduled module, with the streams that a combination asks for.

    Args:
        module: scheduled.
        chosen: what made it.
        on: the machine and the source of costs.
        rules: of the simulation.
        source: who made the order.
        digest: of the module's text.
        with_range: in all settings of the range, too.
    """
    if problem := _cyclic_wait(module, chosen, on):
        return replace(Outcome.failed(problem, source), module=digest)
    rules = rules_for(chosen, rules)
    timeline = simulate_on(module, on, rules, with_range=with_range)
    return Outcome.of(timeline, source=source, module=digest)
