"""An evaluation with a mistake in it is caught by the comparison with whole walks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hlo_passes.scheduler.improver import window
from tests.scheduler.improver.test_window import check_moves

_SEEDS = (10, 11, 12, 13)


def _all_moves(seeds: Iterable[int] = _SEEDS, moves: int = 40) -> None:
    for limit in (1, 2):
        for seed in seeds:
            check_moves(seed, limit, moves)


def test_without_a_mistake_nothing_is_found() -> None:
    _all_moves()


def test_stopping_before_times_agree_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window, "_agree", lambda *_: True)
    with pytest.raises(AssertionError):
        _all_moves()


def test_forgetting_a_queue_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    record = window.Window._record

    def without_queue(self: window.Window, low: int, high: int) -> None:
        record(self, low, high)
        self.open_at[high] = ()

    monkeypatch.setattr(window.Window, "_record", without_queue)
    with pytest.raises(AssertionError):
        _all_moves()


def test_forgetting_what_is_in_flight_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        window.Window, "_used_at", lambda self, *_: list(self.atoms.base_used)
    )
    with pytest.raises(AssertionError):
        _all_moves()


def test_forgetting_readers_below_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = window.Window._memory

    def without_readers(
        self: window.Window, new: list[int], high: int, cap_bytes: float
    ) -> tuple[list[int], int] | None:
        users, self.atoms.users = self.atoms.users, {b: [] for b in self.atoms.users}
        try:
            return memory(self, new, high, cap_bytes)
        finally:
            self.atoms.users = users

    monkeypatch.setattr(window.Window, "_memory", without_readers)
    with pytest.raises(AssertionError):
        _all_moves()


def test_forgetting_what_callees_need_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = window.Window._change

    def without_needs(
        self: window.Window, low: int, new: list[int], threshold_us: float
    ) -> tuple[float, int] | None:
        needs, self.atoms.needs = self.atoms.needs, {}
        try:
            return change(self, low, new, threshold_us)
        finally:
            self.atoms.needs = needs

    monkeypatch.setattr(window.Window, "_change", without_needs)
    with pytest.raises(AssertionError):
        _all_moves(range(10, 30), 60)
