"""Evaluation in a window says what a walk over the whole order says, after each move."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import hlo_passes
from benchmarks.growth_graphs import GRAPHS
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.improver.atoms import make_atoms
from hlo_passes.scheduler.improver.evaluation import step_us
from hlo_passes.scheduler.improver.list_start import list_orders
from hlo_passes.scheduler.improver.moves import Moves
from hlo_passes.scheduler.improver.problem import Problem
from hlo_passes.scheduler.improver.proof import fault_of, peak_bytes
from hlo_passes.scheduler.improver.window import Window
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.step import run_step
from tests.scheduler.improver import modules
from tests.scheduler.improver.modules import MACHINE, problems, random_module
from tests.scheduler.improver.naive import walk

_NO_CAP = 1 << 60


def check_moves(seed: int, limit: int, moves: int, **settings: bool) -> int:
    """Compare after every move; how many were taken."""
    module, costs = random_module(seed)
    return sum(
        check_problem(problem, random.Random(seed).random, moves)
        for problem in problems(
            module,
            costs,
            parallel_collective_overlap_limit=limit,
            parallel_async_compute_limit=2,
            **settings,
        )
    )


def check_problem(problem: Problem, draw: Callable[[], float], moves: int) -> int:
    """Compare after every move of one computation; how many were taken."""
    atoms = make_atoms(problem)
    window = Window(atoms, _NO_CAP)
    window.set_order(range(len(atoms)))
    proposer = Moves(window, draw)
    taken = 0
    for _ in range(moves if proposer.can_move else 0):
        proposer._exposed = proposer._dones
        move = proposer.propose()
        if move is None:
            continue
        low, new = move
        assert sorted(new) == sorted(window.order[low : low + len(new)])
        whole = [*window.order[:low], *new, *window.order[low + len(new) :]]
        expected = walk(atoms, whole)
        before = window.total_us
        if not window.try_window(low, new, 30.0):
            too_long = expected.step_us - before > 30.0 - 1e-6
            assert expected.breaks or too_long
            continue
        taken += 1
        assert not expected.breaks
        assert window.order == whole
        check_state(window)
        nodes = atoms.expand(whole)
        assert fault_of(problem, nodes) == ""
    return taken


def check_state(window: Window) -> None:
    """The state of a window is what a whole walk finds."""
    expected = walk(window.atoms, window.order)
    assert window.total_us == pytest.approx(expected.step_us, abs=1e-6)
    for done, us in expected.waits.items():
        assert window.wait_us[done] == pytest.approx(us, abs=1e-6)
    for place, known in enumerate(expected.in_flight):
        assert window.in_flight(place) == pytest.approx(known, abs=1e-6)
    assert window.usage == expected.usage
    assert [window.order[p] for p in window.position] == list(range(len(window.order)))


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_windows_are_whole_walks(limit: int) -> None:
    taken = sum(
        check_moves(seed, limit, 60) for seed in range(10 * limit, 10 * limit + 8)
    )
    assert taken > 100


def test_windows_where_some_collectives_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ("{0,1,2,3},{4,5,6,7}", "{0,4},{1,5},{2,6},{3,7}")
    monkeypatch.setattr(modules, "_GROUPS", groups)
    streams = {"enable_collective_multi_streaming": True}
    assert sum(check_moves(seed, 4, 60, **streams) for seed in range(8)) > 60


def test_a_window_keeps_groups_together() -> None:
    """All new windows of all orders of two groups and an atom of none."""
    group_of = [0, 0, 1, 1, -1]

    def is_whole(order: Sequence[int]) -> bool:
        groups = [g for g, _ in itertools.groupby(group_of[v] for v in order)]
        return len(groups) == len(set(groups))

    for order in filter(is_whole, itertools.permutations(range(5))):
        window: Any = SimpleNamespace(
            atoms=SimpleNamespace(group_of=group_of), order=order
        )
        for low, high in itertools.combinations(range(6), 2):
            for new in itertools.permutations(order[low:high]):
                whole = (*order[:low], *new, *order[high:])
                keeps = Window._keeps_groups(window, low, list(new))
                assert keeps == is_whole(whole), (order, whole)


@pytest.mark.parametrize("seed", range(12))
def test_an_order_takes_as_long_as_the_simulator_says(seed: int) -> None:
    module, costs = random_module(seed)
    step = run_step(module, MACHINE, costs, Rules())
    for problem in problems(
        module,
        costs,
        parallel_collective_overlap_limit=9,
        parallel_async_compute_limit=9,
    ):
        atoms = make_atoms(problem)
        order = list(range(len(atoms)))
        run = step.engine.cold(problem.computation)
        assert step_us(atoms, order) == pytest.approx(run.lane_end[0], rel=1e-12)
        assert walk(atoms, order).step_us == pytest.approx(run.lane_end[0], rel=1e-12)
        nodes = atoms.expand(order)
        assert sorted(nodes) == list(range(len(problem)))
        assert fault_of(problem, nodes) == ""
        memory = problem.memory
        exact = memory.peak_bytes([problem.instructions[n] for n in nodes])
        assert peak_bytes(problem, nodes) == exact


def test_a_window_knows_its_peak() -> None:
    for seed in range(6):
        module, costs = random_module(seed)
        for problem in problems(
            module,
            costs,
            parallel_collective_overlap_limit=9,
            parallel_async_compute_limit=9,
        ):
            atoms = make_atoms(problem)
            window = Window(atoms, _NO_CAP)
            assert window.set_order(range(len(atoms)))
            assert window.peak_bytes == walk(atoms, window.order).peak


def _open_pairs(count: int, draw: random.Random) -> Problem:
    """All in flight together, at prices by chance."""
    module = hlo_passes.parse(GRAPHS["open pairs"].text(count))
    names = [i.name for i in module.entry.instructions]
    costs = TableEstimator(
        {n: draw.choice((0.0, 1.0, 7.0)) for n in names if n[0] in "vw"},
        {n: draw.choice((2.0, 5.0, 20.0)) for n in names if n[0] == "s"},
    )
    (problem,) = problems(module, costs, parallel_collective_overlap_limit=99)
    return problem


def test_what_is_not_written_down_is_run_on_to() -> None:
    window = Window(make_atoms(_open_pairs(20, random.Random(7))), _NO_CAP)
    assert window.set_order(range(len(window.position)))
    assert any(isinstance(each, int) for each in window.open_at)
    check_state(window)


def test_of_much_in_flight_not_every_place_is_written_down() -> None:
    draw = random.Random(7)
    problem = _open_pairs(40, draw)
    assert check_problem(problem, draw.random, 300) > 20
    window = Window(make_atoms(problem), _NO_CAP)
    window.set_order(range(len(window.position)))
    written = sum(len(each) for each in window.open_at if isinstance(each, tuple))
    assert written < 9 * len(window.open_at)


@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_hold_several_resources(seed: int) -> None:
    """As calls on SparseCores do: some on one of two, some on both."""
    module, costs = random_module(seed, loops=False)
    draw = random.Random(seed)
    several = 0
    for problem in problems(module, costs, parallel_collective_overlap_limit=3):
        spare = [len(problem.limits), len(problem.limits) + 1]
        problem.limits += [1, 2]
        for n, starts in enumerate(problem.is_start):
            if not starts or problem.partner[n] < 0:
                continue
            held = [r for r in spare if draw.random() < 0.6]
            several += bool(held)
            for node, change in ((n, 1), (problem.partner[n], -1)):
                own = problem.changes.get(node, ())
                problem.changes[node] = (*own, *((r, change) for r in held))
        atoms = make_atoms(problem)
        if walk(atoms, range(len(atoms))).breaks:
            continue
        check_problem(problem, draw.random, 60)
        for order in list_orders(atoms):
            assert not walk(atoms, order).breaks
    assert several
