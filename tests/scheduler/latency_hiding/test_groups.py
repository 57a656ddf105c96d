"""Scheduling groups, host writes, copies inside the GPU, reruns."""

from __future__ import annotations

import hlo_passes
from hlo_passes.scheduler.estimators.approximate import ApproximateEstimator
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
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
