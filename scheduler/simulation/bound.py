"""A lower bound of a step: how long, what determines it, and why no order is faster.

Each constructor says once why its bound holds; the report, the page and the improver's
remarks print that sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.simulation.units import time_text

#: How a lane's bound is named that holds more than its own instructions.
COMPUTE_AND: Final = "compute and "
#: A bound that exceeds another by less is the same.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Bound:
    """What no order of the same instructions is below.

    Attributes:
        us: the time.
        by: what determines it: 'compute', 'communication 0', 'critical path',
            'overlap with communication 0', 'compute and critical path in %body'.
        why: a sentence without a full stop: why no order is faster.
    """

    us: float
    by: str
    why: str


def lane_bound(us: float, by: str = "compute") -> Bound:
    """All that the compute lane has to run."""
    why = "the compute lane runs one instruction after the other, and has to run all"
    if by.startswith(COMPUTE_AND) and " in %" in by:
        body = by.rpartition(" in %")[2]
        why += f"; %{body} counts with its own bound"
    return Bound(us, by, why)


def stream_bound(us: float, stream: str) -> Bound:
    """All that one stream has to run."""
    why = f"{stream} runs one operation after the other, and has to run all"
    return Bound(us, stream, why)


def chain_bound(us: float) -> Bound:
    """The longest chain of instructions that depend on each other."""
    why = "each instruction of the longest chain needs the one before it"
    return Bound(us, "critical path", why)


def overlap_bound(
    lane_us: float, stream: str, stream_us: float, most_us: float, calls: bool = False
) -> Bound:
    """What the lane and a stream take together, less what can overlap.

    Args:
        lane_us: of the compute lane.
        stream: its name.
        stream_us: of its own pairs, without those in what is called.
        most_us: the longest time in which both can be busy.
        calls: whether the lane calls loops or other computations.
    """
    loops, outside = (" with loops", " outside them") if calls else ("", "")
    why = (
        f"compute{loops} takes {time_text(lane_us)}, {stream}{outside} "
        f"{time_text(stream_us)}, and dependences let at most {time_text(most_us)} of "
        "that overlap"
    )
    return Bound(lane_us + stream_us - most_us, f"overlap with {stream}", why)


def section_bound(
    head_us: float,
    tail_us: float,
    lane_us: float,
    stream: str = "",
    stream_us: float = 0.0,
    most_us: float = 0.0,
) -> Bound:
    """What must run between a head that comes before it and a tail that follows.

    Args:
        head_us: before it.
        tail_us: after it.
        lane_us: of the compute lane, in between.
        stream: whose pairs must run in between, too, '' for none.
        stream_us: of these pairs.
        most_us: the longest time in which both can be busy.
    """
    us = head_us + (lane_us + stream_us - most_us) + tail_us
    nothing = time_text(0.0)
    around = [
        f"{time_text(time)} pass {where}"
        for time, where in ((head_us, "before"), (tail_us, "after"))
        if time_text(time) != nothing
    ]
    parts = [
        f"{time_text(time)} of {what}"
        for time, what in ((lane_us, "compute"), (stream_us, stream))
        if time_text(time) != nothing
    ]
    why = f"in any order {' and '.join(around)} {' and '.join(parts)}"
    if len(parts) > 1:
        why += f", of which dependences let at most {time_text(most_us)} overlap"
    what = stream or "compute"
    return Bound(us, f"{what} between head and tail", why)


def the_greatest(bounds: Sequence[Bound]) -> Bound:
    """The greatest of some bounds; the first one of those that only rounding parts."""
    best = bounds[0]
    for bound in bounds[1:]:
        # The test is written so that it also refuses NaN.
        if bound.us > best.us * (1.0 + _ROUNDING):
            best = bound
    return best
