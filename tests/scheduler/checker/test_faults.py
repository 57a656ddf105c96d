"""Planted faults are caught and legal orders accepted: a few of every kind.

Two hundred of each: `python -m tests.scheduler.checker.fault_campaign`.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from tests.modules import CORPUS
from tests.scheduler.checker.fault_campaign import (
    devices_apart,
    judge,
    scheduled_modules,
)
from tests.scheduler.checker.generated_faults import LEGAL, MAKERS
from tests.scheduler.checker.schedule_faults import MUTATORS, legal_neighbors

_EACH = 6
_MODULES = (
    "fsdp_mlp.threshold_4k",
    "halo_exchange_steps",
    "mixed_reductions",
    "ring_attention",
    "sequence_parallel_mlp",
)


@cache
def _modules() -> list[Module]:
    golden = CORPUS / "golden" / "0.10.2"
    return scheduled_modules([golden / name for name in _MODULES])


@pytest.mark.parametrize("kind", MUTATORS)
def test_fault_in_a_real_schedule_is_caught(kind: str) -> None:
    draw, real = random.Random(kind), 0
    for _ in range(20 * _EACH):
        verdict = judge(draw.choice(_modules()), MUTATORS[kind], draw)
        if verdict is not None:
            caught, why = verdict
            assert caught, why
            real += 1
        if real == _EACH:
            break
    assert real >= _EACH // 2


@pytest.mark.parametrize("kind", MAKERS)
def test_fault_in_a_made_schedule_is_caught(kind: str) -> None:
    draw = random.Random(kind)
    cases = [case for _ in range(4 * _EACH) if (case := MAKERS[kind](draw)).code]
    assert len(cases) >= _EACH
    for case in cases[:_EACH]:
        found = check_schedule(hlo_passes.parse(case.text), **case.options)
        assert {f.code for f in found} == {case.code}, case.text


@pytest.mark.parametrize("kind", LEGAL)
def test_legal_schedule_is_accepted(kind: str) -> None:
    draw = random.Random(kind)
    for _ in range(_EACH):
        case = LEGAL[kind](draw)
        found = check_schedule(hlo_passes.parse(case.text), **case.options)
        assert not found, case.text


def test_independent_neighbors_may_change_places() -> None:
    draw, swapped = random.Random(5), 0
    while swapped < 4 * _EACH:
        module = draw.choice(_modules())
        undo = legal_neighbors(draw, module)
        if undo is None:
            continue
        found = check_schedule(module, parallel_collective_overlap_limit=99)
        undo()
        assert not found
        swapped += 1


def test_devices_with_other_orders_are_caught() -> None:
    tally = devices_apart(_modules(), _EACH, seed=1)
    assert tally.real == tally.caught > 0
