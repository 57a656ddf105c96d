"""Random loops run as often as the analysis says that they do."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import runtime
from hlo_passes.analysis.trip_counts import TripCounts
from tests.analysis.random_loops import (
    MOST_ITERATIONS,
    RandomLoop,
    loop,
    module_text,
    unforeseen,
)

_DTYPES = {"s8": "int8", "u8": "uint8", "s32": "int32", "u32": "uint32", "s64": "int64"}


@pytest.fixture(autouse=True, scope="module")
def _one_device(host_devices) -> None:
    host_devices(8)


def known_counts(loops: list[RandomLoop]) -> dict[str, int]:
    """By name, of the loops whose count is known and small enough to run them."""
    module = hlo_passes.parse(module_text(loops))
    counts = TripCounts(module)
    found = {
        i.name: counts.of(i) for i in module.entry.instructions if i.opcode == "while"
    }
    return {
        name: count
        for name, count in found.items()
        if count is not None and count <= MOST_ITERATIONS
    }


@settings(max_examples=10)
@given(seed=st.integers(0, 10**9))
def test_loops_run_as_often_as_is_said(seed: int) -> None:
    draw = random.Random(seed)
    loops = [loop(draw, str(k)) for k in range(20)]
    counts = known_counts(loops)
    known = [one for one in loops if one.name in counts]
    assert len(known) > len(loops) // 4
    # XLA cannot foresee starts that are parameters, so that it has to run the loops.
    text, given_starts = unforeseen(known)
    note(text)
    inputs = [np.array([value], _DTYPES[kind]) for kind, value in given_starts]
    outputs = runtime.load(hlo_passes.parse(text))(*inputs)
    ran = [int(np.asarray(output).reshape(-1)[0]) for output in outputs]
    assert ran == [counts[one.name] for one in known]
