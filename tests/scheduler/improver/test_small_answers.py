"""Parts of the improver with answers that are plain to see."""

from __future__ import annotations

import itertools
import random

import pytest

import hlo_passes
from benchmarks.growth_graphs import GRAPHS
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.improver import list_start
from hlo_passes.scheduler.improver.atoms import make_atoms
from hlo_passes.scheduler.improver.list_start import _List, list_orders
from hlo_passes.scheduler.improver.moves import Moves
from hlo_passes.scheduler.improver.problem import _Ranks, called_us
from hlo_passes.scheduler.improver.prove import Proof
from hlo_passes.scheduler.improver.solvers import CP_SAT, HIGHS, Limits
from hlo_passes.scheduler.improver.window import Window
from hlo_passes.scheduler.latency_hiding.resources import UNLIMITED, Resource
from hlo_passes.scheduler.simulation.program import Call
from tests.scheduler.improver import modules
from tests.scheduler.improver.modules import problems, random_module
from tests.scheduler.improver.naive import walk
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


@pytest.mark.parametrize("unit", [1.0, 1 / 64])
def test_a_list_schedule_takes_as_long_as_a_plain_walk(
    unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_COSTS", [unit * us for us in modules._COSTS])
    monkeypatch.setattr(modules, "_LATENCIES", [unit * us for us in modules._LATENCIES])
    made = 0
    for seed in range(12):
        module, costs = random_module(seed)
        for problem in problems(module, costs, parallel_async_compute_limit=1):
            atoms = make_atoms(problem)
            found = _List(atoms, list_start._tails(atoms)).run()
            if found is None:
                continue
            made += 1
            expected = walk(atoms, found[1])
            assert not expected.breaks
            assert found[0] == pytest.approx(expected.step_us, rel=1e-12)
            steps = [walk(atoms, order).step_us for order in list_orders(atoms)]
            assert steps[0] <= expected.step_us * (1 + 1e-12)
            assert steps == sorted(steps)
    assert made >= 20


def test_copies_on_the_gpu_have_no_limit() -> None:
    """XLA's is a number; no program has as many in flight."""
    problem, *_ = problems(*random_module(0))
    assert problem.limits[Resource.GPU_MEMCPY] == UNLIMITED
    assert problem.limits[Resource.GPU_COLLECTIVES] == 1


def test_most_moves_are_near_and_some_are_far() -> None:
    module = hlo_passes.parse(GRAPHS["pairs"].text(400))
    names = [i.name for i in module.entry.instructions]
    costs = TableEstimator(dict.fromkeys(names, 1.0), dict.fromkeys(names, 5.0))
    (problem,) = problems(module, costs)
    window = Window(make_atoms(problem), 1 << 60)
    window.set_order(range(len(window.position)))
    moves = Moves(window, random.Random(1).random)
    assert moves.look()
    tried = [move for move in (moves.propose() for _ in range(1000)) if move]
    far = sum(len(new) > 301 for _, new in tried)
    assert 0 < far < 0.15 * len(tried)


# -- what a proof says ---------------------------------------------------------


@pytest.mark.parametrize(
    ("proof", "verdict"),
    [
        (Proof("c", 10.0, 8.0, 10.0), "proved optimal"),
        (Proof("c", 10.0, 10.0, 10.0), "proved optimal"),
        (Proof("c", 10.0 + 1e-4, 8.0, 10.0), "bound raised"),
        (Proof("c", 10.0, 8.0, 9.0), "bound raised"),
        (Proof("c", 10.0, 8.0, 8.0), "no proof"),
        # HiGHS's tolerances: 4e-6 of the step, for what is reached and what is gained.
        (Proof("c", 10.0, 8.0, 10.0 * (1 - 3.5e-6), HIGHS), "proved optimal"),
        (Proof("c", 10.0, 8.0, 10.0 * (1 - 4.5e-6), HIGHS), "bound raised"),
        (Proof("c", 10.0, 8.0, 10.0 * (1 - 3.5e-6), CP_SAT), "bound raised"),
        (Proof("c", 10.0, 8.0, 10.0 * (1 - 0.5e-6), CP_SAT), "proved optimal"),
        (Proof("c", 10.0, 8.0, 8.0 * (1 + 3.5e-6), CP_SAT), "no proof"),
        (Proof("c", 10.0, 8.0, 8.0 * (1 + 4.5e-6), CP_SAT), "bound raised"),
    ],
)
def test_verdicts(proof: Proof, verdict: str) -> None:
    assert proof.verdict == verdict
    assert proof.to_json()["verdict"] == verdict
    assert proof.text(Limits(nodes=5)).startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    ("limits", "nodes", "said"),
    [
        (Limits(seconds=9.0), 7, "gave up after 2.5 s"),
        (Limits(nodes=7), 7, "gave up after 7 NODES"),
        (Limits(nodes=7), 3, "gave up after 3 NODES"),
        (Limits(seconds=9.0, nodes=7), 7, "gave up after 7 NODES"),
        (Limits(seconds=9.0, nodes=7), 3, "gave up after 2.5 s"),
    ],
)
@pytest.mark.parametrize(
    ("solver", "name", "unit"),
    [(HIGHS, "HiGHS", "nodes"), (CP_SAT, "CP-SAT", "conflicts")],
)
def test_what_ended_a_proof(
    limits: Limits, nodes: int, said: str, solver: str, name: str, unit: str
) -> None:
    for bound in (8.0, 9.0):
        proof = Proof("c", 10.0, 8.0, bound, solver, seconds=2.5, nodes=nodes)
        text = proof.text(limits)
        assert text.endswith(f"{name} {said.replace('NODES', unit)}")
        assert "%c" in text


def test_a_proof_says_why_nobody_was_asked() -> None:
    proof = Proof("c", 10.0, 8.0, 8.0, why_not="there is no model")
    assert proof.text(Limits()) == (
        "no proof: %c takes 10 us, and its bound is 8: there is no model"
    )
    closed = Proof("c", 10.0, 8.0, 9.0, HIGHS, is_closed=True)
    assert "HiGHS closed its model" in closed.text(Limits())
    optimal = Proof("c", 10.0, 8.0, 10.0, HIGHS, is_closed=True)
    assert optimal.text(Limits()) == (
        "proved optimal: no order of %c takes less than its 10 us, whatever the memory "
        "(HiGHS)"
    )


def test_what_is_called_takes_as_long_as_it_runs() -> None:
    module, _ = random_module(0)
    one, other = module.computations[:2]
    steps = {one: 4.0, other: 8.0}
    assert called_us(Call(0, (one,), 3, ()), steps) == 12.0
    # Of branches the longest one runs, or each by its share.
    assert called_us(Call(0, (one, other), 1, ()), steps) == 8.0
    assert called_us(Call(0, (one, other), 1, (0.25, 0.75)), steps) == 7.0
