"""Parts of the improver with answers that are plain to see."""

from __future__ import annotations

import itertools

import pytest

from hlo_passes.scheduler.improver.problem import _Ranks
from tests.scheduler.improver import modules
from tests.scheduler.improver.test_window import check_moves

_GROUPS = (None, (), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1, 2, 3),), ((1,), (2,)))


def test_collectives_that_share_two_ranks_clash() -> None:
    ranks = _Ranks()
    for one, other in itertools.product(_GROUPS, repeat=2):
        shared = any(
            len(set(mine) & set(theirs)) > 1
            for mine in one or ()
            for theirs in other or ()
        )
        unknown = not one or not other
        for _ in range(2):  # the second time it is remembered
            assert ranks.clash(one, other) is (unknown or shared)


@pytest.mark.parametrize("limit", [1, 2])
def test_windows_where_everything_is_shorter_than_a_microsecond(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_COSTS", (0.0, 0.0625, 0.125, 0.25))
    monkeypatch.setattr(modules, "_LATENCIES", (0.03125, 0.25, 0.5))
    assert sum(check_moves(seed, limit, 60) for seed in range(6)) > 20
