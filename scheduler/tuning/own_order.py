"""What an order of ours would gain after all flags: the schedule improver's.

improved(module, Combination.of({"overlap limit": "2"}), on, rules)    None if no better
"""

from __future__ import annotations

from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_schedule import simulated

_IMPROVER: Final = "schedule-improver"
#: Its options that are levers, too.
_SHARED: Final = frozenset(
    {
        "parallel-collective-overlap-limit",
        "parallel-async-compute-limit",
        "enable-collective-multi-streaming",
    }
)
#: A part of the improver's usual moves: here it only tells what there is to gain.
_EFFORT: Final = 0.3


def improver_pipeline(chosen: Combination) -> str:
    """The improver with the limits of a combination."""
    options = [
        f"{option}={text}"
        for name, setting in chosen.settings
        for option, text in LEVERS[name].candidate(setting).options
        if option in _SHARED
    ]
    return f"{_IMPROVER}{{{','.join([*options, f'effort={_EFFORT}'])}}}"


def improved(
    module: Module, chosen: Combination, on: Pricing, rules: Rules
) -> Outcome | None:
    """The step in an order of ours; None if that is no shorter, or cannot be found."""
    try:
        done = Pipeline.parse(improver_pipeline(chosen), PassContext(on)).run(module)
        if not done.changed:
            return None
        return simulated(module, chosen, on, rules, source="own")
    except HloError:
        return None
