"""Tries levers on a module without XLA: those that our own passes have.

    evaluator = OwnPassesEvaluator.of(module, on, rules)
    for chosen, outcome in evaluator.compiled([Combination()]): ...

A module that is partitioned goes through `xla-gpu`, one that is fused or scheduled
through `gpu-schedule`; a scheduled one is compared with the order that it has.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.module_state import module_state
from hlo_passes.errors import HloError
from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.sequence import PassSequence, all_options
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import require_priced
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.lever import Candidate
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_schedule import simulated, with_options
from hlo_passes.scheduler.tuning.search import Tried
from hlo_passes.text.reader import parse
from hlo_passes.xla_release import XlaRelease

_WHOLE: Final = "xla-gpu"
_SCHEDULE: Final = "gpu-schedule"
_SWITCH: Final = "enable-latency-hiding-scheduler"
#: What is neither fused nor scheduled yet.
_EARLY: Final = ("partitioned", "unknown")


@dataclass(frozen=True, slots=True)
class OwnPassesEvaluator:
    """The `Evaluator` of a module that our passes take on from where it is.

    Attributes:
        text: of the module.
        filename: where it is from.
        passes: the pipeline without options.
        is_scheduled: whether the module has an order to compare with.
        on: the machine and the source of costs; it names the release.
        rules: of the simulation.
        release: of XLA that is followed.
        misleads: why steps are priced with formulas of ours, as `Outcome.misleads`; ''
            where they are not.
    """

    text: str
    filename: str
    passes: str
    is_scheduled: bool
    on: Pricing
    rules: Rules
    release: XlaRelease
    misleads: str = ""

    @classmethod
    def of(cls, module: Module, on: Pricing, rules: Rules) -> OwnPassesEvaluator:
        """Of a module; WrongStateError S017, S018 for one that no GPU can run."""
        require_priced(module, on)
        found = reported(module, on)
        is_early = module_state(module).stage in _EARLY
        return cls(
            text=module.to_text(),
            filename=module.source.filename if module.source else "",
            passes=_WHOLE if is_early else _SCHEDULE,
            is_scheduled=module.is_scheduled,
            on=dataclasses.replace(on, xla=found.release.name),
            rules=rules,
            release=found.release,
        ).with_fair_prices()

    def with_fair_prices(self) -> OwnPassesEvaluator:
        """The same with other prices if XLA's mislead of the baseline."""
        first = self.outcome(Combination())
        return dataclasses.replace(self, misleads=first.misleads)

    @property
    def prices(self) -> Pricing:
        """What a step is priced on; passes decide by `on`, as XLA's do."""
        return dataclasses.replace(self.on, extended=True) if self.misleads else self.on

    def has(self, candidate: Candidate) -> bool:
        """Whether our passes have a setting."""
        kind = find_pass(self.passes)
        assert issubclass(kind, PassSequence), "both are sequences"
        known = all_options(kind)
        options = [option for option, _ in candidate.options]
        if self.is_scheduled and _SWITCH in options:
            return False  # without the scheduler the order given would stay
        return bool(options) and all(option in known for option in options)

    def pipeline(self, chosen: Combination) -> str:
        """The pipeline's text; '' for the module as it is."""
        if self.is_scheduled and not chosen:
            return ""
        return with_options(self.passes, chosen)

    def module(self, chosen: Combination) -> Module:
        """The module after the passes. Raises HloError as they do."""
        module = parse(self.text, filename=self.filename)
        if text := self.pipeline(chosen):
            Pipeline.parse(text, PassContext(self.on)).run(module)
        return module

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Run the passes and price."""
        for chosen in batch:
            yield chosen, self.outcome(chosen)

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Nothing: our passes price every combination in full."""
        del batch
        yield from ()

    def outcome(self, chosen: Combination) -> Outcome:
        """The step of one combination."""
        try:
            module = self.module(chosen)
            digest = hashlib.sha256(module.to_text().encode()).hexdigest()
            return simulated(
                module, chosen, self.prices, self.rules, source="own", digest=digest
            )
        except HloError as problem:
            first = problem.message.splitlines()[0]
            return Outcome.failed(first, source="own")


@dataclass(frozen=True, slots=True)
class OwnPassesWorkers:
    """The same with workers that take combinations.

    Attributes:
        own: what one combination needs.
        workers: that run `own.outcome`.
    """

    own: OwnPassesEvaluator
    workers: Evaluator[Combination, Outcome]

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """Run the passes and price, in the order of the batch."""
        for chosen, found in zip(batch, self.workers.map(batch), strict=True):
            if isinstance(found, Lost):
                found = Outcome.failed(found.problem, source="own")
            yield chosen, found

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        """As `OwnPassesEvaluator`: nothing."""
        return self.own.scheduled(batch)
