"""The bound for any structure: other orders, combined and pipelined ones stay above."""

import itertools
import json
import math
import random
import re

import pytest
from hypothesis import given, settings

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.files import read_module
from hlo_passes.scheduler.simulation.report import report_text
from tests.modules import REPOSITORY
from tests.scheduler.simulation.steps import Steps, step_lists
from tests.scheduler.simulation.test_laws import timeline_of

NEAR = 1e-6
GOLDEN = REPOSITORY / "corpus" / "golden" / "0.10.2"


@settings(max_examples=60, deadline=None)
@given(step_lists())
def test_it_is_below_the_bound_of_any_order(steps: Steps) -> None:
    for rules in ({}, {"streams": 2}, {"streams": 0}, {"share_links": True}):
        timeline = timeline_of(steps, **rules)
        bound = timeline.lower_bound_any_structure_us
        assert 0.0 <= bound <= timeline.lower_bound_us + NEAR
        assert timeline.lower_bound_us <= timeline.step_time_us + NEAR
        assert timeline.compute_us <= bound + NEAR or bound == timeline.lower_bound_us


def gathers(sizes: list[int], dots: int, devices: int) -> str:
    """Independent all-gathers of so many rows, and products beside them."""
    group = ",".join(map(str, range(devices)))
    lines = [
        f"  %p{k} = f32[{n},1024]{{1,0}} parameter({k})" for k, n in enumerate(sizes)
    ]
    lines.append(f"  %x = bf16[2048,2048]{{1,0}} parameter({len(sizes)})")
    value = "x"
    for k in range(dots):
        lines.append(
            f"  %dot{k} = bf16[2048,2048]{{1,0}} dot(%{value}, %x), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        )
        value = f"dot{k}"
    results = [f"%{value}"]
    shapes = ["bf16[2048,2048]{1,0}"]
    for k, n in enumerate(sizes):
        shape = f"f32[{n * devices},1024]{{1,0}}"
        lines.append(
            f"  %gather{k} = {shape} all-gather(%p{k}), channel_id={k + 1}, "
            f"replica_groups={{{{{group}}}}}, dimensions={{0}}, "
            "use_global_device_ids=true"
        )
        results.append(f"%gather{k}")
        shapes.append(shape)
    lines.append(f"  ROOT %r = ({', '.join(shapes)}) tuple({', '.join(results)})")
    body = "\n".join(lines)
    return f"HloModule m, num_partitions={devices}\n\nENTRY %main {{\n{body}\n}}\n"


def restructured(text: str, combine_bytes: int) -> hlo_passes.Module:
    module = hlo_passes.parse(text)
    passes = (
        f"gpu-all-gather-combiner{{threshold-bytes={combine_bytes}}},"
        "async-collective-creator,hlo-memory-scheduler,latency-hiding-scheduler"
    )
    hlo_passes.Pipeline.parse(passes).run(module)
    return module


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("estimator", ["sol", "ring"])
def test_combining_never_beats_it(seed: int, hosts: int, estimator: str) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice((1, 3, 40, 700, 5000)) for _ in range(draw.randint(2, 9))]
    text = gathers(sizes, draw.randint(0, 3), 8 * hosts)
    bounds, steps = [], []
    for combine_bytes in (1, 1 << 20, 1 << 24, 1 << 40):
        module = restructured(text, combine_bytes)
        timeline = scheduler.simulate(module, hosts=hosts, estimator=estimator)
        bounds.append(timeline.lower_bound_any_structure_us)
        steps.append(timeline.step_time_us)
    assert max(bounds) <= min(steps) + NEAR
    assert max(bounds) > 0.0


#: One layer's weights are gathered in the iteration that needs them, or one ahead.
LOOP = """HloModule m, num_partitions=16, is_scheduled=true

%body (s: (s32[], bf16[4096,4096], bf16[256,4096], bf16[4096,4096])) -> (s32[], bf16[4096,4096], bf16[256,4096], bf16[4096,4096]) {{
  %s = (s32[], bf16[4096,4096]{{1,0}}, bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = bf16[4096,4096]{{1,0}} get-tuple-element(%s), index=1
  %w = bf16[256,4096]{{1,0}} get-tuple-element(%s), index=2
  %ahead = bf16[4096,4096]{{1,0}} get-tuple-element(%s), index=3
  %start = (bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) all-gather-start(%w), channel_id=1, replica_groups=[1,16]<=[16], dimensions={{0}}, use_global_device_ids=true
{order}
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[], bf16[4096,4096]{{1,0}}, bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) tuple(%next, %y, %w, %{carried})
}}

%condition (s.1: (s32[], bf16[4096,4096], bf16[256,4096], bf16[4096,4096])) -> pred[] {{
  %s.1 = (s32[], bf16[4096,4096]{{1,0}}, bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] constant(12)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}}

ENTRY %main (x.2: bf16[4096,4096], w.2: bf16[256,4096]) -> bf16[4096,4096] {{
  %x.2 = bf16[4096,4096]{{1,0}} parameter(0)
  %w.2 = bf16[256,4096]{{1,0}} parameter(1)
  %zero = s32[] constant(0)
  %t.2 = (s32[], bf16[4096,4096]{{1,0}}, bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) tuple(%zero, %x.2, %w.2, %x.2)
  %loop = (s32[], bf16[4096,4096]{{1,0}}, bf16[256,4096]{{1,0}}, bf16[4096,4096]{{1,0}}) while(%t.2), condition=%condition, body=%body
  ROOT %r = bf16[4096,4096]{{1,0}} get-tuple-element(%loop), index=1
}}
"""
DONE = "  %done = bf16[4096,4096]{1,0} all-gather-done(%start)"
DOT = (
    "  %y = bf16[4096,4096]{{1,0}} dot(%x, %{operand}), lhs_contracting_dims={{1}}, "
    "rhs_contracting_dims={{0}}"
)


def test_pipelining_never_beats_it_and_beats_the_bound_of_an_order() -> None:
    needed = LOOP.format(order=f"{DONE}\n{DOT.format(operand='done')}", carried="done")
    ahead = LOOP.format(order=f"{DOT.format(operand='ahead')}\n{DONE}", carried="done")
    plain, pipelined = (
        scheduler.simulate(hlo_passes.parse(text), hosts=2) for text in (needed, ahead)
    )
    # The pipelined one is faster than any order of the plain one,
    assert pipelined.step_time_us < plain.lower_bound_us - 1.0
    # but not than what any structure needs, and both agree on that.
    assert plain.lower_bound_any_structure_us <= pipelined.step_time_us + NEAR
    assert math.isclose(
        plain.lower_bound_any_structure_us, pipelined.lower_bound_any_structure_us
    )
    assert plain.any_structure.bound_by in ("compute", "network traffic")


def families() -> list[tuple[str, list[str]]]:
    """Programs that XLA compiled with several flags."""
    names = sorted(p.name for p in GOLDEN.iterdir() if p.is_dir())
    grouped = itertools.groupby(names, key=lambda name: name.partition(".")[0])
    found = [(stem, list(members)) for stem, members in grouped]
    return [(stem, members) for stem, members in found if len(members) > 1]


@pytest.mark.parametrize(("stem", "members"), families())
def test_no_flags_beat_it(stem: str, members: list[str]) -> None:
    bounds, steps = [], []
    for member in members:
        path = GOLDEN / member / "latency-hiding-scheduler.after.hlo.gz"
        if path.exists():
            timeline = scheduler.simulate(read_module(str(path)))
            bounds.append(timeline.lower_bound_any_structure_us)
            steps.append(timeline.step_time_us)
    if bounds:
        print(stem, bounds, steps)
        assert max(bounds) <= min(steps) + NEAR


def test_text_json_and_page_say_both_bounds() -> None:
    text = LOOP.format(order=f"{DONE}\n{DOT.format(operand='done')}", carried="done")
    timeline = scheduler.simulate(hlo_passes.parse(text), hosts=2)
    lines = report_text(timeline).splitlines()
    (at,) = [k for k, line in enumerate(lines) if line.startswith("bound ")]
    assert "no order of these instructions is faster" in lines[at]
    assert lines[at + 1].strip() == f"because {timeline.times.bound_why}"
    assert lines[at + 2].endswith(
        "no restructuring that moves the same bytes and computes the same flops is "
        "faster"
    )
    view = json.loads(json.dumps(timeline.to_json()))
    assert view["lower_bound_any_structure_us"] == timeline.lower_bound_any_structure_us
    data = re.search(r'type="application/json">(.*?)</script>', timeline.to_html())
    assert data is not None
    side = json.loads(data[1])["sides"][0]
    assert side["any_structure"]["us"] == timeline.lower_bound_any_structure_us
