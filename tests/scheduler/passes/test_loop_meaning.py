"""Unrolled loops and hoisted collectives compute the same, whatever a loop counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline
from hlo_passes.ir.gpu_config import known_trip_count
from tests import loops_campaign
from tests.loop_modules import loop_module
from tests.modules import REPOSITORY
from tests.passes.case_files import read_case

HOIST = "loop-invariant-collective-hoisting{always=true}"
CASES = REPOSITORY / "tests/scheduler/passes/cases/loop-invariant-collective-hoisting"


def counted(start: int, step: int, count: int, direction: str) -> str:
    """A loop that runs so often, with a slice, a sum over devices and a permute."""
    bound = start + count * step
    if direction in ("LE", "GE"):
        bound -= 1 if step > 0 else -1
    rows = 16
    return f"""HloModule counted, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %both = f32[] add(%a, %b)
}}

%body (state: (s32[], f32[1,8], f32[{rows},8], f32[{rows},8])) -> (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) {{
  %state = (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %step = s32[] constant({step})
  %next = s32[] add(%i, %step)
  %zero = s32[] constant(0)
  %x = f32[1,8] get-tuple-element(%state), index=1
  %rows = f32[{rows},8] get-tuple-element(%state), index=2
  %out = f32[{rows},8] get-tuple-element(%state), index=3
  %row = f32[1,8] dynamic-slice(%rows, %i, %zero), dynamic_slice_sizes={{1,8}}
  %sum = f32[1,8] all-reduce(%row), channel_id=1, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, use_global_device_ids=true, to_apply=%add
  %moved = f32[1,8] collective-permute(%x), channel_id=2, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,4}},{{4,5}},{{5,6}},{{6,7}},{{7,0}}}}
  %y = f32[1,8] subtract(%sum, %moved)
  %stored = f32[{rows},8] dynamic-update-slice(%out, %y, %i, %zero)
  ROOT %after = (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) tuple(%next, %y, %rows, %stored)
}}

%condition (state.1: (s32[], f32[1,8], f32[{rows},8], f32[{rows},8])) -> pred[] {{
  %state.1 = (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %bound = s32[] constant({bound})
  ROOT %goes_on = pred[] compare(%i.1, %bound), direction={direction}
}}

ENTRY %main (rows.1: f32[{rows},8], x.1: f32[1,8]) -> (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) {{
  %rows.1 = f32[{rows},8] parameter(0)
  %x.1 = f32[1,8] parameter(1)
  %first = s32[] constant({start})
  %start = (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) tuple(%first, %x.1, %rows.1, %rows.1)
  ROOT %loop = (s32[], f32[1,8], f32[{rows},8], f32[{rows},8]) while(%start), condition=%condition, body=%body
}}
"""


def rewritten(text: str, passes: str) -> hlo_passes.Module:
    """What the passes make, verified and read again."""
    module = hlo_passes.parse(text)
    context = PassContext(xla_quirks=False)
    Pipeline.parse(passes, context).run(module, verify_each=True)
    return hlo_passes.parse(module.to_text())


def by_numpy(module: hlo_passes.Module) -> list[bytes]:
    numbers = np.random.default_rng(3).integers(-8, 8, (8, 17, 8)) / 4
    inputs = [numbers[:, :16].astype(np.float32), numbers[:, 16:].astype(np.float32)]
    found = loops_campaign.LoopEvaluator(module, 1, 8).run(inputs)
    return [each.tobytes() for each in found]


def counting(count: int) -> str:
    forms = ((0, 1, "LT"), (12, -1, "GE"), (-3, 2, "LE"), (1, 1, "LE"), (9, -2, "GT"))
    start, step, direction = forms[count % len(forms)]
    return counted(start, step, count, direction)


@pytest.mark.parametrize("buffers", [2, 3, 4])
def test_any_number_of_iterations(buffers: int) -> None:
    for count in range(1, 3 * buffers + 1):
        text = counting(count)
        made = rewritten(text, f"loop-multi-buffer{{always=true,buffers={buffers}}}")
        assert by_numpy(made) == by_numpy(hlo_passes.parse(text)), count
        loop = next(i for i in made.entry.instructions if i.opcode == "while")
        # One body of several iterations, and the rest before it.
        sums = [
            [i.opcode for i in c.instructions].count("all-reduce")
            for c in (loop.called_computations[0], made.entry)
        ]
        if count < buffers:
            assert made.to_text() == text
            continue
        assert known_trip_count(loop) == count // buffers
        assert sums == [buffers, count % buffers]
        channels = [
            i.channel_id
            for c in made.computations
            for i in c.instructions
            if i.channel_id is not None
        ]
        assert len(channels) == len(set(channels))


@pytest.mark.parametrize(("buffers", "count"), [(2, 5), (3, 8), (4, 7)])
def test_on_devices(buffers: int, count: int) -> None:
    from hlo_passes import runtime

    text = counting(count)
    made = rewritten(text, f"loop-multi-buffer{{always=true,buffers={buffers}}}")
    assert runtime.compare(hlo_passes.parse(text), made, seed=0).bitwise_equal


@pytest.mark.parametrize("case", ["chain", "recomputed", "same_start", "zeros"])
def test_hoisted_on_devices(case: str) -> None:
    from hlo_passes import runtime

    text = read_case(CASES / f"{case}.hlo").input
    made = rewritten(text, HOIST)
    assert made.to_text() != text
    assert runtime.compare(hlo_passes.parse(text), made, seed=0).bitwise_equal


def test_nothing_more_moves_in_a_second_run() -> None:
    context, moved = PassContext(xla_quirks=False), 0
    for seed in range(20):
        made = loop_module(random.Random(seed), invariants=True)
        module = hlo_passes.parse(made.text)
        hoist = Pipeline.parse(HOIST, context)
        moved += hoist.run(module).changed
        if made.iterations < 2:
            assert module.to_text() == made.text or "AllocateBuffer" in module.to_text()
        assert not hoist.run(hlo_passes.parse(module.to_text())).changed, seed
    assert moved > 10


def test_random_loops_compute_the_same() -> None:
    tally = loops_campaign.Tally()
    alone = [p for p in loops_campaign.LOOPS if "always=true" in p]
    for seed in range(500, 504):
        found = loops_campaign.findings(
            seed, tally, alone=alone, only=True, invariants=True
        )
        assert [each[:2] for each in found] == []
    assert tally.changed[HOIST] >= 2
