"""Figures are the same on every Python."""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from hlo_passes.files import read_module
from hlo_passes.scheduler.estimate_table import table_text
from hlo_passes.scheduler.module_costs import estimate
from hlo_passes.scheduler.simulation.report import DEFAULT_ROWS, report_text
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.scheduler.sums import sequential_sum
from tests.modules import CORPUS

MODULE = CORPUS / "modules" / "0.12.0.1" / "scan_layers_train.gpu-scheduled.hlo.gz"


def test_every_addition_is_rounded() -> None:
    tenths = [0.1] * 10
    assert math.fsum(tenths) == 1.0
    assert sequential_sum(tenths) == 0.9999999999999999
    assert sequential_sum(iter(tenths)) == 0.9999999999999999
    assert repr(sequential_sum(())) == "0.0"
    assert repr(sequential_sum([2, 3], start=0)) == "5"
    assert repr(sequential_sum([2, 0.5], start=0)) == "2.5"


def test_no_figure_comes_from_the_built_in_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It rounds otherwise from Python 3.12 on; sums of whole numbers are the same."""
    real = builtins.sum

    def of_whole_numbers(values: Iterable[Any], /, start: Any = 0) -> Any:
        found = list(values)
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("hlo_passes."):
            assert not any(isinstance(v, float) and v % 1 for v in found), caller
        return real(found, start)

    module = read_module(str(MODULE))
    monkeypatch.setattr(builtins, "sum", of_whole_numbers)
    timeline = simulate(module)
    assert timeline.to_html(module)
    assert report_text(timeline, DEFAULT_ROWS, 80)
    assert timeline.to_perfetto()
    assert table_text(estimate(module))
