"""Some programs of the campaign over improved schedules, on emulated devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.runtime.improved_schedules import have_same_bits, schedules

_COMPARED = 4


def test_improved_schedules_compute_the_same(
    host_devices: Callable[[int], Sequence[Any]],
) -> None:
    host_devices(8)
    compared = 0
    for seed in range(40):
        module, improved = schedules(seed)
        if improved.to_text() != module.to_text():
            assert have_same_bits(module, improved, seed), seed
            compared += 1
        if compared == _COMPARED:
            return
    raise AssertionError("the improver changes nothing")
