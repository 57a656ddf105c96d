"""A chain of permutes stays only where no simulated step becomes longer."""

from __future__ import annotations

import functools
import itertools
import math

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, scheduler
from hlo_passes.passes.decomposing.permute_chains import KINDS, members_of
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.priced_chains import ChainTrials

TWO_HOSTS = Pricing(topology="1x2x8")
MACHINES = {8: Pricing(topology="1x1x8"), 16: TWO_HOSTS}


@functools.cache
def text(kind: str, devices: int, size: int, elements: int, dots: int) -> str:
    """One collective of groups with a stride, beside dots that it does not need."""
    stride = devices // size
    listed = [[k + stride * j for j in range(size)] for k in range(stride)]
    groups = ",".join(f"{{{','.join(map(str, group))}}}" for group in listed)
    whole, part = f"f32[{elements}]", f"f32[{elements // size}]"
    given = part if kind == "all-gather" else whole
    made = part if kind == "reduce-scatter" else whole
    more = f"channel_id=1, replica_groups={{{groups}}}"
    more += ", dimensions={0}" if kind != "all-reduce" else ""
    more += ", use_global_device_ids=true" if kind != "all-to-all" else ""
    more += ", to_apply=%add" if kind in ("reduce-scatter", "all-reduce") else ""
    matrix = "bf16[512,8192]"
    work = "".join(
        f"  %d{k + 1} = {matrix} dot(%d{k}, %q), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}\n"
        for k in range(dots)
    )
    return f"""HloModule m, num_partitions={devices}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}}

ENTRY %main (x: {given}, d0: {matrix}, q: bf16[8192,8192]) -> ({made}, {matrix}) {{
  %x = {given} parameter(0)
  %d0 = {matrix} parameter(1)
  %q = bf16[8192,8192] parameter(2)
{work}  %y = {made} {kind}(%x), {more}
  ROOT %t = ({made}, {matrix}) tuple(%y, %d{dots})
}}
"""


def step_us(text: str, on: Pricing, options: str = "") -> float:
    module = hlo_passes.parse(text)
    Pipeline.parse(f"gpu-schedule{options}", PassContext(on)).run(module)
    return scheduler.simulate(module, on).step_time_us


def decomposed(text: str, on: Pricing, options: str = "") -> tuple[str, bool]:
    module = hlo_passes.parse(text)
    spec = f"collective-ring-decomposer{options}"
    return text if not (
        changed := Pipeline.parse(spec, PassContext(on)).run(module).changed
    ) else module.to_text(), changed  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_becomes_longer(kind: str) -> None:
    sizes = ((8, 2), (8, 8), (16, 2), (16, 16))
    for (devices, size), elements in itertools.product(sizes, (16, 1 << 12, 1 << 22)):
        given, on = text(kind, devices, size, elements, 1), MACHINES[devices]
        made, changed = decomposed(given, on)
        before, after = step_us(given, on), step_us(made, on)
        assert after < before if changed else after == before, (devices, size, elements)


def test_a_pair_on_two_hosts_exchanges_by_one_permute() -> None:
    given = text("all-to-all", 16, 2, 1 << 22, 0)
    made, changed = decomposed(given, TWO_HOSTS)
    assert changed
    assert made.count(" collective-permute(") == 1
    assert step_us(made, TWO_HOSTS) < 0.6 * step_us(given, TWO_HOSTS)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_hide_where_the_collective_is_synchronous(kind: str) -> None:
    on, given = MACHINES[8], text(kind, 8, 8, 1 << 22, 16)
    options = f"{{disable-async-collectives={kind.replace('-', '').upper()}}}"
    made, changed = decomposed(given, on, options)
    assert changed
    assert step_us(made, on, options) < 0.96 * step_us(given, on, options)
    # Where it is not, it hides by itself.
    assert not decomposed(given, on)[1]


def _trials(text: str, on: Pricing) -> ChainTrials:
    return ChainTrials(hlo_passes.parse(text), on, GpuSchedule())


def test_prices_rise_with_bytes() -> None:
    """XLA's table has no latency, and jumps up and down between its sizes."""
    collectives: list[float] = []
    permutes: list[float] = []
    for elements in (8 << k for k in range(0, 22, 2)):
        gather = _trials(text("all-gather", 8, 8, elements, 0), MACHINES[8])
        found = gather.module.entry.find("y")
        assert found is not None
        collectives.append(gather.fair_us(found))
        made = f"f32[{elements}]"
        permute = _trials(
            f"HloModule m, num_partitions=8\nENTRY %e (x: {made}) -> {made} {{\n"
            f"  %x = {made} parameter(0)\n  ROOT %y = {made} collective-permute(%x), "
            "channel_id=1, source_target_pairs={{0,1},{1,0}}\n}\n",
            MACHINES[8],
        )
        permutes.append(permute.fair_us(permute.module.entry.root))
    assert permutes == sorted(permutes)
    assert permutes[0] > 10.0
    # The cheapest of up to 64 times the bytes: beyond that the table rises by itself.
    assert collectives == sorted(collectives)
    assert all(map(math.isfinite, collectives))


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ("{{0,1}}", "has groups that omit devices"),
        ("{{0,1},{2}}", "has groups of different sizes"),
    ],
)
def test_groups_that_the_verifier_refuses(groups: str, why: str) -> None:
    whole = text("all-to-all", 4, 2, 16, 0).replace("{{0,2},{1,3}}", groups)
    found = hlo_passes.parse(whole).entry.find("y")
    assert found is not None
    assert members_of(found) == why
