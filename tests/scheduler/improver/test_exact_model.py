"""The model of all orders has a point for each order, and no other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import hlo_passes
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.improver import exact_model as models
from hlo_passes.scheduler.improver.atoms import (
    COMPUTES,
    HOLDS,
    STARTS,
    Atoms,
    make_atoms,
)
from hlo_passes.scheduler.improver.exact_model import ExactModel, exact_model
from hlo_passes.scheduler.improver.reach import Reach, reach_of
from tests.scheduler.improver.modules import problems, random_module
from tests.scheduler.improver.naive import walk
from tests.scheduler.improver.orders import MOST_ORDERS, orders

#: Columns of a model of which all points are tried.
_MOST_COLUMNS = 12


def _models(loops: bool, seeds: Iterator[int]) -> Iterator[tuple[Atoms, ExactModel]]:
    """Models of whole problems: all pairs exclude each other."""
    for seed in seeds:
        module, costs = random_module(seed, length=5, loops=loops)
        for problem in problems(module, costs):
            atoms = make_atoms(problem)
            starts = [v for v, kind in enumerate(atoms.kind) if kind == STARTS]
            if len({atoms.resource[v] for v in starts}) != 1:
                continue
            model = exact_model(atoms, reach_of(atoms))
            if isinstance(model, str):
                continue  # its limit is not 1
            assert model.pairs == len(starts)
            if len(model.upper) - len(model.hidden) <= _MOST_COLUMNS:
                yield atoms, model


def _points(model: ExactModel) -> int:
    """How many whole points are within all rows that have no time in them."""
    free = [k for k, is_whole in enumerate(model.is_whole) if is_whole]
    assert sorted([*free, *model.hidden]) == list(range(len(model.upper)))
    assert {(model.lower[k], model.upper[k]) for k in free} <= {(0.0, 1.0)}
    grid = (np.arange(1 << len(free))[:, None] >> np.arange(len(free))) & 1
    place = {column: k for k, column in enumerate(free)}
    rows: dict[int, list[tuple[int, float]]] = defaultdict(list)
    entries = zip(model.places, model.columns, model.factors, strict=True)
    for row, column, factor in entries:
        rows[row].append((column, factor))
    holds = np.ones(len(grid), bool)
    limits = zip(model.row_lower, model.row_upper, strict=True)
    for row, (low, high) in enumerate(limits):
        if all(column in place for column, _ in rows[row]):
            sums = sum(grid[:, place[column]] * factor for column, factor in rows[row])
            holds &= (low - 1e-9 <= sums) & (sums <= high + 1e-9)
    return int(holds.sum())


def _placed(atoms: Atoms, reach: Reach, order: Sequence[int]) -> tuple[int, ...]:
    """Which pair is before which, and where all others are that take time or limits."""
    place = {v: k for k, v in enumerate(order)}
    pairs = [(place[s], place[atoms.partner[s]]) for s in reach.starts]
    others = [
        place[v]
        for v in range(len(atoms))
        if atoms.kind[v] in (COMPUTES, HOLDS)
        if atoms.cost_us[v] > 0.0 or v in reach.alone
    ]
    before = [one < other for one, other in itertools.combinations(pairs, 2)]
    where = [(own > s) + (own > d) for own in others for s, d in pairs]
    return (*before, *where)


@pytest.mark.parametrize(
    ("loops", "first", "least"), [(False, 0, 8), (True, 100, 8), (False, 200, 8)]
)
def test_points_are_orders(loops: bool, first: int, least: int) -> None:
    compared = 0
    for atoms, model in _models(loops, iter(range(first, first + 40))):
        reach = reach_of(atoms)
        tried = list(itertools.islice(orders(atoms), MOST_ORDERS + 1))
        if len(tried) > MOST_ORDERS:
            continue
        legal = [order for order in tried if not walk(atoms, order).breaks]
        expected = {_placed(atoms, reach, order) for order in legal}
        if not expected:
            continue
        assert _points(model) == len(expected)
        compared += 1
    assert compared >= least


_THREE = """HloModule three, is_scheduled=true, num_partitions=4

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (p: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %w = f32[8]{0} negate(%p)
  %own = f32[8]{0} copy(%p)
  %a = f32[8]{0} all-reduce-start(%own), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
  %ad = f32[8]{0} all-reduce-done(%a)
  %b = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%p)
  %bd = f32[8]{0} copy-done(%b)
  %c = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%p)
  %cd = f32[8]{0} copy-done(%c)
  ROOT %out = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(%w, %ad, %bd, %cd)
}
"""
_THREE_COSTS = TableEstimator({"w": 5.0}, {"a": 10.0, "b": 50.0, "c": 50.0})


@pytest.mark.parametrize(("limit", "pairs"), [(1, 2), (2, 1), (1 << 30, 1)])
def test_pairs_that_may_overlap_are_left_out(limit: int, pairs: int) -> None:
    """The copies take longest, and are the model's if they exclude each other."""
    (problem,) = problems(
        hlo_passes.parse(_THREE), _THREE_COSTS, parallel_async_compute_limit=limit
    )
    atoms = make_atoms(problem)
    model = exact_model(atoms, reach_of(atoms))
    assert isinstance(model, ExactModel)
    assert model.pairs == pairs
    assert model.operations == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"parallel_collective_overlap_limit": 2}, "no overlap limit of 1 applies"),
        ({}, ""),
    ],
)
def test_a_problem_without_a_model_says_why(settings: dict[str, int], why: str) -> None:
    (problem,) = problems(
        hlo_passes.parse(_THREE),
        _THREE_COSTS,
        parallel_async_compute_limit=2,
        **settings,
    )
    atoms = make_atoms(problem)
    found = exact_model(atoms, reach_of(atoms))
    assert isinstance(found, str) is bool(why)
    assert why in str(found)


@pytest.mark.parametrize(("name", "most"), [("MOST_OPERATIONS", 1), ("MOST_PAIRS", 2)])
def test_a_model_may_be_as_large_as_its_limit(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem,) = problems(
        hlo_passes.parse(_THREE), _THREE_COSTS, parallel_async_compute_limit=1
    )
    atoms = make_atoms(problem)
    monkeypatch.setattr(models, name, most)
    assert isinstance(exact_model(atoms, reach_of(atoms)), ExactModel)
    monkeypatch.setattr(models, name, most - 1)
    found = exact_model(atoms, reach_of(atoms))
    assert str(found).endswith(f"are more than the {most - 1} of a model")


_FREE = """HloModule free, is_scheduled=true, num_partitions=4

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (p: f32[8], q: f32[8], r: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %r = f32[8]{0} parameter(2)
  %w = f32[8]{0} constant({...})
  %work = f32[8]{0} negate(%w)
  %a = f32[8]{0} all-reduce-start(%p), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
  %ad = f32[8]{0} all-reduce-done(%a)
  %b = f32[8]{0} all-reduce-start(%q), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
  %bd = f32[8]{0} all-reduce-done(%b)
  %c = f32[8]{0} all-reduce-start(%r), channel_id=3, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
  %cd = f32[8]{0} all-reduce-done(%c)
  ROOT %out = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(%work, %ad, %bd, %cd)
}
"""


@pytest.mark.parametrize(
    ("most_spans", "points"),
    [
        # The pairs in six orders; the work in one of three windows or four gaps.
        (models.MOST_SPANS, 6 * (3 + 4)),
        # Without the rows that tie both: in one window at most, on any side of others.
        (0, 6 * (3 * 2**2 + 2**3)),
    ],
)
def test_three_pairs_in_any_order(
    most_spans: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = TableEstimator({"work": 5.0}, {"a": 10.0, "b": 10.0, "c": 10.0})
    (problem,) = problems(hlo_passes.parse(_FREE), costs)
    atoms = make_atoms(problem)
    monkeypatch.setattr(models, "MOST_SPANS", most_spans)
    model = exact_model(atoms, reach_of(atoms))
    assert isinstance(model, ExactModel)
    assert model.is_complete is bool(most_spans)
    assert _points(model) == points


_LOOP_BESIDE = """HloModule beside, is_scheduled=true, num_partitions=4

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%body (t: f32[8]) -> f32[8] {
  %t = f32[8]{0} parameter(0)
  %in = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%t)
  ROOT %ind = f32[8]{0} copy-done(%in)
}

%cond (c: f32[8]) -> pred[] {
  %c = f32[8]{0} parameter(0)
  ROOT %more = pred[] constant(false)
}

ENTRY %main (p: f32[8], q: f32[8]) -> (f32[8], f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %init = f32[8]{0} constant({...})
  %a = f32[8]{0} all-reduce-start(%p), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
  %ad = f32[8]{0} all-reduce-done(%a)
  %b = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%q)
  %bd = f32[8]{0} copy-done(%b)
  %loop = f32[8]{0} while(%init), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(%loop, %ad, %bd)
}
"""


def test_a_loop_with_a_copy_inside_fits_beside_the_collective_of_the_model() -> None:
    costs = TableEstimator({}, {"in": 10.0, "a": 100.0, "b": 5.0})
    problem = problems(
        hlo_passes.parse(_LOOP_BESIDE), costs, parallel_async_compute_limit=1
    )[-1]
    atoms = make_atoms(problem)
    reach = reach_of(atoms)
    assert [*reach.alone.values()] == [0b10]  # the copy, which is not in the model
    model = exact_model(atoms, reach)
    assert isinstance(model, ExactModel)
    assert model.pairs == 1
    # The loop before, inside and after the collective.
    assert _points(model) == 3


def test_what_is_certain_is_written_in_one_way() -> None:
    """Rows are left out where a term is the one or the other."""
    zero, one = models._ZERO, models._ONE
    assert (models._less(one), models._less(zero)) == (zero, one)
    assert models._negated(zero) == zero
