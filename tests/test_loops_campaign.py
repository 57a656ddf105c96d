"""Ten programs of the campaign over loops, and whether it would notice an error."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hlo_passes
from hlo_passes.passes.framework.registry import _FOLDERS
from tests import loops_campaign
from tests.loop_modules import loop_module
from tests.own_passes import own_passes


@pytest.mark.parametrize("seed", range(10))
def test_loops_compute_the_same(seed: int) -> None:
    tally = loops_campaign.Tally()
    alone = loops_campaign.PASSES if seed < 2 else loops_campaign.LOOPS
    found = loops_campaign.findings(seed, tally, alone=alone)
    assert [each[:2] for each in found] == []


def test_a_sum_with_zero_may_lose_the_sign_of_a_zero() -> None:
    tally = loops_campaign.Tally()
    found = loops_campaign.findings(9001, tally, alone=["all-gather-decomposer"])
    assert [each[:2] for each in found] == []
    assert tally.changed["all-gather-decomposer"] == 1


def test_every_pass_is_judged() -> None:
    named = {passes.partition("{")[0] for passes in loops_campaign.LOOPS}
    assert named >= set(_FOLDERS["loops"])
    others = {passes.rpartition(",")[2] for passes in loops_campaign.OTHERS}
    assert named | others == set(own_passes())


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
