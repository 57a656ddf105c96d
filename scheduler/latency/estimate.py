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
    """

    us: float
    model: str
    reason: str = ""
    parts_us: Mapping[str, float] = field(default_factory=dict)
