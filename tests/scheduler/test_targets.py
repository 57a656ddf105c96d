"""Targets, topologies, latency options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import hlo_passes
from hlo_passes import ParseError, Pricing, UsageError, scheduler
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.hardware.target import parse_target, target, target_names
from hlo_passes.scheduler.hardware.text_proto import parse_text_proto
from hlo_passes.scheduler.hardware.topology import (
    Topology,
    topology_of_devices,
)
from hlo_passes.scheduler.latency.communication import communication_type, permute_type
from hlo_passes.scheduler.latency.network import NotEstimated
from hlo_passes.scheduler.latency.options import LatencyOptions, network_config


def test_every_target_is_whole() -> None:
    assert {"h100_sxm", "h200", "b200", "gb200", "b300", "gb300"} <= set(target_names())
    for name in target_names():
        part = target(name)
        assert part.sm_count > 0
        assert part.memory_bandwidth_bytes_per_s > 10**12
        assert part.has_analytical_model == (not name.startswith("a100"))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100_sxm", "sm_90"), ("h200", "sm_90"), ("b200", "sm_100_B200"),
        ("gb200", "sm_100_GB200"), ("gb300", "sm_103"), ("a100_sxm_80", "sm_80"),
    ],
)  # fmt: skip
def test_key_of_the_tables(name, key) -> None:
    assert target(name).table_key == key


def test_a_file_of_the_users_own(tmp_path) -> None:
    file = tmp_path / "mine.txtpb"
    file.write_text(
        "# latency-options: nic_speed_gbps=12.5,rtt_us=9.25\n"
        "gpu_device_info { core_count: 10 fpus_per_core: 64 memory_bandwidth: 1000\n"
        "  clock_rate_ghz: 1.5 threads_per_core_limit: 1024\n"
        '  cuda_compute_capability { major: 9 minor: 0 } name: "Mine" }\n'
    )
    mine = target(str(file))
    assert (mine.name, mine.sm_count, mine.table_key) == ("Mine", 10, "sm_90")
    config = network_config(mine, LatencyOptions.parse("rtt_us=7"))
    assert config.nic_gb_per_s == 12.5
    assert config.rtt_ticks == 7 * 4000


#: What a description needs at least.
FIGURES = "core_count: 1 fpus_per_core: 1 memory_bandwidth: 1 clock_rate_ghz: 1"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gpu_device_info { core_count: }", "P400"),
        ("gpu_device_info { core_count: 1", "P400"),
        ("{{{", "P400"),
        ("gpu_device_info { core_count: 3 }", "U201"),
        (f"gpu_device_info {{ {FIGURES} core_count: -3 }}", "U201"),
        (f"gpu_device_info {{ {FIGURES} core_count: nan }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} core_count: 1e999 }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} memory_bandwidth: 1e-320 }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} core_count: 131.5 }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} l2_cache_size: many }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} l2_cache_size: {'9' * 5000} }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} clock_rate_ghz: {'9' * 400} }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} clock_rate_ghz: fast }}", "P400"),
        (f"gpu_device_info {{ {FIGURES} matrix_unit_description {{ rate_infos {{"
         " value { clock_rate_ghz: inf } } } }", "P400"),
        ("# latency-options: rtt_us=many\ngpu_device_info { core_count: 1 fpus_per_core: 1"
         " memory_bandwidth: 1 clock_rate_ghz: 1 }", "U201"),
    ],
)  # fmt: skip
def test_a_broken_description_is_refused(text, code) -> None:
    with pytest.raises((ParseError, UsageError)) as refused:
        parse_target(text, spec="x", filename="x.txtpb")
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("constant", "hint"),
    [
        ("nic_speed_gbp=12.5", "nic_speed_gbps"),
        ("nic_speed_gbps=0", "0.001 to"),
        ("chunk_size_bytes=0", "1 to"),
        ("rtt_us=1e11", "1000000"),
        ("rtt_us", "1000000"),
    ],
)
def test_a_constant_that_the_network_cannot_have(constant, hint) -> None:
    text = f"# latency-options: {constant}\ngpu_device_info {{ {FIGURES} }}"
    with pytest.raises(UsageError, match=rf"U201\]: x.txtpb: (.|\n)*{hint}"):
        parse_target(text, spec="x.txtpb", filename="x.txtpb")


@pytest.mark.parametrize(
    ("version", "known"),
    [("12.8.1", (12, 8)), ("12.9", (12, 9)), ("12", (0, 0)), ("9" * 5000, (0, 0)),
     ("1." + "9" * 5000, (0, 0)), ("", (0, 0))],
)  # fmt: skip
def test_the_version_of_the_toolkit(version, known) -> None:
    told = f'compile_time_toolkit_version: "{version}"'
    text = f"gpu_device_info {{ {FIGURES} {told} }}"
    assert parse_target(text, spec="x").toolkit_version == known


def test_a_number_that_is_none_has_its_place() -> None:
    text = f"gpu_device_info {{\n  {FIGURES}\n  l2_cache_size: many\n}}\n"
    with pytest.raises(ParseError, match=r"x.txtpb:3:3: error\[P400\]: l2_cache_size"):
        parse_target(text, spec="x", filename="x.txtpb")


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(ParseError, match="nested messages"):
        parse_text_proto("a {" * 10_000)


def test_text_proto_forms() -> None:
    found = parse_text_proto(
        'a: [1, -2] b { c: "x\\n" "y" } b < d: 1.5e3f > e: TRUE_ENUM'
    )
    assert found == {
        "a": [1, -2],
        "b": [{"c": ["x\ny"]}, {"d": [1500.0]}],
        "e": ["TRUE_ENUM"],
    }


# -- topology ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "8", "1x8", "0x1x8", "1x2x8x1", "ax1x8", "1x-1x8"]
)
def test_a_bad_topology_is_refused(text) -> None:
    with pytest.raises(UsageError) as refused:
        Topology.parse(text)
    assert refused.value.code == "U202"


def test_topology_of_a_module() -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  ROOT %g = f32[96] all-gather(%p), replica_groups={{0,1,2,3,4,5,6,7,8,9,10,11}},"
        " dimensions={0}\n}\n"
    )

    def machine(**on: Any) -> str:
        return machine_of(module, Pricing(**on)).to_text()

    assert machine() == "2x1x8"
    assert machine(devices=4) == "1x1x4"
    assert machine(topology="1x2x8") == "1x2x8"
    assert machine(topology="1x1x4", devices=4) == "1x1x4"
    # Partitions of different size: how many devices there are is not known.
    mixed = Topology(2, -1, -1)
    assert machine_of(module, Pricing(topology=mixed)) == mixed
    assert mixed.described == "hosts of different size"


@pytest.mark.parametrize("wanted", ["1x1x8", Topology(1, 2, 4)])
def test_a_machine_too_small_for_the_module_is_refused(wanted) -> None:
    module = hlo_passes.parse(
        "HloModule m, num_partitions=12\n\nENTRY %e {\n"
        "  ROOT %p = f32[8] parameter(0)\n}\n"
    )
    for use in (_estimated, _simulated):
        with pytest.raises(UsageError) as refused:
            use(module, wanted)
        assert refused.value.code == "U218"
        assert "has 8 devices, but the module runs on 12" in str(refused.value)
        assert "use --hosts=" in refused.value.render()


def _estimated(module: hlo_passes.Module, topology: str | Topology) -> None:
    scheduler.estimate(module, topology=topology)


def _simulated(module: hlo_passes.Module, topology: str | Topology) -> None:
    scheduler.simulate(module, topology=topology)


@dataclass
class Device:
    process_index: int
    fabric_uuid: str | None = None
    partition_index: int | None = None
    slice_index: int | None = None


def test_devices_are_grouped_by_fabric_then_by_host() -> None:
    racks = [Device(p, f"cluster/{p // 18}") for p in range(36) for _ in range(4)]
    assert topology_of_devices(racks).to_text() == "2x18x4"
    hosts = [Device(p) for p in range(3) for _ in range(8)]
    assert topology_of_devices(hosts).to_text() == "3x1x8"
    # One device without a fabric: the host is the partition of all.
    racks[0] = Device(0)
    assert topology_of_devices(racks).to_text() == "36x1x4"


def test_an_explicit_index_wins() -> None:
    devices = [
        Device(p, "same/0", partition_index=p // 2) for p in range(4) for _ in range(2)
    ]
    assert topology_of_devices(devices).to_text() == "2x2x2"
    slices = [Device(p, slice_index=p // 4) for p in range(8) for _ in range(2)]
    assert topology_of_devices(slices).to_text() == "2x4x2"


def test_a_mixed_machine_has_no_regular_topology() -> None:
    devices = [Device(p, f"f/{p // 2}") for p in range(3) for _ in range(8)]
    topology = topology_of_devices(devices)
    assert (topology.partitions, topology.hosts_per_partition) == (2, -1)
    assert topology.partition_size == 1


# -- classification ------------------------------------------------------------------


def _groups(text: str) -> tuple[tuple[int, ...], ...]:
    from hlo_passes.ir.replica_groups import parse_replica_groups

    return parse_replica_groups(text).groups


@pytest.mark.parametrize(
    ("groups", "partition", "kind"),
    [
        ("[1,8]<=[8]", 8, "single-partition"),
        ("[2,8]<=[16]", 8, "single-partition"),
        ("[1,16]<=[16]", 8, "multi-host-world-level"),
        ("[2,16]<=[32]", 8, "multi-host-world-level"),
        ("[8,2]<=[2,8]T(1,0)", 8, "multi-host-non-world-level"),
        ("{{0,1,8,9},{2,3,10,11}}", 8, "multi-host-non-world-level"),
        ("[1,64]<=[64]", 36, "multi-host-non-world-level"),
        ("{}", 8, "single-partition"),
    ],
)
def test_groups_are_classified(groups, partition, kind) -> None:
    assert communication_type(_groups(groups), partition, replica_count=1).value == kind


@pytest.mark.parametrize("groups", ["[8,3]<=[24]", "{{0,1},{2,3,4}}"])
def test_unlike_groups_have_no_class(groups) -> None:
    with pytest.raises(NotEstimated):
        communication_type(_groups(groups), 8, replica_count=1)


@pytest.mark.parametrize(
    ("pairs", "kind"),
    [
        (((0, 1), (2, 3)), "intra-one-way"),
        (((0, 1), (1, 0)), "intra-two-way-all-mutual"),
        (((0, 1), (1, 2), (2, 0)), "intra-two-way-has-non-mutual"),
        (((0, 0),), "intra-two-way-all-mutual"),
        (((0, 1), (2, 9)), "inter-one-way"),
        (((7, 8), (8, 7)), "inter-two-way-all-mutual"),
        (((7, 8), (8, 9)), "inter-two-way-has-non-mutual"),
    ],
)
def test_permutes_are_classified(pairs, kind) -> None:
    assert permute_type(pairs, 8).value == kind


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("rtt_us=0", "U204", "rtt_us is an integer from 1"),
        ("chunk_size_bytes=1.5", "U204", "bytes"),
        ("nic_speed_gbps=nan", "U204", "a number from 0.001 to 100000"),
        ("nic_speed_gbps=inf", "U204", "100000"),
        ("rtt_us", "U204", "rtt_us is"),
        ("rtt=3", "U203", "did you mean rtt_us?"),
    ],
)
def test_a_bad_latency_option_names_the_range(text, code, hint) -> None:
    with pytest.raises(UsageError) as refused:
        LatencyOptions.parse(text)
    assert refused.value.code == code
    assert hint in refused.value.hint


def test_latency_options_round_trip() -> None:
    text = "nccl_op_launch_us=50,nic_speed_gbps=12.5,partition_size=72"
    assert LatencyOptions.parse(text).to_text() == text
    assert LatencyOptions.parse("") == LatencyOptions()


def test_an_index_that_is_everywhere_the_same_says_nothing() -> None:
    ahead_of_time = [
        Device(p, fabric_uuid="", partition_index=0, slice_index=0)
        for p in range(4)
        for _ in range(4)
    ]
    assert topology_of_devices(ahead_of_time).to_text() == "4x1x4"
    one_rack = [Device(p, "c/1", partition_index=0) for p in range(4) for _ in range(4)]
    assert topology_of_devices(one_rack).to_text() == "1x4x4"
    assert topology_of_devices([]).to_text() == "0x0x0"
