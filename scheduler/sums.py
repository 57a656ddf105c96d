"""The sum of floats that the scheduler's figures are made of.

sequential_sum([0.1] * 10)     0.9999999999999999 on every Python
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable


def sequential_sum(values: Iterable[float], start: float = 0.0) -> float:
    """The sum from left to right, rounded after each addition; `start` for none.

    With `start=0`, whole numbers stay whole.

    It is what XLA's C++ computes. The built-in `sum` carries the rounding errors of
    floats along from Python 3.12 on, so its figures would differ by Python in the last
    printed digit.
    """
    return functools.reduce(operator.add, values, start)
