"""Random SPMD modules compute the same bits after any pipeline of passes.

A few per run; a thousand with `pytest tests/runtime/test_random_modules.py
--hypothesis-profile=campaign`.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import runtime
from tests.spmd_modules import random_pipeline, spmd_module

_EXAMPLES = settings().max_examples if settings().max_examples >= 1000 else 8


@pytest.fixture(autouse=True, scope="module")
def _eight_devices(host_devices) -> None:
    host_devices(8)


@settings(max_examples=_EXAMPLES)
@given(
    draw=st.randoms(use_true_random=False),
    devices=st.sampled_from([2, 4, 8]),
    seed=st.integers(0, 1000),
)
def test_pipelines_keep_every_bit(draw: random.Random, devices: int, seed: int) -> None:
    text = spmd_module(draw, devices)
    pipeline = random_pipeline(draw)
    note(f"{pipeline}\n{text}")
    before = hlo_passes.parse(text)
    hlo_passes.verify(before)
    after = before.clone()
    hlo_passes.Pipeline.parse(pipeline).run(after)
    assert runtime.compare(before, after, seed=seed).bitwise_equal
