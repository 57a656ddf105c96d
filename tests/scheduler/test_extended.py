"""Answers where XLA's model gives up, and what they must obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.scheduler.estimators.base import HIGH
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.collectives import describe
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.matmul_table import Gemm
from hlo_passes.scheduler.latency.network import NotEstimated
from hlo_passes.scheduler.latency.options import LatencyOptions
from tests.scheduler.single_ops import collective_module

RACK = Topology(1, 18, 4)
RACKS = Topology(4, 18, 4)


def price(
    name: str,
    topology: Topology,
    operation: str,
    elements: int,
    groups: str,
    *,
    extended=True,
):
    """Estimate of a bf16 collective that moves `elements` per device."""
    module = collective_module(
        operation, f"bf16[{elements}]", f"bf16[{elements}]", groups,
        num_partitions=topology.device_count,
    )  # fmt: skip
    model = CollectiveModel(target(name), topology=topology, extended=extended)
    start = next(i for i in module.entry.instructions if i.name == "start")
    return SolEstimator(model).latency(start, module.entry.root)


@pytest.mark.parametrize("name", ["gb200", "gb300", "b300", "a100_sxm_80"])
def test_strict_xla_has_no_answer_and_extended_marks_its_own(name) -> None:
    strict = price(
        name, RACK, "all-reduce-start", 1 << 20, "[1,72]<=[72]", extended=False
    )
    assert (strict.us, strict.model) == (HIGH, "gpu-approximate")
    assert strict.reason
    ours = price(name, RACK, "all-reduce-start", 1 << 20, "[1,72]<=[72]")
    assert ours.model == "extended/table"
    assert 5 < ours.us < 1000


@pytest.mark.parametrize("domain", [36, 72])
def test_domains_of_gb200(domain) -> None:
    topology = Topology(2, domain // 4, 4)
    inside = price(
        "gb200", topology, "all-reduce-start", 1 << 24, f"[2,{domain}]<=[{2 * domain}]"
    )
    across = price(
        "gb200",
        topology,
        "all-reduce-start",
        1 << 24,
        f"[1,{2 * domain}]<=[{2 * domain}]",
    )
    assert inside.model == "extended/table"
    assert across.model == "extended/ring"
    assert set(across.parts_us) == {
        "launch",
        "rtt",
        "preparation",
        "wire",
        "memory",
        "reduction",
    }


def test_the_partition_size_given_wins_over_the_topology() -> None:
    module = collective_module(
        "all-gather-start",
        "bf16[1024]",
        "bf16[73728]",
        "[1,72]<=[72]",
        num_partitions=72,
    )
    start = module.entry.instructions[1]
    wide, narrow = (
        CollectiveModel(
            target("gb200"), LatencyOptions.parse(text), RACK, extended=True
        )
        for text in ("", "partition_size=36")
    )
    assert wide.estimate(describe(start)).model == "extended/table"
    assert narrow.estimate(describe(start)).model == "extended/ring"


def test_groups_that_do_not_divide_a_host_are_priced() -> None:
    hosts = Topology(16, 1, 8)
    groups = "[64,2]<=[2,64]T(1,0)"
    assert (
        price("h100_sxm", hosts, "all-reduce-start", 1 << 20, groups, extended=False).us
        == HIGH
    )
    ours = price("h100_sxm", hosts, "all-reduce-start", 1 << 20, groups)
    assert ours.model == "extended/ring"
    assert "64 communicators do not divide" in ours.reason


def test_what_strict_knows_extended_leaves_alone() -> None:
    hosts = Topology(2, 1, 8)
    for groups in ("[2,8]<=[16]", "[1,16]<=[16]"):
        strict = price(
            "h100_sxm", hosts, "all-reduce-start", 1 << 20, groups, extended=False
        )
        assert price("h100_sxm", hosts, "all-reduce-start", 1 << 20, groups) == strict


@pytest.mark.parametrize("kind", ["collective-broadcast"])
def test_rare_collectives_have_a_bound(kind) -> None:
    module = collective_module(
        f"async-start({kind})", "f32[1048576]", "f32[1048576]", "{{0,1,2,3,4,5,6,7}}",
        num_partitions=8,
    )  # fmt: skip
    model = CollectiveModel(target("h100_sxm"), extended=True)
    found = SolEstimator(model).latency(module.entry.instructions[1], module.entry.root)
    assert found.model == "extended/table"
    assert found.us == pytest.approx(37, rel=0.5)


def test_gemms_scale_with_the_dense_rate() -> None:
    gemm = Gemm(1, 4096, 4096, 4096, "bf16", "bf16", "bf16")
    gb200, b200, a100 = (
        CollectiveModel(target(name), extended=True).gemm_ticks(gemm)
        for name in ("gb200", "b200", "a100_sxm_80")
    )
    assert gb200 == pytest.approx(b200 * 2225.159 / 2398.108, rel=1e-3)
    assert a100 > 3 * CollectiveModel(target("h100_sxm")).gemm_ticks(gemm)


@pytest.mark.parametrize(
    ("types", "times"),
    [
        ("bf16 bf16 bf16", 1),
        ("f32 f32 f32", 1),
        ("bf16 bf16 f32", 64),
        ("f16 f16 f16", 8),
        ("s8 s8 s8", 1),
    ],
)
def test_types_that_the_table_lacks_count_once(types: str, times: int) -> None:
    """XLA counts a product's flops by the cube of the bytes of its result."""
    gemm = Gemm(2, 512, 1024, 2048, *types.split())
    for name in ("h100_sxm", "a100_sxm_80"):
        ours = CollectiveModel(target(name), extended=True)
        assert ours.gemm_times_its_share(gemm) == 1
        flops_per_us = gemm.flops / us_of_ticks(ours.gemm_ticks(gemm))
        assert 5e6 < flops_per_us < 2e9
    strict = CollectiveModel(target("h100_sxm"))
    ours = CollectiveModel(target("h100_sxm"), extended=True)
    assert strict.gemm_times_its_share(gemm) == times
    assert strict.gemm_ticks(gemm) == pytest.approx(
        times * ours.gemm_ticks(gemm), rel=1e-3
    )
    assert ours.gemm_is_scaled(gemm) == (times > 1)
    assert not strict.gemm_is_scaled(gemm)


@given(
    st.sampled_from(["gb200", "gb300", "h100_sxm", "a100_sxm_80"]),
    st.sampled_from([2, 3, 6, 12, 24, 72]),
    st.integers(20, 30),
)
def test_inside_a_domain_more_bytes_take_longer(name, members, log_size) -> None:
    """From 1 MiB on the measured curves rise."""
    groups = "{{" + ",".join(map(str, range(members))) + "}}"
    small = price(name, RACK, "all-reduce-start", 1 << log_size, groups)
    large = price(name, RACK, "all-reduce-start", 1 << (log_size + 2), groups)
    assert large.us > small.us


@given(st.integers(1, 1 << 30), st.integers(2, 64))
def test_across_hosts_time_grows_with_bytes_and_hosts(size, hosts) -> None:
    model = CollectiveModel(target("h100_sxm"))
    from hlo_passes.scheduler.latency.network import ring_time

    here = ring_time(model.config, size, hosts, "all-gather", 1).total
    assert here <= ring_time(model.config, size * 2, hosts, "all-gather", 1).total
    assert here >= model.config.launch_ticks


def test_strict_raises_where_it_has_no_answer() -> None:
    module = collective_module(
        "all-gather-start", "f32[8]", "f32[24]", "[8,3]<=[24]", num_partitions=24
    )
    with pytest.raises(NotEstimated, match="spread differently"):
        CollectiveModel(target("h100_sxm")).estimate(
            describe(module.entry.instructions[1])
        )


SEND = """HloModule m, num_partitions=16

ENTRY %e (a: f32[1048576]) -> token[] {
  %a = f32[1048576] parameter(0)
  %t = token[] after-all()
  %send = (f32[1048576], u32[], token[]) send(%a, %t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,8},{1,9}}"}
  ROOT %done = token[] send-done(%send), channel_id=1
}
"""


def test_sends_are_priced_by_their_pairs_where_asked_for() -> None:
    entry = hlo_passes.parse(SEND).entry
    send, done = entry.instructions[2:]
    strict = SolEstimator(CollectiveModel(target("h100_sxm")))
    assert strict.latency(send, done).us == HIGH
    ours = SolEstimator(CollectiveModel(target("h100_sxm"), extended=True))
    permute = collective_module(
        "collective-permute", "f32[1048576]", "f32[1048576]", "{{0,8},{1,9}}",
        num_partitions=16,
    )  # fmt: skip
    found = ours.latency(send, done)
    assert found.model == "extended/ring"
    wanted = strict.latency(permute.entry.instructions[1], permute.entry.root)
    assert found.us == wanted.us
