"""Worked values of XLA's latency model.

T: an expectation of XLA's own unit tests. L: logged by XLA (jaxlib 0.10.2). E: XLA's
formulas evaluated once. Microseconds; exact to the quarter nanosecond.
"""

from __future__ import annotations

import pytest

from hlo_passes import Module
from hlo_passes.scheduler.estimators.base import HIGH
from hlo_passes.scheduler.estimators.ring import RingEstimator
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.fusions.roofline import fusion_time
from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.data_tables import op_cycles
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.matmul_table import Gemm, builtin_matmul_table
from hlo_passes.scheduler.latency.network import (
    all_to_all_time,
    nvlink_kernel_ticks,
    ring_time,
)
from hlo_passes.scheduler.latency.options import LatencyOptions, network_config
from hlo_passes.xla_release import NEWEST
from tests.scheduler.single_ops import collective_module, fusion_module

DEVICE_T = Target(
    spec="device-t",
    name="",
    capability=(9, 0),
    sm_count=84,
    fpus_per_sm=128,
    threads_per_sm=1536,
    clock_ghz=1.41,
    memory_bandwidth_bytes_per_s=768_096_000_000,
    l2_cache_bytes=6 << 20,
    memory_bytes=0,
    nvlink_links=0,
    pcie_bandwidth_bytes_per_s=0,
    toolkit_version=(0, 0),
)
OPTIONS_T = "nccl_op_launch_us=100,nic_speed_gbps=100,chunk_prep_us=100,rtt_us=100"
CONFIG_T = network_config(DEVICE_T, LatencyOptions.parse(OPTIONS_T))
MIB = 1 << 20


@pytest.mark.parametrize(
    ("hosts", "kind", "us"),
    [
        (1, "all-gather", 284.4045),
        (2, "all-gather", 485.07625),
        (4, "all-reduce", 1670.8245),
        (4, "reduce-scatter", 885.41225),
        (2, "send-recv", 485.98325),
    ],
)
def test_ring_of_8_mib_takes(hosts, kind, us) -> None:
    found = ring_time(CONFIG_T, 8 * MIB, hosts, kind, 1)
    assert us_of_ticks(found.total) == us


@pytest.mark.parametrize(("hosts", "us"), [(1, 100), (2, 1745.858), (4, 4966.57)])
def test_all_to_all_of_8_mib_takes(hosts, us) -> None:
    assert us_of_ticks(all_to_all_time(CONFIG_T, 8 * MIB, hosts, 1).total) == us


@pytest.mark.parametrize(("size", "us"), [(128 << 10, 5.0485), (MIB, 9.097)])
def test_nvlink_kernel_takes(size, us) -> None:
    config = network_config(target("h100_sxm"), LatencyOptions())
    assert us_of_ticks(nvlink_kernel_ticks(config, size, 8, 18, 20.0)) == us


def _device(name: str) -> Target:
    return DEVICE_T if name == "device-t" else target(name)


def _latency(module: Module, estimator) -> object:
    start = next(i for i in module.entry.instructions if i.name in ("start", "sync"))
    return estimator.latency(start, module.entry.root)


PAIRS_ACROSS = "{" + ",".join(f"{{{i},{i + 8}}}" for i in range(8)) + "}"
SIXTEEN = "{" + ",".join(f"{{{i},{i + 16}}}" for i in range(16)) + "}"
A2A, RS = "async-start(all-to-all)", "async-start(reduce-scatter)"
PERMUTE = "collective-permute-start"
RTT_OPTIONS = "nic_speed_gbps=12.5,rtt_us=10,chunk_prep_us=2,nccl_op_launch_us=55,chunk_size_bytes=1048576"

#: number, device, options, op profile, operation, operand, result, groups, partitions, us
COLLECTIVES = [
    (11, "device-t", OPTIONS_T, "sm_90", "all-gather-start", "bf16[16000,1000]", "bf16[16000,8000]", "[2,8]<=[16]", 16, 695.4955),
    (12, "device-t", OPTIONS_T, "sm_90", "all-gather-start", "bf16[16000,4000]", "bf16[16000,8000]", PAIRS_ACROSS, 16, 5445.22925),
    (13, "device-t", OPTIONS_T, "sm_90", "all-gather-start", "bf16[16000,500]", "bf16[16000,8000]", "[1,16]<=[16]", 16, 2324.04425),
    (14, "device-t", OPTIONS_T, "sm_90", RS, "bf16[8192,128256]", "bf16[64,128256]", "[1,128]<=[128]", 128, 18895.61075),
    (15, "device-t", "", "sm_86", RS, "bf16[8192,128256]", "bf16[1024,128256]", "[1,8]<=[8]", 8, 5716.22225),
    (16, "device-t", "", "sm_86", PERMUTE, "f32[262144,1024]", "f32[262144,1024]", "{{0,3},{1,0},{2,1},{3,2}}", 4, 3706.165),
    (17, "device-t", "", "sm_86", PERMUTE, "f32[262144,1024]", "f32[262144,1024]", "{{0,1},{1,0},{2,3},{3,2}}", 4, 3696.973),
    (18, "device-t", "", "sm_86", PERMUTE, "f32[262144,1024]", "f32[262144,1024]", "{{0,1},{2,3}}", 4, 3961.895),
    (19, "device-t", "", "sm_86", PERMUTE, "f32[262144,1024]", "f32[262144,1024]", PAIRS_ACROSS, 16, 27816.494),
    (27, "h100_sxm", "", "sm_86", "all-reduce", "f32[256]", "f32[256]", "[1,8]<=[8]", 8, 49.312),
    (28, "b200", "", "sm_86", "all-reduce", "f32[256]", "f32[256]", "[1,8]<=[8]", 8, 45.024),
    (29, "h100_sxm", "", "sm_86", "all-gather-start", "f32[999999]", "f32[15999984]", "[1,16]<=[16]", 16, 477.93725),
    (30, "h100_sxm", "", "sm_86", "all-reduce-start", "bf16[262144]", "bf16[262144]", "[1,16]<=[16]", 16, 188.96975),
    (31, "h100_sxm", "", "sm_86", A2A, "s8[48000000]", "s8[48000000]", "[1,16]<=[16]", 16, 1419.181),
    (32, "h100_sxm", "", "sm_86", RS, "f32[1975312]", "f32[123457]", "[1,16]<=[16]", 16, 159.2705),
    (33, "h100_sxm", "", "sm_86", "all-gather-start", "f32[40000]", "f32[160000]", "{{0,1,8,9},{2,3,10,11},{4,5,12,13},{6,7,14,15}}", 16, 186.5165),
    (34, "h100_sxm", "", "sm_86", "all-reduce-start", "f32[40000]", "f32[40000]", "[8,2]<=[2,8]T(1,0)", 16, 125.616),
    (35, "h100_sxm", "", "sm_86", "all-gather-start", "bf16[128,64,128]", "bf16[8192,64,128]", "[2,64]<=[128]", 128, 1783.89725),
    (36, "b200", "", "sm_86", "all-reduce-start", "bf16[20000001]", "bf16[20000001]", "[2,8]<=[8,2]T(1,0)", 16, 804.738),
    (37, "b200", "", "sm_86", A2A, "bf16[32768]", "bf16[32768]", "[1,32]<=[32]", 32, 598.151),
    (38, "b200", "", "sm_86", "all-gather-start", "s8[40000]", "s8[320000]", "[1,8]<=[8]", 8, 46.211),
    (39, "h100_sxm", "gpus_per_node=16", "sm_86", "all-gather-start", "f32[999999]", "f32[3999996]", "[4,4]<=[4,4]T(1,0)", 16, 66.742),
    (40, "h100_sxm", RTT_OPTIONS, "sm_86", "all-reduce-start", "s8[20000001]", "s8[20000001]", "[1,16]<=[16]", 16, 498.73775),
    (57, "h100_sxm", "", "sm_86", "all-gather-start", "bf16[8388608]", "bf16[536870912]", "[1,64]<=[64]", 64, 6850.62275),
    (58, "h100_sxm", "", "sm_86", "all-reduce-start", "bf16[67108864]", "bf16[67108864]", "[1,32]<=[32]", 32, 1707.45725),
    (59, "h100_sxm", "", "sm_86", "all-reduce-start", "f32[1048576]", "f32[1048576]", "[4,8]<=[32]", 32, 68.672),
    (62, "h100_sxm", "", "sm_86", "all-gather-start", "f32[16]", "f32[128]", "[1,8]<=[8]", 8, 15.968),
    (63, "h100_sxm", "", "sm_86", "all-gather-start", "bf16[536870912]", "bf16[4294967296]", "[1,8]<=[8]", 8, 21842.432),
    (64, "h100_sxm", "", "sm_86", "all-gather-start", "f32[49152]", "f32[393216]", "[1,8]<=[8]", 8, 23.736),
    (65, "h100_sxm", "", "sm_86", "all-gather-start", "f32[3000]", "f32[18000]", "{{0,1,2,3,4,5}}", 6, 20.42575),
    (66, "gb200", "partition_size=72,gpus_per_node=8", "sm_86", "all-gather-start", "bf16[3495253]", "bf16[503316432]", "[1,144]<=[144]", 144, 3070.0755),
    (67, "gb200", "gpus_per_node=4", "sm_86", "all-gather-start", "f32[1000]", "f32[16000]", "[1,16]<=[16]", 16, 184.0945),
    (68, "gb200", "gpus_per_node=72", "sm_86", "all-reduce-start", "f32[3000000]", "f32[3000000]", "[2,8]<=[16]", 16, 110.75225),
]  # fmt: skip


@pytest.mark.parametrize("row", COLLECTIVES, ids=lambda row: f"{row[0]}-{row[4]}")
def test_collective_takes(row) -> None:
    _, device, options, profile, operation, operand, result, groups, partitions, us = (
        row
    )
    model = CollectiveModel(
        _device(device), LatencyOptions.parse(options), op_profile=profile,
        matmul_table=builtin_matmul_table("sm_100_B200"),
    )  # fmt: skip
    model.off_reason = ""  # 66: XLA's formulas, though it finds no table
    module = collective_module(
        operation, operand, result, groups, num_partitions=partitions
    )
    assert _latency(module, SolEstimator(model)).us == us


@pytest.mark.parametrize(
    ("options", "operand", "result", "groups", "reason"),
    [
        ("", "f32[3000000]", "f32[6000000]", SIXTEEN, "16 communicators do not divide"),
        ("", "bf16[5000]", "bf16[15000]", "[8,3]<=[24]", "spread differently"),
        ("partition_size=16", "bf16[5000]", "bf16[80000]", "[1,16]<=[16]", "no measured all-gather"),
    ],
)  # fmt: skip
def test_what_xla_refuses_costs_the_coarse_5000(
    options, operand, result, groups, reason
) -> None:
    model = CollectiveModel(target("h100_sxm"), LatencyOptions.parse(options))
    module = collective_module(
        "all-gather-start", operand, result, groups, num_partitions=32
    )
    found = _latency(module, SolEstimator(model))
    assert (found.us, found.model) == (HIGH, "gpu-approximate")
    assert reason in found.reason


def test_broadcast_is_priced_only_where_asked_for() -> None:
    module = collective_module(
        "async-start(collective-broadcast)", "f32[32768]", "f32[32768]",
        "{{" + ",".join(map(str, range(16))) + "}}", num_partitions=16,
    )  # fmt: skip
    model = CollectiveModel(target("h100_sxm"))
    assert _latency(module, SolEstimator(model, always=True)).us == 5.07825
    coarse = _latency(module, SolEstimator(model))
    assert coarse.us == HIGH
    assert "collective-broadcast" in coarse.reason


@pytest.mark.parametrize(
    ("device", "size", "groups", "strategy", "us"),
    [
        ("h100_sxm", "f32[32768]", "[1,8]<=[8]", "TRITON_ONE_SHOT", 5.0875),
        ("b200", "bf16[1048576]", "[2,4]<=[8]", "TRITON_TWO_SHOT", 7.64225),
    ],
)
def test_annotated_all_reduce_is_a_kernel_from_0_12_on(
    device, size, groups, strategy, us
) -> None:
    module = collective_module(
        "all-reduce-start",
        size,
        size,
        groups,
        num_partitions=8,
        kernel_strategy=strategy,
    )
    model = CollectiveModel(target(device), topology=Topology(1, 1, 8), release=NEWEST)
    assert _latency(module, SolEstimator(model)).us == us


#: number, device table, (b, m, k, n), types, us
GEMMS = [
    (20, "sm_90", (1, 1024, 512, 4096), "bf16 bf16 bf16", 12.352),
    (21, "sm_90", (4, 256, 256, 1024), "f32 f32 f32", 10.176),
    (22, "sm_90", (1, 4096, 4096, 2048), "bf16 bf16 bf16", 90.496),
    (23, "sm_90", (1, 64, 64, 64), "s8 s8 s8", 0.078),
    (24, "sm_90", (1, 2048, 2048, 2048), "f8e4m3fn f8e4m3fn bf16", 12.16),
    (25, "sm_100_B200", (1, 512, 512, 512), "f8e4m3fn f8e5m2 bf16", 5.665),
    (45, "sm_90", (2, 1500, 3000, 1500), "bf16 bf16 bf16", 39.94275),
    (46, "sm_90", (4, 128, 128, 16), "bf16 bf16 f32", 5.616),
    (47, "sm_100_B200", (1, 5000, 8192, 3000), "f8e4m3fn f8e4m3fn f32", 11100.998),
    (48, "sm_100_B200", (1, 8192, 1024, 63), "f16 f16 f32", 147.4515),
    (69, "sm_90", (1, 8192, 8192, 8192), "bf16 bf16 bf16", 1409.28),
    (70, "sm_90", (1, 4096, 4096, 4096), "bf16 bf16 f32", 11274.24),
    (71, "sm_90", (1, 1024, 1024, 1024), "f8e4m3fn f8e4m3fn bf16", 6.48),
]


@pytest.mark.parametrize(("number", "table", "sides", "types", "us"), GEMMS)
def test_gemm_takes(number, table, sides, types, us) -> None:
    gemm = Gemm(*sides, *types.split())
    found = us_of_ticks(builtin_matmul_table(table).ticks(gemm))
    assert found == pytest.approx(us, abs=0.0005), number


ADD = "%add.1 (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n  ROOT %z = f32[] add(%x, %y)\n}\n"


def _binary(shape: str, opcode: str = "add") -> str:
    return (
        f"%body (p: {shape}, q: {shape}) -> {shape} {{\n  %p = {shape} parameter(0)\n"
        f"  %q = {shape} parameter(1)\n  ROOT %r = {shape} {opcode}(%p, %q)\n}}"
    )


#: number, device, kind, body, emitter, blocks, threads, us
FUSIONS = [
    (26, "device-t", "kInput", _binary("bf16[1024,1024]"), "loop", 2048, 128, 8.196),
    (49, "h100_sxm", "kLoop", _binary("f32[16777216]"), "loop", 32768, 128, 60.09375),
    (50, "h100_sxm", "kInput",
     "%body (p: f32[4096,4096]) -> f32[4096,4096] {\n  %p = f32[4096,4096] parameter(0)\n"
     "  ROOT %t = f32[4096,4096] transpose(%p), dimensions={1,0}\n}",
     "transpose", 16384, 128, 40.0375),
    (51, "h100_sxm", "kInput",
     ADD + "%body (p: f32[8192,8192]) -> f32[8192] {\n  %p = f32[8192,8192] parameter(0)\n"
     "  %zero = f32[] constant(0)\n"
     "  ROOT %r = f32[8192] reduce(%p, %zero), dimensions={1}, to_apply=%add.1\n}",
     "reduction", 8192, 512, 80.23475),
    (52, "h100_sxm", "kInput",
     ADD + "%body (p: f32[4096,64]) -> f32[64] {\n  %p = f32[4096,64] parameter(0)\n"
     "  %zero = f32[] constant(0)\n  %s = f32[4096,64] multiply(%p, %p)\n"
     "  ROOT %r = f32[64] reduce(%s, %zero), dimensions={0}, to_apply=%add.1\n}",
     "reduction", 1, 1024, 16.705),
    (53, "h100_sxm", "kLoop",
     "%body (p: bf16[100000,100], q: bf16[100000,60]) -> bf16[100000,160] {\n"
     "  %p = bf16[100000,100] parameter(0)\n  %q = bf16[100000,60] parameter(1)\n"
     "  ROOT %c = bf16[100000,160] concatenate(%p, %q), dimensions={1}\n}",
     "concatenate", 19532, 128, 96.60825),
    (54, "h100_sxm", "kLoop",
     "%body (p: f32[128,1000000], q: f32[1000000]) -> f32[128,1000000] {\n"
     "  %p = f32[128,1000000] parameter(0)\n  %q = f32[1000000] parameter(1)\n"
     "  %b = f32[128,1000000] broadcast(%q), dimensions={1}\n"
     "  ROOT %r = f32[128,1000000] add(%p, %b)\n}",
     "loop", 250000, 128, 367.555),
    (55, "h100_sxm", "kLoop",
     "%body (p: f32[80,1048576], u: f32[1,1048576], i: s32[]) -> f32[80,1048576] {\n"
     "  %p = f32[80,1048576] parameter(0)\n  %u = f32[1,1048576] parameter(1)\n"
     "  %i = s32[] parameter(2)\n  %zero = s32[] constant(0)\n"
     "  %twice = f32[1,1048576] add(%u, %u)\n"
     "  ROOT %d = f32[80,1048576] dynamic-update-slice(%p, %twice, %i, %zero)\n}",
     "in-place-update", 2048, 128, 2.50475),
    (56, "b200", "kLoop", _binary("bf16[67108864]"), "loop", 65536, 128, 52.6165),
]  # fmt: skip


@pytest.mark.parametrize("row", FUSIONS, ids=lambda row: f"{row[0]}-{row[4]}")
def test_fusion_takes(row) -> None:
    _, device, kind, body, emitter, blocks, threads, us = row
    module = fusion_module(body, kind)
    found = fusion_time(module.entry.root, _device(device), op_cycles("sm_86"))
    launch = found.kernel.launch
    assert (found.kernel.emitter, launch.blocks, launch.threads) == (
        emitter,
        blocks,
        threads,
    )
    assert us_of_ticks(found.ticks) == us


def test_legacy_ring_estimator_prices_an_all_reduce() -> None:
    module = collective_module(
        "all-reduce-start",
        "f32[16777216]",
        "f32[16777216]",
        "[1,8]<=[8]",
        num_partitions=8,
    )
    assert _latency(module, RingEstimator(target("h100_sxm"))).us == 359.81725


SCATTER = ADD + (
    "%body (p: f32[1000003], i: s32[1000,1], u: f32[1000,1]) -> f32[1000003] {\n"
    "  %p = f32[1000003] parameter(0)\n  %i = s32[1000,1] parameter(1)\n"
    "  %u = f32[1000,1] parameter(2)\n"
    "  ROOT %s = f32[1000003] scatter(%p, %i, %u), update_window_dims={1}, "
    "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "indices_are_sorted=true, to_apply=%add.1\n}"
)


@pytest.mark.parametrize(
    ("device", "sorted_us", "unsorted_us"),
    [("h100_sxm", 2.389, 9.101), ("b200", 1.0435, 8.48925)],
)
def test_scatter_of_sorted_indices_fills_the_gpu(
    device, sorted_us, unsorted_us
) -> None:
    """Logged by XLA: a warp per index when they are sorted, else one per 32 updates."""
    for body, blocks, us in (
        (SCATTER, 250, sorted_us),
        (SCATTER.replace("indices_are_sorted=true, ", ""), 8, unsorted_us),
    ):
        fusion = fusion_module(body, "kInput").entry.root
        found = fusion_time(fusion, target(device), op_cycles("sm_86"))
        assert found.kernel.launch.blocks == blocks
        # XLA's fusion also computed the indices: one tick more.
        assert us_of_ticks(found.ticks) == pytest.approx(us, abs=0.0005)


def test_few_updates_of_a_scatter_occupy_a_whole_warp() -> None:
    """Logged by XLA for 8 updates: 96 flops, blocks 1, threads 32, compute 0.75 ns."""
    body = (
        "%second (x: s32[], y: s32[]) -> s32[] {\n  %x = s32[] parameter(0)\n"
        "  ROOT %y = s32[] parameter(1)\n}\n\n"
        "%body (p: s32[262145], i: s32[8,1], u: f32[8,1]) -> s32[262145] {\n"
        "  %p = s32[262145]{0} parameter(0)\n  %i = s32[8,1]{1,0} parameter(1)\n"
        "  %u = f32[8,1]{1,0} parameter(2)\n"
        "  %more = f32[8,1]{1,0} add(%u, %u)\n"
        "  %less = f32[8,1]{1,0} maximum(%more, %u)\n"
        "  %whole = f32[8,1]{1,0} floor(%less)\n"
        "  %c = s32[8,1]{1,0} convert(%whole)\n"
        "  ROOT %s = s32[262145]{0} scatter(%p, %i, %c), update_window_dims={1}, "
        "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=%second\n}"
    )
    found = fusion_time(
        fusion_module(body, "kInput").entry.root, target("h100_sxm"), op_cycles("sm_86")
    )
    assert found.cost.flops == 96
    assert (found.kernel.launch.blocks, found.kernel.launch.threads) == (1, 32)
    assert found.compute_ticks == 3
    # 16.8635 with eight threads: a tick more.
    assert us_of_ticks(found.ticks) == 16.86325
