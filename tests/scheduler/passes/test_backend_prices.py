"""What carries a collective is chosen by price, and no step becomes longer."""

from __future__ import annotations

import itertools

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, scheduler
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import target_text
from hlo_passes.scheduler.latency.backend_rows import backend_rows
from hlo_passes.scheduler.passes.backend_offers import Offers
from hlo_passes.scheduler.passes.collective_backend_choice import (
    CollectiveBackendChoice,
)
from hlo_passes.scheduler.passes.collective_kernels import KernelChoice
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.priced_chains import ChainTrials
from hlo_passes.xla_release import xla_release
from tests.scheduler.passes.test_chain_prices import text

MACHINES = {
    "one host": (8, Pricing(topology="1x1x8", xla="0.12")),
    "two hosts": (16, Pricing(topology="2x1x8", xla="0.12")),
    "two hosts of gb200": (8, Pricing(target="gb200", hosts=2, xla="0.12")),
}
ONE_HOST = MACHINES["one host"][1]


def offers_of(given: str, on: Pricing, lines: str = "") -> tuple[Offers, str]:
    module = hlo_passes.parse(given)
    trials = ChainTrials(module, on, GpuSchedule())
    choice = KernelChoice.of(module, on, xla_release(on.xla))
    measured = {
        line.row: line for line in CollectiveBackendChoice._lines(lines.split())
    }
    backends = ("kernel", "peer", "symmetric", "copies", "nvshmem")
    return Offers(module, trials, choice, measured, backends, quirks=False), "y"


def step_us(module: hlo_passes.Module, on: Pricing) -> float:
    copy = module.clone()
    Pipeline.parse("gpu-schedule", PassContext(on)).run(copy)
    return scheduler.simulate(copy, on).step_time_us


@pytest.mark.parametrize("where", MACHINES)
def test_no_step_becomes_longer(where: str) -> None:
    devices, on = MACHINES[where]
    changes = 0
    for kind, elements in itertools.product(
        ("all-reduce", "all-gather"), (1 << 12, 1 << 22)
    ):
        for size in (2, 8):
            module = hlo_passes.parse(text(kind, devices, size, elements, 1))
            before = step_us(module, on)
            changed = (
                Pipeline.parse("collective-backend-choice", PassContext(on))
                .run(module)
                .changed
            )
            assert step_us(module, on) <= before, (kind, elements, size)
            changes += changed
    # Groups with a stride lie on both hosts, which is too far for a kernel.
    assert (changes > 0) == (where != "two hosts")


def test_a_kernel_noted_by_xlas_rule_goes_where_nccl_costs_less() -> None:
    module = hlo_passes.parse(text("all-gather", 8, 8, 1 << 22, 0))
    context = PassContext(ONE_HOST)
    kinds = "use-collective-kernels='ALL_REDUCE ALL_GATHER'"
    Pipeline.parse(f"collective-kernel-strategy-annotator{{{kinds}}}", context).run(
        module
    )
    noted = step_us(module, ONE_HOST)
    assert Pipeline.parse("collective-backend-choice", context).run(module).changed
    assert step_us(module, ONE_HOST) < 0.9 * noted


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather"])
def test_prices_rise_with_bytes(kind: str) -> None:
    """NCCL's and registered memory's; a kernel's among messages of one row."""
    row = {"all-reduce": "symmetric-reduction", "all-gather": "symmetric-gather"}[kind]
    kernels: dict[str, list[float]] = {}
    nccl, registered = [], []
    for elements in (8 << k for k in range(0, 19, 2)):
        offers, name = offers_of(
            text(kind, 8, 8, elements, 0), ONE_HOST, f"{row}:4:300"
        )
        found = offers.module.entry.find(name)
        assert found is not None
        offer = offers.of(found)
        nccl.append(offer.fair_us)
        assert offer.fair_us <= offer.nccl_us
        for way in offer.ways:
            if way.row.price == "kernel":
                kernels.setdefault(way.row.name, []).append(way.us)
            else:
                registered.append(way.us)
                assert way.copied == ("argument %x", "result %t")
                assert 0.0 < way.copies_us < way.us
    assert nccl == sorted(nccl)
    assert registered == sorted(registered)
    assert len(registered) == len(nccl)
    assert all(prices == sorted(prices) for prices in kernels.values())
    # An all-reduce of 8 MiB has no kernel.
    assert sum(map(len, kernels.values())) == len(nccl) - (kind == "all-reduce")


def test_copies_win_below_the_crossing() -> None:
    """All-to-alls of eight in a host: the sizes at which the line is below the table."""
    offers, name = offers_of(
        text("all-to-all", 8, 8, 1 << 18, 0), ONE_HOST, "copied-exchange:12:200"
    )
    found = offers.module.entry.find(name)
    assert found is not None
    sizes = [1 << k for k in range(10, 31)]
    nccl = offers.exchange_us(found, iter(sizes))
    assert nccl == sorted(nccl)
    # Its own size is priced as the collective is.
    assert nccl[sizes.index(1 << 20)] == offers.of(found).fair_us
    less = [12 + 7 / 8 * size / 2e5 < us for size, us in zip(sizes, nccl, strict=True)]
    assert less == sorted(less, reverse=True)
    wins = max(s for s, is_less in zip(sizes, less, strict=True) if is_less)
    module = offers.module.clone()
    spec = "collective-backend-choice{measured-lines=copied-exchange:12:200}"
    result = Pipeline.parse(spec, PassContext(ONE_HOST)).run(module)
    assert not result.changed
    assert any(f"copies do up to {wins >> 20}.0 MiB" in r for r in result.remarks)


def test_a_loop_counts_for_the_flag() -> None:
    """A small exchange in a loop of ten, where copies win, and a large one outside."""
    given = """HloModule m, num_partitions=8

%body (p: (s32[], f32[262144])) -> (s32[], f32[262144]) {
  %p = (s32[], f32[262144]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[262144] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  %y = f32[262144] all-to-all(%x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  ROOT %t = (s32[], f32[262144]) tuple(%n, %y)
}

%condition (q: (s32[], f32[262144])) -> pred[] {
  %q = (s32[], f32[262144]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(TRIPS)
  ROOT %l = pred[] compare(%j, %end), direction=LT
}

ENTRY %main (x: f32[262144], z: f32[8388608]) -> (f32[262144], f32[8388608]) {
  %x.1 = f32[262144] parameter(0)
  %z = f32[8388608] parameter(1)
  %zero = s32[] constant(0)
  %s = (s32[], f32[262144]) tuple(%zero, %x.1)
  %w = (s32[], f32[262144]) while(%s), condition=%condition, body=%body
  %r = f32[262144] get-tuple-element(%w), index=1
  %e = f32[8388608] all-to-all(%z), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  ROOT %o = (f32[262144], f32[8388608]) tuple(%r, %e)
}
"""
    spec = "collective-backend-choice{measured-lines=copied-exchange:12:200}"
    for trips, flag in ((1, "false"), (100, "true")):
        module = hlo_passes.parse(given.replace("TRIPS", str(trips)))
        remarks = Pipeline.parse(spec, PassContext(ONE_HOST)).run(module).remarks
        assert any(
            f"xla_gpu_use_memcpy_local_p2p={flag} costs less" in r for r in remarks
        )


def test_the_target_brings_lines(tmp_path) -> None:
    file = tmp_path / "mine.txtpb"
    line = "# backend-lines: peer-permute:4:200\n"
    file.write_text(line + target_text("h100_sxm"))
    given = """HloModule m, num_partitions=2

ENTRY %e (x: f32[262144]) -> f32[262144] {
  %x = f32[262144] parameter(0)
  ROOT %y = f32[262144] collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,0}}
}
"""
    on = Pricing(target=str(file), xla="0.12")
    for spec, changes in (("", True), ("{measured-lines=peer-permute:400:200}", False)):
        module = hlo_passes.parse(given)
        passes = Pipeline.parse(f"collective-backend-choice{spec}", PassContext(on))
        assert passes.run(module).changed == changes


def test_a_budget_counts_the_module_as_it_is() -> None:
    given = text("all-reduce", 8, 8, 1 << 14, 0)
    least = 2 * hlo_passes.parse(given).instruction_count
    for most, changes in ((0, False), (least - 1, False), (least, True)):
        module = hlo_passes.parse(given)
        spec = f"collective-backend-choice{{most-instructions={most},backends=kernel}}"
        result = Pipeline.parse(spec, PassContext(ONE_HOST)).run(module)
        assert result.changed == changes, most
        assert any("most-instructions" in r for r in result.remarks) != changes


@pytest.mark.parametrize(
    "options",
    ["backends=nvlink", "measured-lines=one-shot:1:1", "measured-lines=peer-permute:1",
     "min-gain=1", "most-instructions=-1"],
)  # fmt: skip
def test_options_out_of_range(options: str) -> None:
    with pytest.raises(hlo_passes.HloError) as caught:
        Pipeline.parse(f"collective-backend-choice{{{options}}}")
    assert caught.value.code == "U013"


def test_rows_are_whole() -> None:
    rows = backend_rows()
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.price in ("kernel", "line")
        assert row.measures in ("operand", "result")
        assert row.reach in ("host", "domain", "release", "")
        assert bool(row.spelling) == bool(row.value)
        assert (row.reach == "release") == (row.backend == "kernel")
