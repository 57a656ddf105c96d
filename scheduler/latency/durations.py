"""Durations as XLA's estimator counts them: whole ticks of a quarter nanosecond.

Sums of ticks are exact, so results equal XLA's to the last printed digit.
Source: `absl::Duration`, which openxla/xla's cost model computes with.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

TICKS_PER_US: Final = 4000
TICKS_PER_NS: Final = 4
TICKS_PER_S: Final = 4_000_000_000


def round_half_away(value: float) -> int:
    """The nearest integer; halves go away from zero."""
    whole = math.floor(abs(value))
    rounded = whole + (abs(value) - whole >= 0.5)
    return int(rounded) if value >= 0 else -int(rounded)


def ticks_of_us(us: float) -> int:
    """Microseconds to ticks."""
    return scaled(TICKS_PER_US, us)


def ticks_of_ns(ns: float) -> int:
    """Nanoseconds to ticks."""
    return scaled(TICKS_PER_NS, ns)


def ticks_of_s(seconds: float) -> int:
    """Seconds to ticks."""
    return round_half_away(seconds * TICKS_PER_S)


def us_of_ticks(ticks: int) -> float:
    """Ticks to microseconds."""
    return ticks / TICKS_PER_US


def scaled(ticks: int, factor: float) -> int:
    """A duration times a number, rounded to a tick.

    `absl::Duration` keeps whole seconds apart and passes the rest through a fraction of
    a second: 130 ticks * 0.95 is 123.5 that way only up to its last bit, and 123 ticks.
    """
    whole_s, rest = divmod(ticks, TICKS_PER_S)
    fraction, seconds = math.modf(whole_s * factor)
    fraction, more = math.modf(rest * factor / TICKS_PER_S + fraction)
    return int(seconds + more) * TICKS_PER_S + round_half_away(fraction * TICKS_PER_S)


def memory_ticks(bytes_moved: float, bytes_per_s: float) -> int:
    """Time to move bytes at a bandwidth, in 32-bit arithmetic as XLA divides."""
    return ticks_of_s(float(np.float32(bytes_moved) / np.float32(bytes_per_s)))


def float32_integer(value: int) -> int:
    """An integer after conversion to a 32-bit float and back (truncated)."""
    return int(np.float32(value))
