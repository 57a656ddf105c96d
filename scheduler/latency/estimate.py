"""A price from a model: microseconds, and the model that gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Estimate:
    """A price.

    Attributes:
        us: microseconds.
        model: that gave the price, as estimator/path: 'sol/ring', 'gpu-approximate',
            'profile'.
        reason: why a better model had no answer; '' if this is the best one.
        parts_us: components of `us` by name, if the model has them.
        times_its_share: how often XLA counts the same work; 1 is right.
    """

    us: float
    model: str
    reason: str = ""
    parts_us: Mapping[str, float] = field(default_factory=dict)
    times_its_share: int = 1


def share_remarks(counts: Mapping[int, int]) -> tuple[str, ...]:
    """For a report's first line: matrix products whose flops XLA counts too often.

    Args:
        counts: how many products, by `Estimate.times_its_share`; 1 is left out.
    """
    found = []
    for times, count in sorted(counts.items()):
        if times > 1 and count:
            what = "its share for a matrix product"
            if count > 1:
                what = f"their share for {count} matrix products"
            found.append(
                f"XLA's table takes {times} times {what} of types that it lacks "
                "(--extended takes it once)"
            )
    return tuple(found)
