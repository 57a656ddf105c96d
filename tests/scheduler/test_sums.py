"""Figures are the same on every Python."""

from __future__ import annotations

import math

from hlo_passes.scheduler.sums import sequential_sum


def test_every_addition_is_rounded() -> None:
    tenths = [0.1] * 10
    assert math.fsum(tenths) == 1.0
    assert sequential_sum(tenths) == 0.9999999999999999
    assert sequential_sum(iter(tenths)) == 0.9999999999999999
    assert repr(sequential_sum(())) == "0.0"
