"""An answer of a model: microseconds, and who gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer.

    Attributes:
        us: microseconds.
        model: who answered, estimator/path: 'sol/ring', 'gpu-approximate', 'profile'.
        reason: why a better model had no answer; '' when this is the best one.
        parts_us: components of `us` by name, where the model has them.
    """

    us: float
    model: str
    reason: str = ""
    parts_us: Mapping[str, float] = field(default_factory=dict)
