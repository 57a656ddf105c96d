"""Scheduling groups, host writes, copies inside the GPU, reruns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import hlo_passes
from hlo_passes.errors import PassError
from hlo_passes.scheduler.estimators.approximate import (
    ApproximateEstimator,
    GpuApproximateEstimator,
)
from hlo_passes.scheduler.latency_hiding import driver
from hlo_passes.scheduler.latency_hiding.candidates import Candidates
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.groups import GroupState, find_groups
from hlo_passes.scheduler.latency_hiding.pairs import considered
from hlo_passes.scheduler.latency_hiding.resources import Resource
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from tests.scheduler.latency_hiding.graphs import graph_of
from tests.scheduler.latency_hiding.scenes import Scene, names, shape_text


def in_group(group: str, more: str = "") -> str:
    return f', frontend_attributes={{_scheduling_group_id="{group}"{more}}}'


def group_scene(annotated: bool = True) -> Scene:
    scene = Scene()
    scene.gather("sa", "da", "p0")
    scene.gather("sb", "db", "p1")
    scene.add(
        "g", shape_text(8), 'custom-call(%p2), custom_call_target="__cublas$gemm"'
    )
    scene.loop("f", "p3")
    scene.root("da", "db", "g", "f")
    if annotated:
        for name in ("sa", "da", "g"):
            scene.annotate(name, in_group("1"))
    return scene


def test_a_group_of_two_gathers_does_not_overlap_them_above_the_limit() -> None:
    scene = Scene()
    scene.gather("sa", "da", "p0")
    scene.gather("sb", "db", "p1")
    scene.add(
        "g", shape_text(8), 'custom-call(%p2), custom_call_target="__cublas$gemm"'
    )
    scene.root("da", "db", "g")
    for name in ("sa", "da", "sb", "db", "g"):
        scene.annotate(name, in_group("7"))
    order = scene.order().split()
    assert order[-1] == "t"
    first, second = sorted(("sa", "sb"), key=order.index)
    assert order.index(first.replace("s", "d")) < order.index(second)


KEEP = ',keep_original_sequence_order_in_group="true"'


def permutes_in_group(order: str) -> Scene:
    scene = Scene()
    scene.permute("sa", "da", "p0")
    scene.permute("sb", "db", "p1")
    scene.add(
        "c", shape_text(8), 'custom-call(%p2), custom_call_target="__cublas$gemm"'
    )
    lines = {line.split(" = ")[0].removeprefix("%"): line for line in scene.lines}
    scene.lines = [lines[name] for name in order.split()]
    for name in order.split():
        scene.annotate(name, in_group("3", KEEP))
    scene.root("da", "db", "c")
    return scene


def test_a_blocked_group_can_be_given_up() -> None:
    found = permutes_in_group("sa sb c da db").order(deannotate_group_if_blocked=True)
    assert sorted(found.split()) == sorted("sa sb c da db t".split())


def test_flexible_groups_hand_their_last_start_back() -> None:
    held = group_scene().order(
        flexible_scheduling_annotation_scheduling=True,
        aggressive_flexible_annotation_scheduling=True,
    )
    order = held.split()
    assert order.index("sa") < order.index("f") < order.index("g") < order.index("da")


GENERIC = """HloModule m, is_scheduled=true, num_partitions=2

%one (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %x = f32[8]{0} all-to-all(%a), replica_groups={{0,1}}, dimensions={0}
}
%two (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} all-to-all(%b), replica_groups={{0,1}}, dimensions={0}
}

ENTRY %main (p: f32[8], q: f32[8]) -> (f32[8], f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %sa = ((f32[8]{0}), f32[8]{0}) async-start(%p), calls=%oneSTART
  %da = f32[8]{0} async-done(%sa)DONE
  %sb = ((f32[8]{0}), f32[8]{0}) async-start(%q), calls=%twoSTART
  %db = f32[8]{0} async-done(%sb)DONE
  %w = f32[8]{0} negate(%p)DONE
  ROOT %t = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(%da, %db, %w)
}
"""


@pytest.mark.parametrize(
    ("starts_too", "limit", "expected"),
    [
        # All fit one after the other; side by side where there is room for both.
        (True, 1, "sa da sb w db t"),
        (True, 2, "sb sa w da db t"),
        # Dones without their starts stay open until the group is placed.
        (False, 1, ""),
        (False, 2, "sa sb w da db t"),
    ],
)
def test_dones_of_a_group_add_up_unless_their_starts_are_in_it(
    starts_too: bool, limit: int, expected: str
) -> None:
    text = GENERIC.replace("DONE", in_group("3"))
    text = text.replace("START", in_group("3") if starts_too else "")
    settings = SchedulerSettings(parallel_collective_overlap_limit=limit)
    graph = graph_of(text, settings)
    state = SchedulingState(graph, delays_starts=False)
    groups = GroupState(state, find_groups(graph), None)
    collectives = Resource.GPU_COLLECTIVES
    assert groups.need(state, 3, pessimistic=True) == {collectives: 2}
    optimistic = groups.need(state, 3, pessimistic=False)
    assert optimistic == {collectives: 1 if starts_too else 2}
    module = hlo_passes.parse(text)
    if expected:
        schedule_module(module, GpuApproximateEstimator(), settings)
        assert names(module) == expected
        return
    with pytest.raises(PassError, match="group 3 needs 2 of kGpuAsyncStreamColl") as e:
        schedule_module(module, GpuApproximateEstimator(), settings)
    assert e.value.code == "E031"


def test_a_start_whose_done_comes_later_makes_room_for_others_of_its_group() -> None:
    scene = permutes_in_group("sa sb c da db")
    scene.permute("sc", "dc", "p3")
    lines = {line.split(" = ")[0].removeprefix("%"): line for line in scene.lines}
    scene.lines = [lines[name] for name in "sa sb da db sc c dc".split()]
    scene.annotate("sc", in_group("3", KEEP))
    graph = graph_of(scene.text(), SchedulerSettings())
    state = SchedulingState(graph, delays_starts=False)
    groups = GroupState(state, find_groups(graph), None)
    # From below: %sc gives back what %dc holds; two dones are one above that.
    need = groups.need(state, 3, pessimistic=False)
    assert need == {Resource.GPU_COLLECTIVES: 1}


def test_candidates_of_a_group_are_no_others() -> None:
    scene = pair_and_loops(("w", in_group("1")), ("x", in_group("2")), loops=2)
    graph = graph_of(scene.text())
    numbers = {graph.name(n): n for n in range(len(graph))}
    state = SchedulingState(graph, delays_starts=False)
    state.groups = GroupState(state, find_groups(graph), None)
    both = Candidates([numbers["w"], numbers["x"]])
    assert considered(state, both, 1) == [numbers["w"]]
    assert considered(state, both, 2) == [numbers["x"]]


def pair_and_loops(*members: tuple[str, str], loops: int = 1) -> Scene:
    """A permute and work, some of it annotated."""
    scene = Scene()
    scene.permute("sa", "da", "p0")
    for k in range(loops):
        scene.loop("wxyz"[k], f"p{k + 1}")
    scene.root("da", *"wxyz"[:loops])
    for name, text in members:
        scene.annotate(name, text)
    return scene


def test_groups_are_placed_one_after_the_other() -> None:
    scene = Scene()
    scene.permute("sa", "da", "p0")
    scene.permute("sb", "db", "p1")
    scene.loop("w", "p2")
    scene.loop("v", "p3")
    scene.root("da", "db", "w", "v")
    for group, members in (("1", "sa da w"), ("2", "sb db v")):
        for name in members.split():
            scene.annotate(name, in_group(group))
    assert scene.order() == "sb v db sa w da t"
    # A start that was handed back keeps other groups waiting only until it is placed.
    flexible = scene.order(flexible_scheduling_annotation_scheduling=True)
    assert sorted(flexible.split()) == sorted("sb v db sa w da t".split())


@pytest.mark.parametrize("no_group", ["-1", "noop", ""])
def test_what_names_no_group_is_in_none(no_group: str) -> None:
    mark = in_group(no_group)
    scene = pair_and_loops(("sa", mark), ("w", mark), loops=2)
    assert scene.order() == pair_and_loops(loops=2).order()


def test_a_group_with_something_between_its_members_is_refused() -> None:
    scene = pair_and_loops(loops=3)
    scene.lines[3] = scene.lines[3].replace("%p2", "%w")
    scene.lines[4] = scene.lines[4].replace("%p3", "%x")
    for name in ("w", "y"):
        scene.annotate(name, in_group("1"))
    with pytest.raises(PassError, match="%y waits for scheduling group 1") as caught:
        scene.order()
    assert caught.value.code == "E030"


def test_a_group_is_given_up_once_and_only_while_a_member_waits() -> None:
    scene = pair_and_loops(("w", in_group("1")), ("sa", in_group("2")))
    graph = graph_of(scene.text())
    numbers = {graph.name(n): n for n in range(len(graph))}
    state = SchedulingState(graph, delays_starts=False)
    state.groups = groups = GroupState(state, find_groups(graph), None)
    state.seed()
    assert not groups.give_up_smallest(state)
    state.place(state.ready.take(state.ready.slot(numbers["t"])))
    assert groups.group_of(numbers["w"]) == 1
    assert groups.give_up_smallest(state)
    assert groups.group_of(numbers["w"]) == -1
    assert groups.group_of(numbers["sa"]) == 2
    assert not groups.start(state, pessimistic=False)
    assert not groups.give_up_smallest(state)


def test_eight_of_those_that_wait_are_named() -> None:
    scene = pair_and_loops(loops=2)
    scene.loop("between", "w")
    for k in range(9):
        scene.loop(f"y{k}", "between")
        scene.annotate(f"y{k}", in_group("1"))
    scene.annotate("w", in_group("1"))
    with pytest.raises(PassError) as caught:
        scene.order()
    assert str(caught.value).count("waits for scheduling group 1") == 8


@pytest.mark.parametrize("other", ["", "sa", "sb", "c", "da", "db"])
def test_a_group_counts_its_need_in_order_if_all_members_keep_it(other: str) -> None:
    scene = permutes_in_group("sa sb c da db")
    scene.lines = [
        line.replace(KEEP, "") if line.startswith(f"%{other} ") else line
        for line in scene.lines
    ]
    graph = graph_of(scene.text(), SchedulerSettings())
    state = SchedulingState(graph, delays_starts=False)
    groups = GroupState(state, find_groups(graph), None)
    need = groups.need(state, 3, pessimistic=False)
    assert need == {Resource.GPU_COLLECTIVES: 1 if other else 2}


def test_a_group_may_have_one_member() -> None:
    order = pair_and_loops(("w", in_group("3"))).order()
    assert sorted(order.split()) == ["da", "sa", "t", "w"]


def test_a_start_frees_what_its_done_would_need_in_the_groups_order() -> None:
    """From the last line on: one less, then two dones more, of which one stays."""
    scene = Scene()
    for k, name in enumerate("abc"):
        scene.permute(f"s{name}", f"d{name}", f"p{k}")
    lines = {line.split(" = ")[0].removeprefix("%"): line for line in scene.lines}
    scene.lines = [lines[name] for name in "sa sb da db sc dc".split()]
    for name in ("da", "db", "sc"):
        scene.annotate(name, in_group("3", KEEP))
    scene.root("da", "db", "dc")
    graph = graph_of(scene.text())
    state = SchedulingState(graph, delays_starts=False)
    groups = GroupState(state, find_groups(graph), None)
    need = groups.need(state, 3, pessimistic=False)
    assert [*need.values()] == [1]


def test_groups_below_no_group_are_groups() -> None:
    """-1 says that a node has none; -5 is the number of a group."""
    known = {0: -5, 1: -1, 2: 4}
    state: Any = SimpleNamespace(
        groups=SimpleNamespace(group_of=known.__getitem__), fits=lambda n: True
    )
    candidates = Candidates([0, 1, 2])
    found = {g: considered(state, candidates, g) for g in known.values()}
    assert found == {-5: [0], -1: [1], 4: [2]}


def test_a_group_hands_back_its_last_start_alone() -> None:
    assert group_scene().order() == "sb f db sa g da t"
    flexible = group_scene().order(flexible_scheduling_annotation_scheduling=True)
    assert flexible == "sb db sa f g da t"


def test_top_down_starts_are_moved_into_the_group_of_their_dones() -> None:
    settings = SchedulerSettings.generic(top_down_scheduling=True)
    text = GENERIC.replace("DONE", in_group("3")).replace("START", "")
    graph = graph_of(text, settings)
    found = [[graph.name(n) for n in m] for m in find_groups(graph).values()]
    assert found == [["sa", "sb", "w"]]
    whole = GENERIC.replace("DONE", in_group("3")).replace("START", in_group("3"))
    graph = graph_of(whole, settings)
    found = [[graph.name(n) for n in m] for m in find_groups(graph).values()]
    assert found == [["sa", "da", "sb", "db", "w"]]
    # Nothing but generic halves: no group.
    graph = graph_of(
        whole.replace("negate(%p)" + in_group("3"), "negate(%p)"), settings
    )
    assert find_groups(graph) == {}


def test_a_blocked_group_is_given_up_only_where_nothing_fits() -> None:
    scene = permutes_in_group("sa sb c da db")
    wide = {"deannotate_group_if_blocked": True, "parallel_collective_overlap_limit": 2}
    assert scene.order(**wide) == "sa sb c da db t"
    assert scene.order(deannotate_group_if_blocked=True) == "sa da sb c db t"


def test_writes_to_the_host_start_before_other_collectives() -> None:
    scene = Scene()
    scene.bodies.append(
        "%wrapped (a: f32[8], u: f32[1], i: s32[]) -> f32[8] {\n"
        "  %a = f32[8]{0} parameter(0)\n  %u = f32[1]{0} parameter(1)\n"
        "  %i = s32[] parameter(2)\n"
        "  ROOT %w = f32[8]{0:S(5)} dynamic-update-slice(%a, %u, %i)\n}\n"
        "%async (a: f32[8], u: f32[1], i: s32[]) -> f32[8] {\n"
        "  %a.1 = f32[8]{0:S(5)} parameter(0)\n  %u.1 = f32[1]{0} parameter(1)\n"
        "  %i.1 = s32[] parameter(2)\n"
        "  ROOT %x = f32[8]{0:S(5)} fusion(%a.1, %u.1, %i.1), kind=kLoop, calls=%wrapped\n"
        "}\n"
        "%exchange (e: f32[8]) -> f32[8] {\n"
        "  %e = f32[8]{0} parameter(0)\n"
        "  ROOT %all = f32[8]{0} all-to-all(%e), replica_groups={{0,1}}, dimensions={0}\n"
        "}\n"
    )
    host, wide = "f32[8]{0:S(5)}", shape_text(8)
    scene.parameter("p0", host)
    scene.parameter("p1", shape_text(1))
    scene.parameter("p2", "s32[]")
    scene.add(
        "hs", f"(({host}, f32[1]{{0}}, s32[]), {host}, u32[])",
        "async-start(%p0, %p1, %p2), calls=%async",
    )  # fmt: skip
    scene.add("hd", host, "async-done(%hs)")
    scene.add("as", f"(({wide}), {wide})", "async-start(%p3), calls=%exchange")
    scene.add("ad", wide, "async-done(%as)")
    scene.add("m", wide, "multiply(%ad, %ad)")
    scene.root("hd", "m")
    order = scene.order().split()
    assert order.index("hs") < order.index("as")


RERUN = """HloModule r, is_scheduled=true, num_partitions=2, entry_computation_layout={(bf16[8]{0})->(bf16[8]{0}, bf16[1]{0})}

ENTRY %main (p: bf16[8]) -> (bf16[8], bf16[1]) {
  %p = bf16[8]{0} parameter(0)
  %c = bf16[] constant(0)
  %b = bf16[43]{0} broadcast(%c), dimensions={}
  %s = bf16[1]{0} slice(%b), slice={[0:1]}
  %ps = (bf16[8]{0}, bf16[8]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%p), source_target_pairs={{0,1},{1,0}}
  %pd = bf16[8]{0} collective-permute-done(%ps)
  ROOT %t = (bf16[8]{0}, bf16[1]{0}) tuple(%pd, %s)
}
"""


@pytest.mark.parametrize(
    ("estimated", "lost_bytes", "reruns"),
    [(False, 1, 0), (True, 1, 1), (True, 0, 0)],
)
def test_a_rerun_counts_what_fragments_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, estimated: bool, lost_bytes: int, reruns: int
) -> None:
    """The peak of 136 bytes is within the limit; with one byte more it is not."""
    monkeypatch.setattr(driver, "fragmentation_bytes", lambda *_: lost_bytes)
    settings = SchedulerSettings.generic(
        aggressive_scheduling_policies=True,
        memory_limit_bytes=136,
        rerun=1,
        estimate_fragmentation_size=estimated,
    )
    result = schedule_module(hlo_passes.parse(RERUN), ApproximateEstimator(), settings)
    assert result.reruns == reruns


def test_reruns_tighten_the_limit_until_it_fits() -> None:
    module = hlo_passes.parse(RERUN)
    settings = SchedulerSettings.generic(
        aggressive_scheduling_policies=True, memory_limit_bytes=110
    )
    once = schedule_module(module, ApproximateEstimator(), settings)
    order = names(module).split()
    assert once.reruns == 0
    assert order.index("ps") < order.index("s") < order.index("pd")
    module = hlo_passes.parse(RERUN)
    settings = SchedulerSettings.generic(
        aggressive_scheduling_policies=True, memory_limit_bytes=110, rerun=1
    )
    twice = schedule_module(module, ApproximateEstimator(), settings)
    order = names(module).split()
    assert (twice.reruns, twice.memory_limit_bytes) == (1, 99)
    assert not order.index("ps") < order.index("s") < order.index("pd")
    assert (once.peak_bytes, twice.peak_bytes) == (136, 88)
