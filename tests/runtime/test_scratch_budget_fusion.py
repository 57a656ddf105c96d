"""Fusions under a scratch budget on 2, 4 and 8 emulated devices."""

from __future__ import annotations

import random

import pytest

import hlo_passes
from hlo_passes import Pipeline, runtime
from tests.elementwise_programs import EXACT, program

#: With opcodes whose last bits depend on how they are compiled.
_UNARY = (*EXACT, "abs", "exponential", "tanh", "logistic", "sine", "rsqrt")


@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_every_bit_is_equal(devices: int, seed: int) -> None:
    runtime.emulate(8)
    text = program(random.Random(seed), devices, length=30, unary=_UNARY)
    before, after = hlo_passes.parse(text), hlo_passes.parse(text)
    scratch = (1024, 768, 1280, 2048, 49152)[seed]
    Pipeline.parse(f"scratch-budget-fusion{{scratch-bytes={scratch}}}").run(after)
    assert any(i.opcode == "fusion" for i in after.entry.instructions)
    assert runtime.compare(before, after, seed=seed).bitwise_equal
