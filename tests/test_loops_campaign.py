"""Ten programs of the campaign over loops, and whether it would notice an error."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hlo_passes
from hlo_passes.passes.framework.registry import _FOLDERS
from tests import loops_campaign
from tests.loop_modules import loop_module


@pytest.mark.parametrize("seed", range(10))
def test_loops_compute_the_same(seed: int) -> None:
    tally = loops_campaign.Tally()
    assert [found[:2] for found in loops_campaign.findings(seed, tally)] == []


def test_every_pass_over_loops_is_judged() -> None:
    named = {passes.partition("{")[0] for passes in loops_campaign.PASSES}
    assert named == set(_FOLDERS["loops"])


def test_an_error_is_noticed() -> None:
    tally = loops_campaign.Tally()
    programs = (loop_module(random.Random(seed)) for seed in range(10))
    made = next(program for program in programs if program.iterations > 1)
    expected = loops_campaign.results(hlo_passes.parse(made.text))
    expected[-1] = np.nextafter(expected[-1], np.float32(1e9))
    unroll = "loop-double-buffer-transformer"
    assert "differs" in loops_campaign.problem(made, unroll, expected, tally)


def test_quirks_of_xla_show() -> None:
    tally = loops_campaign.Tally()
    backward = "collective-pipeliner-backward"
    broken = []
    for seed in range(40):
        made = loop_module(random.Random(seed))
        expected = loops_campaign.results(hlo_passes.parse(made.text))
        for quirks in (False, True):
            wrong = loops_campaign.problem(
                made, backward, expected, tally, quirks=quirks
            )
            broken += [quirks] if wrong else []
    assert broken
    assert all(broken)
