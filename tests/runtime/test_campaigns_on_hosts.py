"""Small parts of the campaigns on two hosts of four devices. Some twenty seconds."""

from __future__ import annotations

import pytest

from tests import loops_campaign
from tests.runtime.pipelines_campaign import on_random_programs


@pytest.mark.hosts(2, devices_per_host=4)
def test_loops_compute_the_same() -> None:
    tally = loops_campaign.Tally()
    for seed in range(2):
        found = loops_campaign.findings(seed, tally, alone=(), on_devices=True)
        assert [each[:2] for each in found] == []
    assert tally.on_devices.total()


@pytest.mark.hosts(2, devices_per_host=4)
def test_random_programs_compute_the_same() -> None:
    for where, pipeline, ended in on_random_programs(range(4), []):
        assert not ended.startswith("failed"), (where, ended, pipeline)
