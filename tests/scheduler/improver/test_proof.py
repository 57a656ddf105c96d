"""The exact judges of whole orders, against plain walks, XLA's statistic and by hand."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from hlo_passes.scheduler.improver.atoms import make_atoms
from hlo_passes.scheduler.improver.evaluation import opinion_against, xla_total_us
from hlo_passes.scheduler.improver.problem import Problem
from hlo_passes.scheduler.improver.proof import fault_of, peak_bytes, xla_us
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics
from tests.scheduler.improver.modules import problems, random_module
from tests.scheduler.improver.naive import walk
from tests.scheduler.improver.orders import random_order

_LIMITS: dict[str, Any] = {
    "parallel_collective_overlap_limit": 2,
    "parallel_async_compute_limit": 1,
}


def _problems(seed: int) -> Iterator[Problem]:
    module, costs = random_module(seed, length=12)
    yield from problems(module, costs, **_LIMITS)


@pytest.mark.parametrize("seed", range(12))
def test_limits_are_those_of_a_plain_walk(seed: int) -> None:
    draw = random.Random(seed)
    for problem in _problems(seed):
        atoms = make_atoms(problem)
        for _ in range(20):
            order = random_order(atoms, draw)
            fault = fault_of(problem, atoms.expand(order))
            assert ("is beyond the limit of" in fault) is walk(atoms, order).breaks
            assert bool(fault) is walk(atoms, order).breaks


def test_both_answers_of_the_limits_occur() -> None:
    draw = random.Random(1)
    found = set()
    for problem in itertools.chain.from_iterable(map(_problems, range(4))):
        atoms = make_atoms(problem)
        nodes = [atoms.expand(random_order(atoms, draw)) for _ in range(20)]
        found |= {bool(fault_of(problem, order)) for order in nodes}
    assert found == {True, False}


@pytest.mark.parametrize("seed", range(6))
def test_the_length_in_xlas_statistic(seed: int) -> None:
    draw = random.Random(seed)
    module, costs = random_module(seed, length=12)
    tracker = make_tracker(SchedulerSettings(**_LIMITS))
    for problem in problems(module, costs, **_LIMITS):
        atoms = make_atoms(problem)
        given = problem.instructions
        for _ in range(8):
            order = random_order(atoms, draw)
            nodes = atoms.expand(order)
            problem.computation.set_order([given[n] for n in nodes])
            expected = lhs_statistics(problem.computation, costs, tracker).total_us
            assert xla_us(problem, nodes) == pytest.approx(expected)
            assert xla_total_us(atoms, order) == pytest.approx(expected)
        problem.computation.set_order(given)


def test_an_order_is_accepted_if_no_other_opinion_calls_it_worse() -> None:
    draw = random.Random(1)
    wide = dict.fromkeys(_LIMITS, 9)
    seen: set[tuple[bool, ...]] = set()
    for seed in (1, 2):
        module, costs = random_module(seed, length=12)
        for problem in problems(module, costs, **wide):
            atoms = make_atoms(problem)
            if len({s for s in atoms.stream if s >= 0}) < 2:
                continue
            one_queue = dataclasses.replace(
                atoms, stream=[min(s, 0) for s in atoms.stream]
            )
            given = random_order(atoms, draw)
            is_accepted = opinion_against(atoms, given)
            for _ in range(25):
                order = random_order(atoms, draw)
                found = tuple(
                    length(order) <= length(given) * (1 + 1e-9)
                    for length in (
                        lambda o, a=one_queue: walk(a, o).step_us,
                        lambda o, a=atoms: xla_total_us(a, o),
                    )
                )
                seen.add(found)
                assert is_accepted(order) is all(found)
    assert {(False, True), (True, True)} < seen


@pytest.mark.parametrize("seed", range(6))
def test_the_peak_is_that_of_the_memory_model(seed: int) -> None:
    draw = random.Random(seed)
    for problem in _problems(seed):
        atoms = make_atoms(problem)
        for _ in range(8):
            nodes = atoms.expand(random_order(atoms, draw))
            order = [problem.instructions[n] for n in nodes]
            assert peak_bytes(problem, nodes) == problem.memory.peak_bytes(order)


def test_every_edge_holds() -> None:
    (problem, *_) = _problems(3)
    given = list(range(len(problem)))
    for n, succs in enumerate(problem.succs):
        for s in succs:
            order = [*given]
            order.remove(s)
            order.insert(order.index(n), s)
            assert "comes before" in fault_of(problem, order)


@pytest.mark.parametrize("order", [[], [0, 0], [0], [0, 1, 1]])
def test_what_is_no_order_of_all_instructions(order: list[int]) -> None:
    (problem, *_) = _problems(3)
    rest = range(len(order), len(problem) - 1)
    assert fault_of(problem, [*order, *rest]) == (
        "it is not an order of all instructions"
    )


def test_starts_that_clash_are_not_in_flight_together() -> None:
    draw = random.Random(2)
    seen = set()
    for problem in itertools.chain.from_iterable(map(_problems, range(6))):
        atoms = make_atoms(problem)
        order = atoms.expand(random_order(atoms, draw))
        if fault_of(problem, order):
            continue
        starts = [n for n in order if problem.is_start[n]]
        for one, other in itertools.combinations(starts, 2):
            clashes = {one: frozenset({other}), other: frozenset({one})}
            fault = fault_of(dataclasses.replace(problem, clashes=clashes), order)
            is_apart = order.index(problem.partner[one]) < order.index(other)
            seen.add(is_apart)
            clash = f"%{problem.name(other)} shares ranks with what is in flight"
            assert fault == ("" if is_apart else clash)
    assert seen == {True, False}
