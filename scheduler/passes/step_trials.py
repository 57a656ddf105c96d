"""Decides by simulated steps whether a module is changed.

    trials = StepTrials(options, module, pricing)
    found = trials.judged(write, "with 3 buffers")     the step, or why not
    trials.now = found                                 the change was made
    trials.chosen(places, write, ...)                  those of many that pay

A changed copy of the module is scheduled and simulated as the module is. The change is
made only if the step becomes shorter, by a share that the options name, and if what the
device must hold stays below the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hlo_passes.errors import TooLargeError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.passes.chain_choice import found_in
from hlo_passes.scheduler.passes.in_xla import stays
from hlo_passes.scheduler.passes.priced_chains import SPENT, ChainTrials, Key, Step
from hlo_passes.scheduler.passes.priced_pass import BoundedRewrite
from hlo_passes.scheduler.simulation.units import bytes_text, time_text

#: What may be changed: instructions by name, or elements of a state by index.
PlaceT = TypeVar("PlaceT", str, int)


@dataclass(slots=True)
class StepTrials:
    """The step of a module, and of its changed copies.

    Attributes:
        options: of the pass.
        module: that is rewritten.
        pricing: the machine and the source of costs.
    """

    options: BoundedRewrite
    module: Module
    pricing: Pricing
    _trials: ChainTrials = field(init=False)
    _in_xla_us: float | None = None
    _first: Step | None = None
    _now: Step | None = None

    def __post_init__(self) -> None:
        """Nothing is scheduled before something is tried."""
        schedule = self.options.schedule
        self._trials = ChainTrials(self.module, self.pricing, schedule)

    @property
    def first(self) -> Step:
        """The step as it was given."""
        if self._first is None:
            self._first = self._trials.step(self.module.clone(), ())
        return self._first

    @property
    def now(self) -> Step:
        """The step as the module is."""
        return self._now or self.first

    @now.setter
    def now(self, step: Step) -> None:
        self._now = step

    @property
    def limit_bytes(self) -> int:
        """Memory that the step may take; 0 if nobody says."""
        return (
            self.options.memory_limit_bytes
            or self.now.timeline.footprint.available_bytes
        )

    def prices_us(self, keys: Iterable[Key]) -> dict[Key, float]:
        """What each of some collectives of the module costs."""
        # Asking for a price adds instructions for a moment.
        copy = self.module.clone()
        return {key: self._trials.fair_us(found_in(copy, key)) for key in keys}

    def judged(
        self, write: Callable[[Module], object], what: str, *, least_gain: bool = True
    ) -> Step | str:
        """The step after a change, or why the module is better without it.

        Args:
            write: makes the change in a copy of the module.
            what: the change in remarks: 'with 3 buffers'.
            least_gain: ask for a gain; otherwise a step of the same length will do.
        """
        options = self.options
        if self._trials.is_spent(
            options.most_instructions, after_xla=options.after_xla
        ):
            return SPENT
        before = self.now
        try:
            copy = self._changed(write)
        except TooLargeError as error:
            return f"stays: {error.message}"
        after = self._trials.step(copy, ())
        refused = self._does_not_fit(after, what)
        if refused:
            return refused
        gain = before.simulated_us - after.simulated_us
        least = options.min_gain * before.simulated_us
        if gain > least or (not least_gain and gain >= 0):
            if not options.after_xla:
                return after
            try:
                return self._judged_in_xla(after, write, what)
            except TooLargeError as error:
                return f"stays: {error.message}"
        return (
            f"stays: the step takes {time_text(after.simulated_us)} {what}, "
            f"{time_text(before.simulated_us)} without"
        )

    def _judged_in_xla(
        self, after: Step, write: Callable[[Module], object], what: str
    ) -> Step | str:
        """The step, unless XLA's own passes make it longer than the module's."""
        if self._in_xla_us is None:
            self._in_xla_us = self._followed_us(lambda _: None)
        us = self._followed_us(write)
        if us > self._in_xla_us:
            return stays(us, what, self._in_xla_us)
        self._in_xla_us = us
        return after

    def _followed_us(self, write: Callable[[Module], object]) -> float:
        return self._trials.followed_us(self._changed(write), self.options.follow)

    def _changed(self, write: Callable[[Module], object]) -> Module:
        """A copy after a change; TooLargeError (E028) if it is not worth a trial."""
        copy = self.module.clone()
        copy.most_instructions = min(self.options.most_instructions, self.module.room)
        write(copy)
        # What follows may copy as much as it may in the module.
        copy.most_instructions = self.module.room
        return copy

    def chosen(
        self,
        places: list[PlaceT],
        write: Callable[[Module, Sequence[PlaceT]], object],
        refusal: Callable[[PlaceT], str],
        report: Report,
        what: str,
        *,
        least_gain: bool = True,
    ) -> list[PlaceT]:
        """Those to change: all if that pays and fits, else one after the other.

        The module itself is not changed; `now` is the step with those changes.

        Args:
            places: that can be changed, the most promising first.
            write: changes some of them in a copy of the module.
            refusal: how a remark about a place begins that is left as it is.
            report: that explains.
            what: the changes in remarks: 'with it before %loop'.
            least_gain: ask for a gain; otherwise a step of the same length will do.
        """

        def judged(some: Sequence[PlaceT]) -> str:
            after = self.judged(
                lambda copy: write(copy, some), what, least_gain=least_gain
            )
            if isinstance(after, str):
                return after
            self.now = after
            return ""

        if not places:
            return []
        refused = judged(places)
        if not refused:
            return places
        if len(places) == 1:
            report.remark(f"{refusal(places[0])} {refused}")
            return []
        found: list[PlaceT] = []
        for place in places:
            refused = judged([*found, place])
            if refused:
                report.remark(f"{refusal(place)} {refused}")
            else:
                found.append(place)
        return found

    def _does_not_fit(self, after: Step, what: str) -> str:
        limit, needed = self.limit_bytes, after.timeline.footprint.needed_bytes
        before = self.now.timeline.footprint.needed_bytes
        if not limit or needed <= max(limit, before):
            return ""
        return (
            f"stays: the step needs {_exact(needed)} of memory {what}, "
            f"{_exact(before)} without, and the limit is {_exact(limit)}"
        )

    def tell(self, report: Report) -> None:
        """Write the step before and after, if it is another one."""
        if self._now is not None:
            report.details[self.options.name] = {
                "step_us": self.now.simulated_us,
                "step_us_before": self.first.simulated_us,
                "memory_bytes": self.now.timeline.footprint.needed_bytes,
                "memory_bytes_before": self.first.timeline.footprint.needed_bytes,
            }


def _exact(count: int) -> str:
    """Bytes, also in a suitable unit where that is another one."""
    text = bytes_text(count)
    return text if text.endswith(" bytes") else f"{text} ({count} bytes)"
