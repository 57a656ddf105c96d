"""Simulates a module again after a change, as long as the budget of work lasts.

    trials = Trials(module, on, rules, timeline)
    trial = trials.run("given", GpuSchedule(handed_on=...))
    trial.step_us, trial.exposed_us[key]

A change starts from one of three forms of the module: as given; without its schedule;
and without its asynchronous collectives, for passes that XLA runs before its scheduler.
What a form's own schedule takes, without the change, is its control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from hlo_passes.errors import HloError, TooLargeError
from hlo_passes.ir.async_form import wrapped_instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.framework.pipeline import pipeline_text
from hlo_passes.passes.framework.sequence import expanded
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice.plain_form import plain_form, unordered
from hlo_passes.scheduler.simulation.ranges import Change, change_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, TimelineData

#: Where a change starts.
Form = Literal["given", "unordered", "plain"]
_FORMS: Final[Mapping[Form, Callable[[Module], Module]]] = {
    "given": Module.clone,
    "unordered": unordered,
    "plain": plain_form,
}
#: A collective by its computation, and by its channel or name.
Key = tuple[str, str]
#: Instructions that are scheduled and simulated again, all trials together. Work is
#: counted, not time, so that every machine says the same.
MOST_INSTRUCTIONS: Final = 60_000
#: A change keeps what is computed: compute may differ by this share, no more.
_COMPUTE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Trial:
    """A step that was simulated again.

    Attributes:
        timeline: of it.
        pipeline: the text that makes it, from the form it starts from.
        exposed_us: by collective, in the whole step.
    """

    timeline: TimelineData
    pipeline: str
    exposed_us: Mapping[Key, float]

    @property
    def step_us(self) -> float:
        """How long the step takes."""
        return self.timeline.step_time_us


@dataclass(slots=True)
class Trials:
    """Runs changes on copies of one module.

    Attributes:
        module: as given.
        on: the machine and the source of costs.
        rules: of the simulation.
        given: the module, simulated.
        most_instructions: budget of work.
        left_out: changes that were not tried for want of budget.
    """

    module: Module
    on: Pricing
    rules: Rules
    given: TimelineData
    most_instructions: int = MOST_INSTRUCTIONS
    left_out: int = 0
    _spent: int = 0
    _trials: dict[tuple[Form, str], Trial | None] = field(default_factory=dict)

    @property
    def has_named_costs(self) -> bool:
        """Whether costs are known by name, so that new instructions have none."""
        return bool(self.on.costs or self.on.profile)

    def run(
        self, form: Form, passes: Iterable[Pass], rewrites: Iterable[Pass] = ()
    ) -> Trial | None:
        """Try passes on a form of the module, after some that rewrite it.

        None if the budget is spent, a pass refuses or none of the rewrites does
        anything, nothing can be said of the result (what it computes or which costs are
        known has changed), or it does not fit.
        """
        rewrites, passes = tuple(rewrites), expanded(tuple(passes))
        text = pipeline_text((*rewrites, *passes))
        if (form, text) not in self._trials:
            self._trials[form, text] = self._run(form, passes, rewrites, text)
        return self._trials[form, text]

    def _run(
        self, form: Form, passes: Sequence[Pass], rewrites: Sequence[Pass], text: str
    ) -> Trial | None:
        left = self.most_instructions - self._spent
        if self.module.instruction_count > left:
            self.left_out += 1
            return None
        if self.has_named_costs and form == "plain":
            return None
        try:
            copy = _FORMS[form](self.module)
            copy.most_instructions = left
            # The release is that of the given module, whatever the passes leave of it.
            context = PassContext(self.on)
            changed = [each.run(copy, context, Report()) for each in rewrites]
            if rewrites and not changed[0]:
                return None
            # Only what is scheduled and simulated is work that counts.
            count = max(copy.instruction_count, self.module.instruction_count)
            if count > left:
                self.left_out += 1
                return None
            self._spent += count
            for each in passes:
                each.run(copy, context, Report())
            timeline = simulate_on(copy, self.on, self.rules, with_range=True)
        except TooLargeError:
            self.left_out += 1
            return None
        except HloError:
            return None
        trial = Trial(timeline, text, exposures(copy, timeline))
        return trial if self._is_meaningful(trial) else None

    def _is_meaningful(self, trial: Trial) -> bool:
        given, timeline = self.given, trial.timeline
        if self.has_named_costs:
            names = {row.name for row in given.collectives}
            if {row.name for row in timeline.collectives} != names:
                return False
        if abs(timeline.compute_us - given.compute_us) > _COMPUTE * given.compute_us:
            return False
        return timeline.fits is not False or given.fits is False

    def change(self, before: TimelineData, after: Trial) -> Change | None:
        """The step before and after, in all settings of the range."""
        return change_of(before.sensitivity, after.timeline.sensitivity)


def exposures(module: Module, timeline: TimelineData) -> dict[Key, float]:
    """What each collective adds to the step, us, by what survives a new schedule."""
    found: dict[Key, float] = {}
    for key, row in keyed(module, timeline):
        found[key] = found.get(key, 0.0) + row.total_exposed_us
    return found


def keyed(module: Module, timeline: TimelineData) -> list[tuple[Key, CollectiveRow]]:
    """Rows of a timeline with their keys: the channel where it is the only one."""
    rows = timeline.collectives
    wanted = {(row.computation, row.name) for row in rows}
    channels = {
        (computation.name, instruction.name): wrapped_instruction(
            instruction
        ).channel_id
        for computation in module.computations
        for instruction in computation.instructions
        if (computation.name, instruction.name) in wanted
    }
    often = Counter(channels.values())
    found: list[tuple[Key, CollectiveRow]] = []
    for row in rows:
        channel = channels[row.computation, row.name]
        is_unique = channel is not None and often[channel] == 1
        name = f"channel {channel}" if is_unique else row.name
        found.append(((row.computation, name), row))
    return found
