"""What rules ask of a state: numbers by hand, and trackers with resources of their own."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest
from hypothesis import given

import hlo_passes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.estimators.profile import Profile, ProfileEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency_hiding.candidates import Candidates
from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.columns import Columns
from hlo_passes.scheduler.latency_hiding.edge_latency import delays
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.pressure_track import PressureTrack
from hlo_passes.scheduler.latency_hiding.resources import Resource
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.scheduler.latency_hiding.statistics import latency_us, node_cost_us
from hlo_passes.scheduler.memory.pressure import ModuleMemory, PressureState
from tests.scheduler.latency_hiding.graphs import graph_of
from tests.scheduler.latency_hiding.random_scenes import RandomScene, random_scenes
from tests.scheduler.latency_hiding.scenes import Scene, shape_text
from tests.scheduler.latency_hiding.test_metrics import COSTS, LATENCIES, TEXT

#: Estimators whose answers differ for starts alone.
_OF_STARTS = ("sol", "ring", "approximate", "gpu-approximate", "sol+ring")


class _Foreign(Estimator):
    """An estimator of another package."""

    @property
    def name(self) -> str:
        return "foreign"

    def node_cost(self, instruction: Instruction) -> None:
        del instruction

    def latency(self, start: Instruction, user: Instruction) -> None:
        del start, user


def named(graph: ScheduleGraph, *names: str) -> list[int]:
    numbers = {graph.name(n): n for n in range(len(graph))}
    return [numbers[name] for name in names]


def placed(state: SchedulingState, *names: str) -> None:
    for n in named(state.graph, *names):
        if n in state.ready:
            state.ready.take(state.ready.slot(n))
        state.place(n)


def test_time_and_resources_while_a_pair_is_placed() -> None:
    graph = graph_of(TEXT, costs=COSTS, latencies=LATENCIES)
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    assert [graph.name(n) for n in state.ready] == ["r"]
    root, done, start, work, chain = named(graph, "r", "db", "sb", "y", "x")
    collectives = Resource.GPU_COLLECTIVES
    assert (state.unlocks[root], state.unlocks[done]) == (2, 1)
    placed(state, "r")
    assert {graph.name(n) for n in state.ready} == {"db", "y"}
    # Both follow the root by an edge of 1 us; the root takes no time.
    assert (state.ready_at[done], state.ready_at[work]) == (1.0, 1.0)
    assert (state.stall(done), state.stall(work)) == (1.0, 1.0)
    assert state.waiting[collectives] == 1
    assert not state.is_constrained(done)
    assert state.queue.top() == 1.0
    assert state.cost_distance(work) == abs(1.0 - 0.0 - 90.0)
    assert state.cost_distance(done) == abs(1.0 - 2.0)
    placed(state, "db")
    # It is placed at 1 us, and takes 2 us; its start is ready 50 us after it began.
    assert (state.now, state.ready_at[start]) == (3.0, 51.0)
    assert (state.free[collectives], state.waiting[collectives]) == (0, 0)
    assert (state.stall(start), state.stall(work)) == (48.0, 0.0)
    assert state.past_due(start) == 0.0
    placed(state, "y")
    assert (state.now, state.stall(start)) == (93.0, 0.0)
    assert state.queue.top() is None
    assert state.cost_distance(start) == 0.0
    placed(state, "sb")
    assert state.free[collectives] == 1
    assert state.now == 94.0
    assert state.ready_at[chain] == 94.0
    assert state.ready_at[named(graph, "sa")[0]] == math.inf
    placed(state, "x")
    # Nothing is ready before it is free to be placed: its edges end at 91 and 95 us.
    assert state.ready_at[named(graph, "w")[0]] == state.now == 101.0


def test_what_nothing_holds_back_is_ready_at_once() -> None:
    """Before anything is placed the time is 0, and nothing else has a time."""
    state = SchedulingState(graph_of(TEXT), delays_starts=False)
    assert {*state.ready_at} == {math.inf}
    state.seed()
    ready = {*state.ready, *state.noops}
    assert ready
    assert {state.ready_at[n] for n in ready} == {0.0}
    others = {*range(len(state.graph))} - ready
    assert {state.ready_at[n] for n in others} == {math.inf}


def test_a_start_is_constrained_while_a_done_wants_its_resource() -> None:
    scene = Scene()
    scene.permute("sa", "da", "p0")
    scene.permute("sb", "db", "p1")
    scene.root("da", "db")
    graph = graph_of(scene.text())
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    placed(state, "t")
    start, other, done = named(graph, "sa", "da", "db")
    assert state.fits(done)
    assert state.fits(other)
    placed(state, "da")
    assert state.is_constrained(start)
    assert not state.fits(done)
    assert state.misfit(done) == "%db needs 1 of kGpuAsyncStreamCollectives (0 free)"
    placed(state, "sa")
    assert not state.is_constrained(start)
    assert state.fits(done)


def test_resources_that_a_tracker_makes_serial_or_urgent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = SchedulerSettings(
        resource_serializing=True, parallel_collective_overlap_limit=3
    )
    scene = Scene()
    for k in range(3):
        scene.permute(f"s{k}", f"d{k}", f"p{k}")
    scene.root("d0", "d1", "d2")
    text = scene.text().replace("%s", "%begin").replace("%d", "%end")
    module = hlo_passes.parse(text)
    tracker = make_tracker(settings)
    serial = {Resource.GPU_COLLECTIVES}
    monkeypatch.setattr(tracker, "is_serial", serial.__contains__)
    monkeypatch.setattr(tracker, "is_nonextendable", serial.__contains__)
    costs = TableEstimator(dict.fromkeys(("end0", "end1"), 5.0), {})
    graph = ScheduleGraph(module.entry, module.entry.instructions, costs, tracker)
    connect_all(graph)
    assert graph.has_nonextendable
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    placed(state, "t")
    start, other, third = named(graph, "begin0", "begin1", "end2")
    assert state.serial_conflicts(third) == 0
    placed(state, "end0")
    assert state.serial_conflicts(third) == 1
    placed(state, "end1")
    assert state.serial_conflicts(third) == 2
    assert state.serial_conflicts(start) == 0  # it releases
    assert state.past_due(start) == state.now - state.ready_at[start] > 0.0
    assert state.past_due(third) == 0.0
    placed(state, "begin0", "begin1")
    assert state.serial_conflicts(third) == 0
    monkeypatch.setattr(tracker, "is_serial", lambda r: False)
    placed(state, "end2")
    assert state.serial_conflicts(other) == 0


def test_starts_of_permutes_wait_in_line() -> None:
    scene = Scene()
    scene.permute("sa", "da", "p0")
    scene.reduce("sb", "db", "p1")
    scene.root("da", "db")
    settings = SchedulerSettings.generic(enable_release_start_policy=True)
    graph = graph_of(scene.text(), settings, latencies={"sa": 4.0, "sb": 4.0})
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    placed(state, "t", "da", "db")
    permute, reduce, done = named(graph, "sa", "sb", "da")
    assert state.permute_ready_in(permute) == -math.inf  # not ready yet
    state.now = state.ready_at[permute]
    assert state.permute_ready_in(permute) == 0.0
    assert state.permute_ready_in(reduce) == state.permute_ready_in(done) == -math.inf
    # A clock far ahead does not tell apart what is next to each other.
    state.now += 3.0
    assert state.permute_ready_in(permute) == -3.0
    state.now = 2.0**40
    early = state.permute_ready_in(permute)
    state.ready_at[permute] = math.nextafter(state.ready_at[permute], math.inf)
    assert state.permute_ready_in(permute) == early


@pytest.mark.parametrize(
    ("limit", "usage", "tight", "over"),
    [
        (None, 10**9, False, False),
        (100, 50, False, False),
        (100, 51, True, False),
        (100, 99, True, False),
        (100, 100, True, True),
        (101, 50, False, False),
        (0, 1, True, True),
        (0, 0, False, False),
    ],
)
def test_memory_is_tight_above_half_the_limit_and_over_at_it(
    limit: int | None, usage: int, tight: bool, over: bool
) -> None:
    module = hlo_passes.parse(TEXT)
    graph = graph_of(TEXT)
    state = SchedulingState(
        graph, delays_starts=False, memory=ModuleMemory(module).of(module.entry),
        memory_limit_bytes=limit,
    )  # fmt: skip
    assert state.memory is not None
    state.memory.usage_bytes = usage
    assert (state.is_memory_tight(), state.is_memory_over()) == (tight, over)
    untracked = SchedulingState(graph, delays_starts=False, memory_limit_bytes=limit)
    assert not untracked.is_memory_tight()
    assert not untracked.is_memory_over()
    assert not untracked.keeps_peak(0)
    assert untracked.memory_increase(0) == 0


@given(random_scenes(25))
def test_a_done_counts_with_its_start(made: RandomScene) -> None:
    """Its increase is the smaller one of both, its peak the greater one."""
    module = hlo_passes.parse(made.scene.text())
    tables = ModuleMemory(module).of(module.entry)
    numbers = tables.index
    starts = {
        numbers[i]: numbers[i.operands[0]]
        for i in module.entry.instructions
        if i.opcode.endswith("-done")
    }
    track, state = PressureTrack(tables, starts), PressureState(tables)
    for n in reversed(range(len(tables.order))):
        for other in range(len(tables.order)):
            increase, peak = state.query(other)
            if other in starts:
                of_start, peak_of_start = state.query(starts[other])
                increase, peak = min(increase, of_start), max(peak, peak_of_start)
            assert (track.increases[other], track.peaks[other]) == (increase, peak)
        track.place(n)
        state.place(n)


def test_a_done_changes_with_its_start() -> None:
    """`d` counts with `s`, which needs 256 bytes of `x` until `z` needs them too."""
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

ENTRY %main {
  %p = f32[64] parameter(0)
  %x = f32[64] negate(%p)
  %s = f32[8] slice(%x), slice={[0:8]}
  %z = f32[8] slice(%x), slice={[8:16]}
  %d = f32[8] negate(%s)
  ROOT %r = f32[8] add(%d, %z)
}
""")
    tables = ModuleMemory(module).of(module.entry)
    at = {i.name: n for i, n in tables.index.items()}
    track = PressureTrack(tables, {at["d"]: at["s"]})
    track.place(at["r"])
    assert (track.increases[at["d"]], track.peaks[at["d"]]) == (0, 256)
    track.place(at["z"])
    assert (track.increases[at["d"]], track.peaks[at["d"]]) == (0, 32)


def test_the_estimator_is_asked_where_an_answer_may_differ() -> None:
    """Starts and synchronous collectives always; names that a table or profile has."""
    scene = Scene()
    scene.permute("s", "d", "p0")
    scene.one("x", "d")
    scene.one("y", "x")
    text = scene.text()
    module = hlo_passes.parse(text)
    start, done, x, y = module.entry.instructions[1:]
    table = TableEstimator({}, {"x": 3.0})
    profile = ProfileEstimator(Profile({}, {("y", "z"): 3.0}))
    cases = [
        (table, {start, x}),
        (profile, {start, y}),
        (EstimatorStack((table, profile)), {start, x, y}),
        *((make_estimator(name), {start}) for name in _OF_STARTS),
    ]
    for estimator, expected in cases:
        is_delaying = delays(estimator)
        assert {i for i in (start, done, x, y) if is_delaying(i)} == expected

    foreign = EstimatorStack((table, _Foreign()))
    assert all(map(delays(foreign), (start, done, x, y)))


@pytest.mark.parametrize(("most", "hides"), [(1, False), (2, True), (3, True)])
def test_what_could_hide_a_copy_within_some_hops(most: int, hides: bool) -> None:
    settings = SchedulerSettings(max_hops_to_closest_selective_overlap=most)
    state = SchedulingState(graph_of(TEXT, settings), delays_starts=False)
    state.seed()
    n, *_ = [k for k in range(len(state.graph)) if not state.graph.not_valuable[k]]
    other, third = [k for k in range(len(state.graph)) if k != n][:2]
    state.ready, state.hops = Candidates([n, other, third]), [0] * len(state.graph)
    state.hops[other], state.hops[third] = 2, 9
    assert state.hides_near_copy(n) is hides
    ready = [n, other, third]
    each = [state.hides_near_copy(k) for k in ready]
    columns = Columns(state, Classes(state, tests_fit=True))
    assert columns.hides_near_copy(np.array(ready)).tolist() == each


def test_what_no_estimator_knows_takes_no_time() -> None:
    graph = graph_of(TEXT)
    start = next(i for n, i in enumerate(graph.instructions) if graph.is_start[n])
    assert node_cost_us(_Foreign(), start) == 0.0
    assert latency_us(_Foreign(), start, start.users[0]) == 0.0


def test_starts_of_copies_are_pushed_out_only_until_they_are_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of(TEXT, SchedulerSettings(enable_selective_memcpy_overlap=True))
    monkeypatch.setattr(
        graph.tracker, "releases_selectively", lambda i: i.name in ("sa", "sb")
    )
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    seen: set[int] = set()
    while state.ready or state.noops:
        seen |= {*state.selective_releasers}
        state.place(
            state.noops.pop() if state.noops else state.ready.take(len(state.ready) - 1)
        )
        assert not any(state.placed[n] for n in state.selective_releasers)
    assert seen == {*named(graph, "sa", "sb")}


@pytest.mark.parametrize(("hops", "is_near"), [(0, True), (1, True), (2, False)])
def test_a_copy_is_near_up_to_the_hops_of_the_settings(
    hops: int, is_near: bool
) -> None:
    settings = SchedulerSettings(enable_selective_memcpy_overlap=True)
    assert settings.max_hops_to_closest_selective_overlap == 1
    scene = Scene()
    scene.add(
        "g", shape_text(8), 'custom-call(%p0), custom_call_target="__cublas$gemm"'
    )
    scene.loop("x", "p1")
    scene.root("g", "x")
    graph = graph_of(scene.text(), settings)
    state = SchedulingState(graph, delays_starts=False)
    product, other = named(graph, "g", "x")
    state.ready = Candidates([product, other])
    state.hops[product], state.hops[other] = 0, hops  # its own do not count
    assert state.hides_near_copy(product) is is_near


def test_candidates_are_a_list_and_arrays() -> None:
    classes = [n % 3 for n in range(200)]
    candidates = Candidates(range(3))
    assert candidates.classes(classes).tolist() == [0, 1, 2]
    for n in range(3, 200):
        candidates.add(n)
    for n in (199, 0, 5, 198, 64):
        assert candidates.take(candidates.slot(n)) == n
        assert candidates.nodes.tolist() == list(candidates)
        assert candidates.classes(classes).tolist() == [classes[n] for n in candidates]
        assert [candidates.slot(n) for n in candidates] == list(range(len(candidates)))
    assert array("q", candidates) == array("q", candidates.nodes.tolist())
    assert Candidates(range(200)).nodes.tolist() == list(range(200))
