"""Random modules under every policy: legal, the same bits, the same bytes.

A few per run; a thousand with `pytest tests/runtime/test_random_schedules.py
--hypothesis-profile=campaign`, which takes about an hour.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import hlo_passes
from runtime.compare import compare_outputs
from runtime.devices import topology_of
from runtime.executable import load_plain
from runtime.inputs import seeded_inputs
from runtime.plain.legalize import plain_module
from scheduler.checker.schedule_checker import check_schedule
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


def _run(module, inputs):
    executable = load_plain(plain_module(module), module, *topology_of(module))
    return executable(*inputs)


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
    schedules = {}
    for policy in POLICIES:
        scheduled = module.clone()
        try:
            # The checker runs behind it, with the policy's limits.
            pipeline(policy).run(scheduled, verify_each=True)
        except hlo_passes.PassError as refused:
            # Neither the new order nor the old one keeps to the hard limit.
            assert (refused.code, policy) == ("E032", "hard-memory")
            continue
        schedules.setdefault(scheduled.to_text(), (policy, scheduled))
    chosen = draw.sample(sorted(schedules), min(_RUN, len(schedules)))
    plain = plain_module(module)
    first = load_plain(plain, module, *topology_of(module))
    inputs = seeded_inputs(plain, module, device_count=first.device_count, seed=seed)
    expected = first(*inputs)
    for text in chosen:
        policy, scheduled = schedules[text]
        note(policy)
        results: list[np.ndarray] = _run(scheduled, inputs)
        assert compare_outputs(expected, results).bitwise_equal, policy
        assert check_schedule(scheduled, module) == []
