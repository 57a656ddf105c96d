"""What makes XLA:TPU's scheduler price computations without anything asynchronous."""

from __future__ import annotations

from hlo_passes import verify
from hlo_passes.runtime.tuning.tpu_schedule import (
    ADDED,
    add_probes,
    unpriced,
    without_probes,
)
from hlo_passes.text.reader import parse
from tests.tpu.test_step import LOOPED


def test_what_has_no_price_gets_a_permute() -> None:
    module = parse(LOOPED)
    assert add_probes(module) == 1
    verify(module)
    added = {
        each.name: computation.name
        for computation in module.computations
        for each in computation.instructions
        if each.name.startswith(ADDED)
    }
    assert set(added.values()) == {"main"}  # the body has an all-gather-start
    assert len(added) == 3


def test_a_computation_whose_pairs_went_away_is_named() -> None:
    figures = {"total cycles": 1.0}
    costs = {"statistics": {"after": {"main": figures}}}
    assert unpriced(LOOPED, costs) == {"body"}
    assert unpriced("", {}) == frozenset()
    module = parse(LOOPED)
    assert add_probes(module, {"body"}) == 2
    verify(module)
    costs["statistics"]["after"]["body"] = figures
    assert unpriced(LOOPED, costs) == frozenset()


def test_the_permute_goes_away_again() -> None:
    module = parse(LOOPED)
    add_probes(module)
    assert ADDED in module.to_text()
    assert without_probes(module.to_text()) == LOOPED
    assert without_probes(LOOPED) == LOOPED
