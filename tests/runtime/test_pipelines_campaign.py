"""A small part of the campaign of random pipelines on the corpus, and what it allows."""

from __future__ import annotations

import random

import pytest

from hlo_passes.files import read_module
from hlo_passes.passes.framework.registry import find_pass
from tests.modules import REPOSITORY
from tests.own_passes import own_passes
from tests.runtime.pipelines_campaign import (
    Given,
    modules,
    on_random_programs,
    outcome,
    random_pipeline,
    tolerance,
)


@pytest.fixture(autouse=True, scope="module")
def _eight_devices(host_devices) -> None:
    host_devices(8)


@pytest.mark.parametrize("seed", range(4))
def test_random_pipelines_keep_what_a_program_computes(seed: int) -> None:
    draw = random.Random(seed)
    path, pipeline = draw.choice(modules()), random_pipeline(draw)
    ended = outcome(Given(read_module(str(path))), pipeline)
    assert not ended.startswith("failed"), (ended, pipeline)


def test_so_do_random_programs() -> None:
    for where, pipeline, ended in on_random_programs(range(4), []):
        assert not ended.startswith("failed"), (where, ended, pipeline)


@pytest.mark.parametrize("devices", [2, 4])
def test_so_do_programs_of_fewer_devices(devices: int) -> None:
    seeds = range(1, 3)
    for where, pipeline, ended in on_random_programs(seeds, [], devices):
        assert not ended.startswith("failed"), (where, ended, pipeline)


def test_only_declared_passes_may_round_otherwise() -> None:
    module = read_module(str(modules()[0]))
    for name in own_passes():
        rounds = find_pass(name).reorders_sums
        assert (tolerance(module, name) is not None) == rounds


def test_the_page_says_which() -> None:
    page = (REPOSITORY / "docs/passes.md").read_text(encoding="utf-8")
    said = {
        part.partition("\n")[0].strip()
        for part in page.split("\n## ")
        if "\n- Rounding: " in part
    }
    assert said == {n for n in own_passes() if find_pass(n).reorders_sums}
