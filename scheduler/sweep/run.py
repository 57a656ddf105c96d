"""Runs every combination of a sweep on all cores, or on a cluster.

Each process reads the module once from its text; each combination starts from that text
again, so that a result does not depend on what ran before in the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.errors import HloError, UsageError
from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.simulation.ranges import Sensitivity
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.timeline_data import ComputationTimes
from hlo_passes.scheduler.sweep.options import (
    Choice,
    SweptOption,
    combinations,
    pipeline_of,
    simulator_options,
)
from hlo_passes.text.reader import parse

#: The form of a number of streams.
_MOST_DIGITS: Final = 9
#: Letters shown of a value that is refused.
_MOST_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The result of one combination.

    Attributes:
        choice: the values, in the order of the sweep's options.
        pipeline: the text that runs it again.
        times: of the whole step; None when a pass failed.
        problem: why it failed, '' when it did not.
        sensitivity: the same in other settings.
    """

    choice: Choice
    pipeline: str
    times: ComputationTimes | None
    problem: str = ""
    sensitivity: Sensitivity | None = None

    @property
    def is_done(self) -> bool:
        """Whether the combination ran, so that there are times."""
        return self.times is not None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to run: a module's text, a pipeline, what varies, and how to simulate.

    Passes and simulation use one pricing.
    """

    text: str
    filename: str
    pipeline: str
    swept: tuple[SweptOption, ...]
    on: Pricing
    rules: Rules

    def check(self) -> None:
        """Refuse values that no pass accepts, before anything runs.

        Raises PipelineSpecError U013; UsageError U220 for a number of streams.
        """
        for choice in combinations(self.swept):
            pipeline = pipeline_of(self.pipeline, self.swept, choice)
            Pipeline.parse(pipeline, PassContext(self.on))
            self._streams(choice)

    def run(self, choice: Choice) -> SweepRow:
        """Run one combination."""
        pipeline = pipeline_of(self.pipeline, self.swept, choice)
        module = parse(self.text, filename=self.filename)
        try:
            built = Pipeline.parse(pipeline, PassContext(self.on))
            # The simulation follows the release that the passes follow.
            on = built.settled(module).pricing
            built.run(module)
            rules = replace(self.rules, streams=self._streams(choice))
            found = simulate_on(module, on, rules, with_range=True)
        except HloError as problem:
            first = problem.render().splitlines()[0]
            return SweepRow(choice, pipeline, None, first)
        return SweepRow(choice, pipeline, found.times, sensitivity=found.sensitivity)

    def _streams(self, choice: Choice) -> int | None:
        """Communication streams: as the choice says, else as the rules do."""
        streams = simulator_options(self.swept, choice).get("streams")
        if streams is None:
            return self.rules.streams
        if not (streams.isdecimal() and len(streams) <= _MOST_DIGITS):
            raise UsageError(
                f"--sweep: simulate.streams={streams[:_MOST_SHOWN]} is not a "
                "number of streams",
                code="U220",
                hint="1, 2, ... or 0 for no queueing",
            )
        return int(streams)


def run_sweep(
    sweep: Sweep, *, processes: int | None = None, executor: str = ""
) -> Iterator[SweepRow]:
    """Yield rows in the order of the combinations, each when it is ready.

    Args:
        sweep: what to run.
        processes: how many run at once; by default one per core.
        executor: where they run, as `executors.named` spells it; '' for this machine.
    """
    choices = list(combinations(sweep.swept))
    processes = min(processes or os.cpu_count() or 1, len(choices))
    with Evaluator(sweep.run, executor, processes) as evaluator:
        for choice, row in zip(choices, evaluator.map(choices), strict=True):
            if isinstance(row, Lost):
                pipeline = pipeline_of(sweep.pipeline, sweep.swept, choice)
                row = SweepRow(choice, pipeline, None, row.problem)
            yield row


def best_of(
    rows: Sequence[SweepRow], limit_bytes: int | None = None
) -> SweepRow | None:
    """The fastest within a memory limit; of two equal ones the one with less memory."""
    fitting = [r for r in rows if r.times is not None and fits(r.times, limit_bytes)]
    key: Callable[[SweepRow], Any] = _by_time_and_memory
    return min(fitting, key=key, default=None)


def fits(times: ComputationTimes, limit_bytes: int | None) -> bool:
    """Whether the peak is within the limit."""
    return limit_bytes is None or times.peak_memory_bytes <= limit_bytes


def _by_time_and_memory(row: SweepRow) -> tuple[float, int]:
    assert row.times is not None, "a row without times does not fit"
    return row.times.step_time_us, row.times.peak_memory_bytes
