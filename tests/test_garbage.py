"""What is made while the collector pauses is not walked, and is freed in the end."""

from __future__ import annotations

import gc
import weakref

import pytest

import hlo_passes
from hlo_passes import garbage
from hlo_passes.garbage import garbage_collection_paused


class _Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_made_counts_as_old() -> None:
    gc.unfreeze()  # what other code of this process froze
    with garbage_collection_paused():
        assert not gc.isenabled()
        made = [[] for _ in range(50_000)]
    assert gc.isenabled()
    assert gc.get_count()[0] < garbage._FEW
    assert gc.get_freeze_count() == 0
    assert len(made) == 50_000


def test_modules_that_are_garbage_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "_UNSEEN", 40_000)
    lines = "\n".join(f"  %n{k} = f32[8]{{0}} negate(%p)" for k in range(5000))
    text = (
        "HloModule m\n\nENTRY %e (p: f32[8]) -> f32[8] {\n"
        f"  %p = f32[8]{{0}} parameter(0)\n{lines}\n"
        "  ROOT %r = f32[8]{0} negate(%p)\n}\n"
    )
    alive = [weakref.ref(hlo_passes.parse(text)) for _ in range(12)]
    assert sum(one() is not None for one in alive) < 8


def test_what_somebody_else_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with garbage_collection_paused():
            nodes = [_Node() for _ in range(20_000)]
        assert gc.get_freeze_count() >= frozen - len(nodes)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with garbage_collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
