"""Orders of small modules, decision by decision.

GPU resources and coarse costs (pair 5000, loop fusion 1000, output fusion 5000), limit
1 and no memory limit unless said otherwise; parameters are left out of the orders.
"""

from __future__ import annotations

import pytest

from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from tests.scheduler.latency_hiding.scenes import Scene, shape_text


def fs(first: int, last: int) -> str:
    """f0 f1 ... as names."""
    return " ".join(f"f{k}" for k in range(first, last + 1))


def one_gather(fusions: int) -> Scene:
    scene = Scene()
    scene.gather("s", "d", "p0")
    for k in range(fusions):
        scene.loop(f"f{k}", "p1")
    scene.root("d", *(f"f{k}" for k in range(fusions)))
    return scene


def test_a_start_that_would_stall_goes_up() -> None:
    assert one_gather(1).order() == "s f0 d t"


def test_a_covered_start_without_async_work_above_goes_up_too() -> None:
    assert one_gather(7).order() == f"s {fs(0, 6)} d t"


def chain_of_collectives() -> Scene:
    scene = Scene()
    scene.reduce("sa", "d1", "p0")
    scene.gather("sb", "d2", "d1")
    for k in range(12):
        scene.loop(f"f{k}", "p1")
    scene.root("d2", *(f"f{k}" for k in range(12)))
    return scene


@pytest.mark.parametrize("limit", [1, 2])
def test_windows_of_dependent_collectives(limit: int) -> None:
    scene = chain_of_collectives()
    order = scene.order(parallel_collective_overlap_limit=limit)
    assert order == f"sa {fs(0, 6)} d1 sb {fs(7, 11)} d2 t"


@pytest.mark.parametrize(
    ("limit", "delay", "early", "delayed"),
    [
        (2, "flag", True, True),
        (1, "flag", True, False),
        (2, "flag", False, False),
        (2, "auto", False, True),
        (1, "auto", False, False),
        (1, "on", False, True),
        (2, "off", True, False),
    ],
)
def test_start_delay(limit: int, delay: str, early: bool, delayed: bool) -> None:
    order = chain_of_collectives().order(
        parallel_collective_overlap_limit=limit,
        start_delay=delay,
        collective_start_as_early_as_possible=early,
    )
    released = f"sa {fs(0, 6)} d1 sb {fs(7, 11)} d2 t"
    stretched = f"sa d1 sb {fs(0, 11)} d2 t"
    if limit == 1 and delayed:
        assert order != released
    else:
        assert order == (stretched if delayed else released)


def test_start_delay_by_depth() -> None:
    scene = Scene()
    scene.loop("h1", "p0")
    scene.loop("h2", "h1")
    scene.loop("h3", "h2")
    scene.gather("sb", "d2x", "h3")
    scene.lines.pop()
    scene.gather("sa", "d1", "p1")
    scene.add("d2", shape_text(16), "all-gather-done(%sb)")
    for k in range(6):
        scene.loop(f"f{k}", "p2")
    scene.root("d2", "d1", *(f"f{k}" for k in range(6)))
    two = {"parallel_collective_overlap_limit": 2}
    assert scene.order(**two) == f"h1 h2 h3 sb sa {fs(0, 5)} d1 d2 t"
    early = scene.order(**two, collective_start_as_early_as_possible=True)
    assert early == f"sa h1 h2 h3 sb {fs(0, 5)} d1 d2 t"


def two_gathers(fusions: int, groups: tuple[str, str] = ("{{0,1}}",) * 2) -> Scene:
    scene = Scene(partitions=4 if "3" in groups[0] else 2)
    scene.gather("sa", "d1", "p0", groups[0])
    scene.gather("sb", "d2", "p1", groups[1])
    for k in range(fusions):
        scene.loop(f"f{k}", "p2")
    scene.root("d1", "d2", *(f"f{k}" for k in range(fusions)))
    return scene


def test_two_gathers() -> None:
    scene = two_gathers(2)
    assert scene.order() == "sa d1 sb f0 f1 d2 t"
    assert scene.order(parallel_collective_overlap_limit=2) == "sa sb f0 f1 d1 d2 t"


def test_a_waiting_done_releases_the_start() -> None:
    scene = two_gathers(8)
    assert scene.order() == f"sa {fs(0, 2)} d1 sb {fs(3, 7)} d2 t"
    wide = scene.order(parallel_collective_overlap_limit=2)
    assert wide == f"sa sb {fs(0, 7)} d1 d2 t"


LOOP = """%cond (c: (f32[8], s32[])) -> pred[] {
  %c = (f32[8]{0}, s32[]) parameter(0)
  %n = s32[] get-tuple-element(%c), index=1
  %ten = s32[] constant(10)
  ROOT %less = pred[] compare(%n, %ten), direction=LT
}

%body (b: (f32[8], s32[])) -> (f32[8], s32[]) {
  %b = (f32[8]{0}, s32[]) parameter(0)
  %b0 = f32[8]{0} get-tuple-element(%b), index=0
  %b1 = s32[] get-tuple-element(%b), index=1
  %bs = f32[8]{0} all-reduce-start(%b0), replica_groups={{0,1}}, to_apply=%add
  %bd = f32[8]{0} all-reduce-done(%bs)
  ROOT %bt = (f32[8]{0}, s32[]) tuple(%bd, %b1)
}
"""


def test_a_loop_with_collectives_needs_their_resource() -> None:
    scene = Scene()
    scene.bodies.append(LOOP)
    state = "(f32[8]{0}, s32[])"
    scene.parameter("p0", shape_text(8))
    scene.parameter("p1", "s32[]")
    scene.add("i", state, "tuple(%p0, %p1)")
    scene.add("w", state, "while(%i), condition=%cond, body=%body")
    scene.add("g", shape_text(8), "get-tuple-element(%w), index=0")
    scene.gather("s", "d", "p2")
    scene.loop("f", "p3")
    scene.root("d", "g", "f")
    assert scene.order() == "i w s f d g t"
    assert scene.order(parallel_collective_overlap_limit=2) == "s f i w d g t"


SYNC = ', backend_config={"collective_backend_config":{"is_sync":true}}'


def test_a_synchronous_pair_keeps_resource_and_latency() -> None:
    scene = Scene()
    scene.gather("ss", "sd", "p0", attributes=SYNC)
    scene.gather("s", "d", "p1")
    scene.loop("f", "p2")
    scene.root("sd", "d", "f")
    assert scene.order() == "ss sd s f d t"
    assert scene.order(parallel_collective_overlap_limit=2) == "ss s f sd d t"


def test_hints_beat_everything() -> None:
    scene = Scene()
    scene.gather("s", "d", "p0")
    for name, hint in (("ca", ""), ("cb", "force_delay"), ("cc", "force_early")):
        text = f', frontend_attributes={{scheduler_hint="{hint}"}}' if hint else ""
        scene.add(
            name, shape_text(8), f'custom-call(%p1), custom_call_target="c"{text}'
        )
    scene.loop("f", "p2")
    scene.root("d", "ca", "cb", "cc", "f")
    assert scene.order() == "cb s ca f d cc t"


def test_waste_is_avoided() -> None:
    scene = Scene()
    scene.gather("s", "d", "p0")
    scene.fusion("big", "p1", "kOutput")
    scene.loop("sm", "p2")
    scene.one("one", "p3")
    scene.root("d", "one", "sm", "big")
    assert scene.order() == "s sm one big d t"


def test_noops_go_through_a_stack() -> None:
    scene = Scene()
    scene.gather("s", "d", "p0")
    scene.add("b1", shape_text(8), "bitcast(%p1)")
    scene.add("b2", shape_text(8), "bitcast(%p1)")
    scene.add("x", shape_text(8), "add(%b1, %b2)")
    scene.add("c", "f32[]", "constant(1)")
    scene.add("br", shape_text(8), "broadcast(%c), dimensions={}")
    scene.add("y", shape_text(8), "add(%br, %b1)")
    scene.root("d", "x", "y")
    assert scene.order() == "s b1 b2 x c br y d t"


HAZARD = """%cond (c: (f32[8], f32[8])) -> pred[] {
  %c = (f32[8]{0}, f32[8]{0}) parameter(0)
  ROOT %always = pred[] constant(true)
}

%loop (b: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %b = (f32[8]{0}, f32[8]{0}) parameter(0)
  %g0 = f32[8]{0} get-tuple-element(%b), index=0
  %bc = f32[8]{0} bitcast(%g0)
  %c1 = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%g0), source_target_pairs={{0,1},{1,0}}
  %d1 = f32[8]{0} collective-permute-done(%c1)
  %a = f32[8]{0} add(%d1, %bc)
  %n = f32[8]{0} negate(%a)
  %c2 = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%d1), source_target_pairs={{0,1},{1,0}}
  %d2 = f32[8]{0} collective-permute-done(%c2)
  ROOT %root = (f32[8]{0}, f32[8]{0}) tuple(%d2, %n)
}
"""


def test_readers_of_a_buffer_stay_out_of_the_window_that_writes_it() -> None:
    scene = Scene()
    scene.bodies.append(HAZARD)
    pair = f"({shape_text(8)}, {shape_text(8)})"
    scene.add("i", pair, "tuple(%p0, %p1)")
    scene.add("w", pair, "while(%i), condition=%cond, body=%loop")
    assert scene.order("loop") == "g0 c1 d1 bc a c2 n d2 root"


def memory_scene() -> Scene:
    scene = Scene()
    scene.parameter("p0", shape_text(1024))
    scene.parameter("p1", shape_text(1024))
    scene.gather("s", "d", "p0")
    scene.loop("big", "p1", shape_text(4096))
    scene.loop("r", "big", shape_text(1))
    scene.loop("sm", "p1", shape_text(2))
    scene.loop("r2", "sm", shape_text(1))
    scene.root("d", "r", "r2")
    return scene


@pytest.mark.parametrize(
    ("limit", "order"),
    [
        (None, "s big sm r r2 d t"),
        (40000, "s big sm r r2 d t"),
        (20000, "s sm big r r2 d t"),
        (8300, "big r s sm r2 d t"),
        (8200, "sm big r r2 s d t"),
    ],
)
def test_memory_limits(limit: int | None, order: str) -> None:
    assert memory_scene().order(memory_limit_bytes=limit) == order


def test_what_is_read_twice_counts_twice() -> None:
    scene = Scene()
    scene.parameter("p0", shape_text(1024))
    scene.gather("s", "d", "p0")
    scene.loop("x", "p1", shape_text(1000))
    scene.loop("y", "p1", shape_text(1500))
    scene.bodies.append(
        "%twice (u: f32[1000], v: f32[1000]) -> f32[1] {\n"
        "  %u = f32[1000]{0} parameter(0)\n  %v = f32[1000]{0} parameter(1)\n"
        "  %uv = f32[1000]{0} add(%u, %v)\n"
        "  ROOT %uv1 = f32[1]{0} slice(%uv), slice={[0:1]}\n}\n"
    )
    scene.add("xx", shape_text(1), "fusion(%x, %x), kind=kLoop, calls=%twice")
    scene.loop("yy", "y", shape_text(1))
    scene.root("d", "yy", "xx")
    assert scene.order(memory_limit_bytes=1000) == "x xx y yy s d t"


P2P = '_xla_gpu_collective_stream="p2p"'


def test_point_to_point_latencies() -> None:
    scene = Scene(partitions=4)
    stream = f", frontend_attributes={{{P2P}}}"
    token, wide = "token[]", shape_text(8)
    scene.shape("p0")
    scene.add("aa", token, "after-all()")
    scene.add(
        "ss", f"({wide}, u32[], token[])", f"send(%p0, %aa), channel_id=1{stream}"
    )
    scene.add("sd", token, f"send-done(%ss), channel_id=1{stream}")
    scene.permute("cs", "cd", "p1", f", control-predecessors={{%sd}}{stream}")
    for k, us in enumerate((5120000, 100000, 30000)):
        scene.add(
            f"a{k}", wide,
            f'custom-call(%{"p2" if k == 0 else f"a{k - 1}"}), custom_call_target="c", '
            f'frontend_attributes={{latency_metadata="{us * 1000}"}}',
        )  # fmt: skip
    scene.add(
        "rs", f"({wide}, u32[], token[])",
        f"recv(%aa), channel_id=2, control-predecessors={{%cd}}{stream}",
    )  # fmt: skip
    scene.add("rd", f"({wide}, token[])", f"recv-done(%rs), channel_id=2{stream}")
    scene.add("g", wide, "get-tuple-element(%rd), index=0")
    scene.root("cd", "a2")
    assert scene.order() == "aa ss a0 sd cs a1 cd rs a2 t rd g"


ROWS, COLUMNS = "{{0,1},{2,3}}", "{{0,2},{1,3}}"


@pytest.mark.parametrize(
    ("groups", "order"),
    [
        ((ROWS, ROWS), "sa d1 sb f0 d2 t"),
        ((ROWS, COLUMNS), "sa sb f0 d1 d2 t"),
        ((ROWS, ""), "sa d1 sb f0 d2 t"),
    ],
)
def test_ranks_that_clash(groups: tuple[str, str], order: str) -> None:
    scene = two_gathers(1, groups)
    found = scene.order(
        parallel_collective_overlap_limit=2, enable_collective_multi_streaming=True
    )
    assert found == order


def test_statistics_truncate_the_start() -> None:
    from hlo_passes.scheduler.estimators.table import TableEstimator
    from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
    from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics

    scene = Scene()
    scene.loop("x", "p0")
    scene.gather("s", "d", "p1")
    scene.loop("y", "p2")
    scene.root("d", "x", "y")
    costs = TableEstimator({"x": 0.6, "s": 1.0, "y": 2.0, "d": 1.0}, {"s": 10.0})
    scene.schedule(estimator=costs)
    assert scene.module is not None
    entry = scene.module.entry
    wanted = [entry.find(name) for name in "p0 p1 p2 x s y d t".split()]
    tracker = make_tracker(SchedulerSettings())
    found = lhs_statistics(entry, costs, tracker, order=[i for i in wanted if i])
    assert found.wasted_us["all-gather"] == pytest.approx(6.4)
    assert found.total_us == pytest.approx(11.0)


def test_without_anything_asynchronous_the_order_stays() -> None:
    scene = Scene()
    scene.loop("b", "p0")
    scene.loop("a", "p1")
    scene.root("a", "b")
    assert scene.order(collective_start_as_early_as_possible=True) == "b a t"


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        one_gather(1).order(parallel_collective_overlap_limit=0)
    with pytest.raises(ValueError, match="must not be negative"):
        one_gather(1).order(rerun=-1)
