"""The overlap bound against all orders of small scenes, and against every cut."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_passes.ir.computation import Computation
from hlo_passes.scheduler.simulation import overlap_bound
from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from tests.scheduler.improver.modules import MACHINE, random_module
from tests.scheduler.simulation.scenes import Scene, scenes
from tests.scheduler.simulation.steps import (
    Branches,
    CallOf,
    Compute,
    Done,
    Loop,
    Start,
    Steps,
    costs_of,
    module_of,
)

EXAMPLES = 100
_MOST_ORDERS = 2_000
NEAR = 1 + 1e-9


@given(scenes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_order_is_below_the_bound(scene: Scene) -> None:
    orders = itertools.islice(scene.orders(), _MOST_ORDERS)
    optimum = min(map(scene.step_us, orders))
    for bound, old in scene.bounds().values():
        assert bound <= optimum * NEAR
        assert bound >= old / NEAR


@given(scenes(), st.sampled_from([(2, 10**6), (512, 0), (1, 3)]))
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_a_search_that_gives_up_overlaps_more(
    scene: Scene, limits: tuple[int, int]
) -> None:
    exact = scene.bounds()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap_bound, "MOST_PAIRS", limits[0])
        patch.setattr(overlap_bound, "_STEPS", limits[1])
        patch.setattr(overlap_bound, "_STEPS_PER_NODE", 0)
        rough = scene.bounds()
    for k, (bound, old) in rough.items():
        assert old / NEAR <= bound <= exact[k][0] * NEAR


@given(scenes(most=16))
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_flow_is_the_least_cut(scene: Scene) -> None:
    overlaps = Overlaps(scene.preds, scene.pairs)
    beside = {v: _beside(scene, v) for v in scene.room()}
    starts = [pair.start for pair in scene.pairs]
    cuts = []
    for size in range(len(starts) + 1):
        for chosen in itertools.combinations(starts, size):
            cut = sum(pair.us for pair in scene.pairs if pair.start in chosen)
            for v, us in scene.room().items():
                cut += 0.0 if beside[v] <= set(chosen) else us
            cuts.append(cut)
    most = overlaps.most_us(scene.pairs, scene.room())
    assert most == pytest.approx(min(cuts), rel=1e-9, abs=1e-9)


def _beside(scene: Scene, v: int) -> set[int]:
    """Starts of pairs that no path puts before or after an instruction."""

    def above(node: int) -> set[int]:
        found, stack = {node}, [node]
        while stack:
            for p in scene.preds[stack.pop()]:
                if p not in found:
                    found.add(p)
                    stack.append(p)
        return found

    return {
        pair.start
        for pair in scene.pairs
        if pair.done not in above(v) and v not in above(pair.start)
    }


def test_what_must_run_before_or_after_all_pairs_hides_none() -> None:
    # h, then i and j side by side, then t; b is free.
    preds = [[], [], [0], [0], [2], [3], [4, 5]]
    costs = [30.0, 10.0, 0.0, 0.0, 0.0, 0.0, 20.0]
    pairs = [Pair(2, 4, 40.0), Pair(3, 5, 40.0)]
    scene = Scene(preds, costs, pairs, {2: 0, 3: 0})
    assert scene.bounds()[0] == (130.0, 80.0)
    assert min(map(scene.step_us, scene.orders())) == 130.0


def test_times_that_no_sum_can_hold_say_nothing() -> None:
    overlaps = Overlaps([[], [], [1]], [Pair(1, 2, float("inf"))])
    most = overlaps.most_us([Pair(1, 2, float("inf"))], {0: 1.0})
    assert math.isnan(most)


# -- in the simulator ---------------------------------------------------------------


def _simulated(steps: Steps, **rules) -> Timeline:
    return simulate_with(
        module_of(steps), "h100_sxm", MACHINE, costs_of(steps), Rules(**rules)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_holds_in_all_orders_and_is_the_same(seed: int) -> None:
    module, costs = random_module(seed, length=12)
    draw = random.Random(seed)
    bounds, steps = [], []
    for _ in range(6):
        timeline = simulate_with(module, "h100_sxm", MACHINE, costs, Rules())
        for times in timeline.computations.values():
            assert times.lower_bound_us <= times.step_time_us * NEAR
        bounds.append(timeline.lower_bound_us)
        steps.append(timeline.step_time_us)
        for computation in module.computations:
            _shuffle(computation, draw)
    assert max(bounds) <= min(steps) * NEAR
    assert max(bounds) <= min(bounds) * NEAR


def _shuffle(computation: Computation, draw: random.Random) -> None:
    """Put the instructions in another order that holds all operands."""
    left = list(computation.instructions)
    placed: list = []
    while left:
        known = set(placed)
        ready = [
            i
            for i in left
            if known.issuperset((*i.operands, *i.control_predecessors))
            and (i is not computation.root or len(left) == 1)
        ]
        chosen = draw.choice(ready)
        left.remove(chosen)
        placed.append(chosen)
    computation.set_order(placed)


def test_a_loop_counts_on_the_lane_as_long_as_it_leaves_the_stream_free() -> None:
    body = (Start("b", 30.0), Compute("c", 10.0), Done("b"))
    steps = (Start("a", 50.0), Loop("w", 2, body), Done("a"), Compute("t", 5.0))
    times = _simulated(steps, streams=1).times
    # All that the stream runs, and nothing of it beside %t.
    assert times.lower_bound_us == 50.0 + 2 * 30.0 + 5.0
    assert times.bound_by == "overlap with communication 0"
    assert times.bound_why == (
        "compute with loops takes 65.0 us, communication 0 outside them 50.0 us, and "
        "dependences let at most 0.0 us of that overlap"
    )


def test_branches_that_run_in_parts_do_not_queue_with_what_is_outside() -> None:
    branches = Branches("if", ((Start("b", 100.0), Done("b")), (Compute("c", 1.0),)))
    steps = (Start("a", 100.0), CallOf("f", (branches,)), Done("a"))
    timeline = _simulated(steps, streams=1, branch_probabilities={"if": (1.0, 0.0)})
    assert timeline.step_time_us == 100.0
    assert timeline.lower_bound_us <= 100.0
