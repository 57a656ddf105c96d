"""The bound between a head and a tail against all orders of small scenes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hlo_passes.scheduler.simulation import one_window, section_bound
from hlo_passes.scheduler.simulation.one_window import most_hidden_us
from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair
from hlo_passes.scheduler.simulation.section_bound import (
    Lanes,
    Section,
    bound_of,
    longest_section,
)
from tests.scheduler.simulation.scenes import Scene, scenes

EXAMPLES = 150
MOST_ORDERS = 3_000
NEAR = 1 + 1e-9


def lanes_of(scene: Scene, *, one_by_one: bool = False) -> Lanes:
    pairs: dict[int, list[Pair]] = {}
    for pair in scene.pairs:
        pairs.setdefault(scene.stream[pair.start], []).append(pair)
    return Lanes(
        Overlaps(scene.preds, scene.pairs),
        scene.cost_us,
        dict.fromkeys(pairs, scene.room()),
        pairs,
        frozenset(pairs) if one_by_one else frozenset(),
    )


def check_no_order_is_below(scene: Scene, most_orders: int = MOST_ORDERS) -> int:
    """Compare with orders of a scene, with and without a limit; how many there were."""
    tried = list(itertools.islice(scene.orders(), most_orders))
    steps = [(scene.step_us(order), scene.has_one_by_one(order)) for order in tried]
    found = longest_section(lanes_of(scene))
    assert found.us <= min(us for us, _ in steps) * NEAR
    known = [bound for bound, _ in scene.bounds().values()]
    assert found.us >= max(known, default=0.0) / NEAR
    assert found.us >= sum(scene.cost_us) / NEAR
    limited = [us for us, is_legal in steps if is_legal]
    own = longest_section(lanes_of(scene, one_by_one=True))
    assert own.us <= min(limited, default=own.us) * NEAR
    assert own.us >= found.us / NEAR
    return len(tried)


@given(scenes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_order_is_below_the_bound(scene: Scene) -> None:
    assert check_no_order_is_below(scene) > 0


@given(scenes(), st.sampled_from([0, 30, 100]))
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_what_a_search_that_gives_up_has_found_is_a_bound(
    scene: Scene, steps: int
) -> None:
    lanes = lanes_of(scene, one_by_one=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(section_bound, "_STEPS", steps)
        patch.setattr(section_bound, "_STEPS_PER_NODE", 0)
        rough = longest_section(lanes).us
    for order in itertools.islice(scene.orders(), MOST_ORDERS):
        assert rough <= scene.step_us(order) * NEAR


@given(scenes())
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_heads_and_tails_are_those_of_all_orders(scene: Scene) -> None:
    search = section_bound._Search(lanes_of(scene))
    for order in itertools.islice(scene.orders(), 200):
        begins = _begins(scene, order)
        step = scene.step_us(order)
        for v, begin in begins.items():
            assert search.heads[v] <= begin * NEAR + 1e-9
            assert search.tails[v] <= (step - begin - scene.cost_us[v]) * NEAR + 1e-9


def _begins(scene: Scene, order: list[int]) -> dict[int, float]:
    """When each instruction runs, of a done when it is over."""
    found = {}
    for k, v in enumerate(order):
        found[v] = scene.step_us(order[: k + 1]) - scene.cost_us[v]
    return found


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(1, 60), st.sets(st.integers(0, 2), min_size=1)),
        max_size=6,
    ),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_in_one_window_hides_no_more(
    pairs: list[int], work: list[tuple[int, set[int]]]
) -> None:
    beside: dict[tuple[tuple[int, ...], float], int] = {}
    choices = []
    for us, chosen in work:
        near = tuple(sorted(i for i in chosen if i < len(pairs)))
        key = near, float(us)
        beside[key] = beside.get(key, 0) + 1
        choices.append([(i, us) for i in near] or [(-1, us)])
    most = 0.0
    for placed in itertools.product(*choices):
        hidden = [0.0] * len(pairs)
        for i, us in placed:
            if i >= 0:
                hidden[i] = min(pairs[i], hidden[i] + us)
        most = max(most, sum(hidden))
    found = most_hidden_us([float(us) for us in pairs], beside)
    assert found >= most / NEAR
    assert found <= sum(pairs) * NEAR


def test_one_instruction_hides_one_pair() -> None:
    # b may stand beside i or beside j, which are never in flight together.
    preds = [[], [], [1], [], [3]]
    costs = [30.0, 0.0, 0.0, 0.0, 0.0]
    pairs = [Pair(1, 2, 20.0), Pair(3, 4, 20.0)]
    scene = Scene(preds, costs, pairs, {1: 0, 3: 0})
    assert longest_section(lanes_of(scene)).us == 40.0
    limited = longest_section(lanes_of(scene, one_by_one=True))
    assert limited == Section(0.0, 0.0, 30.0, 0, 40.0, 20.0)
    assert min(
        scene.step_us(o) for o in scene.orders() if scene.has_one_by_one(o)
    ) == pytest.approx(limited.us)


def test_a_few_rounds_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_window, "_MOST_LOOKS", 10)
    assert most_hidden_us([20.0, 20.0], {((0, 1), 30.0): 1}) == 40.0


def test_the_first_of_some_pairs_waits_for_what_it_needs() -> None:
    # a, then b and c, each before its own pair, then t.
    preds = [[], [0], [0], [1], [2], [3], [4], [5, 6]]
    costs = [10.0, 30.0, 30.0, 0.0, 0.0, 0.0, 0.0, 5.0]
    pairs = [Pair(3, 5, 40.0), Pair(4, 6, 40.0)]
    scene = Scene(preds, costs, pairs, {3: 0, 4: 0})
    found = longest_section(lanes_of(scene))
    assert (found.head_us, found.stream, found.stream_us) == (40.0, 0, 80.0)
    assert min(map(scene.step_us, scene.orders())) == found.us == 125.0


@pytest.mark.parametrize(
    ("section", "by", "why"),
    [
        (
            Section(40.0, 5.0, 0.0, 0, 80.0, 0.0),
            "communication 0 between head and tail",
            "in any order 40.0 us pass before and 5.0 us pass after 80.0 us of "
            "communication 0",
        ),
        (
            Section(40.0, 0.0, 30.0, 0, 80.0, 20.0),
            "communication 0 between head and tail",
            "in any order 40.0 us pass before 30.0 us of compute and 80.0 us of "
            "communication 0, of which dependences let at most 20.0 us overlap",
        ),
        (
            Section(0.0, 5.0, 30.0),
            "compute between head and tail",
            "in any order 5.0 us pass after 30.0 us of compute",
        ),
        (
            Section(0.0, 0.0, 30.0, 0, 80.0, 20.0),
            "overlap with communication 0",
            "compute takes 30.0 us, communication 0 80.0 us, and dependences let at "
            "most 20.0 us of that overlap",
        ),
        (
            Section(0.0, 0.0, 30.0),
            "compute",
            "the compute lane runs one instruction after the other, and has to run all",
        ),
    ],
)
def test_a_section_says_what_it_consists_of(
    section: Section, by: str, why: str
) -> None:
    bound = bound_of(section, ["communication 0"])
    assert (bound.us, bound.by, bound.why) == (section.us, by, why)


def test_a_lane_alone_can_be_what_takes_longest() -> None:
    # b and c both come before starts of streams of their own.
    preds = [[], [], [0], [1], [2], [3]]
    costs = [30.0, 20.0, 0.0, 0.0, 0.0, 0.0]
    pairs = [Pair(2, 4, 100.0), Pair(3, 5, 100.0)]
    scene = Scene(preds, costs, pairs, {2: 0, 3: 1})
    found = longest_section(lanes_of(scene))
    assert (found.us, found.stream) == (150.0, -1)
    assert min(map(scene.step_us, scene.orders())) == 150.0
    assert bound_of(found, ["a", "b"]).by == "compute between head and tail"


@given(scenes())
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_all_times_twice_as_long_double_the_bound(scene: Scene) -> None:
    assume(scene.pairs)
    twice = Scene(
        scene.preds,
        [2 * us for us in scene.cost_us],
        [Pair(p.start, p.done, 2 * p.us) for p in scene.pairs],
        scene.stream,
    )
    for one_by_one in (False, True):
        bound = longest_section(lanes_of(scene, one_by_one=one_by_one)).us
        double = longest_section(lanes_of(twice, one_by_one=one_by_one)).us
        assert double == pytest.approx(2 * bound, rel=1e-9)
