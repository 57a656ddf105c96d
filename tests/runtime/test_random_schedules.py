"""Random modules under every policy: legal, the same bits, the same bytes.

A few per run; a thousand with `pytest tests/runtime/test_random_schedules.py
--hypothesis-profile=campaign`, which takes about an hour.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.runtime.comparison import compare_outputs
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from tests.scheduler.checker.scheduled_modules import (
    POLICIES,
    module_to_schedule,
    pipeline,
)

#: Of the different orders that the policies lead to, so many are run.
_RUN = 2
#: Every example compiles three programs: a few in the suite, all in the campaign.
_EXAMPLES = settings().max_examples if settings().max_examples >= 1000 else 6


@pytest.fixture(autouse=True, scope="module")
def _eight_devices(host_devices) -> None:
    host_devices(8)


def same_results_under_every_policy(
    module: Module, draw: random.Random, seed: int
) -> int:
    """Schedule, check and run; how many different orders there were."""
    schedules: dict[str, tuple[str, Module]] = {}
    for policy in POLICIES:
        scheduled = module.clone()
        try:
            # The checker runs after it, with the policy's limits.
            pipeline(policy).run(scheduled, verify_each=True)
        except hlo_passes.PassError as refused:
            # Neither the new order nor the old one keeps to the hard limit.
            assert (refused.code, policy) == ("E032", "hard-memory"), refused
            continue
        schedules.setdefault(scheduled.to_text(), (policy, scheduled))
    plain = plain_module(module)
    first = load_plain(plain, module, *topology_of(module))
    inputs = seeded_inputs(plain, module, device_count=first.device_count, seed=seed)
    expected = first(*inputs)
    for text in draw.sample(sorted(schedules), min(_RUN, len(schedules))):
        policy, scheduled = schedules[text]
        second = load_plain(plain_module(scheduled), scheduled, *topology_of(scheduled))
        assert compare_outputs(expected, second(*inputs)).bitwise_equal, policy
    return len(schedules)


@settings(
    max_examples=_EXAMPLES,
    # Shrinking would compile for hours; the module is printed.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    draw=st.randoms(use_true_random=False),
    devices=st.sampled_from([2, 4, 8]),
    seed=st.integers(0, 1000),
)
def test_every_policy_gives_a_legal_schedule_with_the_same_results(
    draw: random.Random, devices: int, seed: int
) -> None:
    module = module_to_schedule(draw, devices)
    note(module.to_text())
    assert same_results_under_every_policy(module, draw, seed) >= 1
