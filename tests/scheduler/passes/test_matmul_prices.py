"""Parts of dots stay only where no simulated step becomes longer."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, UsageError, scheduler
from hlo_passes.pricing import Pricing
from tests.scheduler.passes.matmul_programs import sequence_parallel

HOST = Pricing(hosts=1)
TWO_HOSTS = Pricing(hosts=2)
RACK = Pricing(target="gb200", hosts=18)
SMALL, MIDDLE, LARGE = (
    (1024, 1024, 4096),
    (16384, 8192, 65536),
    (65536, 16384, 53248),
)


def step_us(text: str, on: Pricing) -> float:
    module = hlo_passes.parse(text)
    Pipeline.parse("gpu-schedule", PassContext(on)).run(module)
    return scheduler.simulate(module, on).step_time_us


def cut(text: str, on: Pricing, options: str = "") -> tuple[hlo_passes.Module, bool]:
    module = hlo_passes.parse(text)
    spec = f"collective-matmul{options}"
    changed = Pipeline.parse(spec, PassContext(on)).run(module).changed
    return module, changed


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("devices", "on"),
    [
        (4, HOST),
        (8, HOST),
        (16, TWO_HOSTS),
        (4, Pricing(target="gb200")),
        (8, Pricing(target="gb200", hosts=2)),
        (64, Pricing(target="gb200", hosts=16)),
    ],
)
def test_no_step_becomes_longer(devices: int, on: Pricing, type: str) -> None:
    for sizes in (SMALL, MIDDLE, LARGE):
        text = sequence_parallel(devices, *sizes, type)
        made, changed = cut(text, on)
        before, after = step_us(text, on), step_us(made.to_text(), on)
        assert after < before if changed else after == before, sizes


@pytest.mark.parametrize(
    ("devices", "on", "options", "most"),
    [
        (8, HOST, "", 0.77),
        (8, HOST, "{form=ring,unroll=all}", 0.77),
        (8, HOST, "{unroll=none}", 0.78),
        (16, TWO_HOSTS, "", 0.93),
        (4, Pricing(target="gb200"), "", 0.92),
    ],
)
def test_large_dots_hide_their_transfers(
    devices: int, on: Pricing, options: str, most: float
) -> None:
    text = sequence_parallel(devices, *LARGE)
    made, changed = cut(text, on, options)
    assert changed
    assert step_us(made.to_text(), on) < most * step_us(text, on)


def test_rings_stay_inside_a_host() -> None:
    made, _ = cut(sequence_parallel(16, *LARGE), TWO_HOSTS, "{form=ring}")
    crossing = [
        i
        for i in made.entry.instructions
        for pairs in [i.source_target_pairs]
        if pairs is not None and any(a // 8 != b // 8 for a, b in pairs)
    ]
    # The shards go to the other host once, and so do the sums.
    assert len(crossing) == 2
    assert sum(i.opcode == "collective-permute" for i in made.entry.instructions) == 30


def test_a_loop_holds_two_dots() -> None:
    made, _ = cut(sequence_parallel(8, *LARGE), HOST, "{form=ring,unroll=none}")
    loops = [i for i in made.entry.instructions if i.opcode == "while"]
    assert len(loops) == 2
    dots = sum(i.opcode == "dot" for c in made.computations for i in c.instructions)
    # And one before each loop, one after it.
    assert dots == 8


@pytest.mark.parametrize(
    "options", ["kinds=all-reduce", "domain=-1", "min-gain=2", "most-instructions=-1"]
)
def test_options_out_of_range(options: str) -> None:
    with pytest.raises(UsageError) as refused:
        Pipeline.parse(f"collective-matmul{{{options}}}")
    assert refused.value.code == "U013"


def test_shards_of_a_rack_are_too_small() -> None:
    text = sequence_parallel(72, 72 * 1024, 16384, 72 * 768)
    made, changed = cut(text, RACK)
    assert not changed
    assert made.to_text() == text
