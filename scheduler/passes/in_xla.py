"""What XLA's own passes leave of a gain.

    trials.step(copy)      four all-reduces, one of them as a ring: shorter
    trials.followed_us(..) XLA makes one reduce-scatter of the four, or of three with a
                           ring beside it: longer, so there is no ring

A trial schedules a module as it is. In a job XLA first creates reduce-scatters and
combines collectives, and what a pass has cut into permutes is not combined. So a change
that makes the trial's step shorter is kept only if the step is no longer after those
passes, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.scheduler.simulation.units import time_text


def stays(after_us: float, what: str, before_us: float) -> str:
    """Why a change is not made that XLA's own passes make a loss."""
    return (
        f"stays: after XLA's own passes the step takes {time_text(after_us)} {what}, "
        f"{time_text(before_us)} without"
    )


def most_that_pay(steps_us: Sequence[float]) -> int:
    """Of changes made one after another, how many leave the shortest step.

    Args:
        steps_us: without a change, with the first one, with two, and so on.
    """
    least = min(steps_us, default=0.0)
    return max((index for index, us in enumerate(steps_us) if us == least), default=0)
