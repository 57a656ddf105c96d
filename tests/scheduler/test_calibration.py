"""The fit finds the constants that made the rows."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_passes import UsageError
from hlo_passes.scheduler.calibration import (
    Measurement,
    calibrate,
    calibration_text,
    read_measurements,
    target_with_fits,
)
from hlo_passes.scheduler.hardware.target import parse_target, target
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.collectives import describe
from hlo_passes.scheduler.latency.network import all_to_all_time, ring_time
from hlo_passes.scheduler.latency.options import LatencyOptions, network_config
from tests.scheduler.single_ops import collective_module

H100 = target("h100_sxm")


def rows_of(options: str) -> list[Measurement]:
    """What XLA's formulas say, HBM included, for constants that are given."""
    config = network_config(H100, LatencyOptions.parse(options))
    found = []
    for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        for hosts in (2, 4, 8):
            for k in range(10, 31, 2):
                size, devices = 3 << k, hosts * config.gpus_per_node
                if kind == "collective-permute":
                    devices = hosts = 2
                    wire = ring_time(config, size, 2, "send-recv", 1)
                elif kind == "all-to-all":
                    wire = all_to_all_time(config, size, hosts, 1)
                else:
                    wire = ring_time(config, size, hosts, kind, 1)
                row = Measurement(kind, size, 1.0, devices, hosts)
                memory_us = row.memory_bytes / H100.memory_bandwidth_bytes_per_s * 1e6
                us = wire.total / 4000 + memory_us
                found.append(Measurement(kind, size, us, devices, hosts))
    return found


@settings(max_examples=6, deadline=None)
@given(st.integers(5, 200), st.integers(5, 100), st.integers(1, 40), st.integers(5, 200),
       st.sampled_from([1 << 18, 1 << 20, 1 << 22]))  # fmt: skip
def test_the_constants_come_back(launch, rtt, prep, nic, chunk) -> None:
    rows = rows_of(
        f"nccl_op_launch_us={launch},rtt_us={rtt},chunk_prep_us={prep},"
        f"nic_speed_gbps={nic},chunk_size_bytes={chunk}"
    )
    found = calibrate(rows, H100)
    assert found.relative_rms < 1e-4
    assert found.held == ()
    wanted = (launch, rtt, prep, nic, chunk)
    names = (
        "nccl_op_launch_us",
        "rtt_us",
        "chunk_prep_us",
        "nic_speed_gbps",
        "chunk_size_bytes",
    )
    for name, value in zip(names, wanted, strict=True):
        assert found.options[name] == pytest.approx(value, rel=0.01, abs=0.05), name


OPTIONS = (
    "nccl_op_launch_us=40,rtt_us=20,chunk_prep_us=8,nic_speed_gbps=25,"
    "chunk_size_bytes=1048576"
)


def test_rows_that_are_far_off_hardly_count() -> None:
    """A fifth of the rows take five times as long, as first calls do."""
    rows = [
        dataclasses.replace(row, us=row.us * (5.0 if k % 5 == 0 else 1.0))
        for k, row in enumerate(rows_of(OPTIONS))
    ]
    found = calibrate(rows, H100)
    assert found.options["nccl_op_launch_us"] == pytest.approx(40, rel=0.02)
    assert found.options["nic_speed_gbps"] == pytest.approx(25, rel=0.02)
    assert found.options["rtt_us"] == pytest.approx(20, rel=0.02)
    assert found.outliers == len(range(0, len(rows), 5))
    assert not found.is_poor
    assert f"{found.outliers} of the rows are far off" in calibration_text(found)


def test_noise_beside_rows_that_are_far_off() -> None:
    noise = random.Random(5)
    rows = [
        dataclasses.replace(
            row,
            us=row.us * noise.gauss(1.0, 0.03) * (4.0 if noise.random() < 0.1 else 1.0),
        )
        for row in rows_of(OPTIONS)
    ]
    found = calibrate(rows, H100)
    assert found.options["nic_speed_gbps"] == pytest.approx(25, rel=0.1)
    assert found.options["nccl_op_launch_us"] == pytest.approx(40, rel=0.1)


def test_what_the_rows_do_not_tell_keeps_its_value() -> None:
    rows = [r for r in rows_of("") if r.kind == "collective-permute"][:1] * 3
    found = calibrate(rows, H100)
    assert "rtt_us" in found.held
    assert found.options["rtt_us"] == pytest.approx(31.0005)
    assert "not determined" in calibration_text(found)


def test_a_written_target_prices_as_fitted(tmp_path) -> None:
    rows = rows_of("nccl_op_launch_us=80,rtt_us=20,nic_speed_gbps=40")
    file = tmp_path / "measured.txtpb"
    file.write_text(target_with_fits("h100_sxm", calibrate(rows, H100)))
    measured = target(str(file))
    assert measured.sm_count == H100.sm_count
    module = collective_module(
        "all-gather-start",
        "f32[1048576]",
        "f32[16777216]",
        "[1,16]<=[16]",
        num_partitions=16,
    )
    collective = describe(module.entry.instructions[1])
    by_file = CollectiveModel(measured).estimate(collective).us
    options = LatencyOptions.parse("nccl_op_launch_us=80,rtt_us=20,nic_speed_gbps=40")
    assert by_file == pytest.approx(
        CollectiveModel(H100, options).estimate(collective).us, rel=1e-3
    )


_SIZES = st.integers(10, 40).map(lambda k: 1 << k)
_MEASURED = st.builds(
    Measurement,
    st.sampled_from(("all-gather", "all-reduce", "all-to-all", "collective-permute")),
    _SIZES,
    st.floats(-6, 15).map(lambda k: 10.0**k),
    st.sampled_from((2, 16, 64)),
    st.just(2),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(_MEASURED, min_size=1, max_size=6))
def test_what_is_fitted_can_be_used_or_is_refused(rows) -> None:
    try:
        text = target_with_fits("h100_sxm", calibrate(rows, H100))
    except UsageError as refused:
        assert refused.code == "U214"
        return
    network_config(parse_target(text, spec="fitted"), LatencyOptions())


def test_rows_of_no_network_are_refused() -> None:
    rows = [Measurement("all-reduce", 1 << 24, 1e15, 16, 2)]
    with pytest.raises(
        UsageError, match=r"nccl_op_launch_us=1e\+15, which is out"
    ) as no:
        calibrate(rows, H100)
    assert no.value.code == "U214"
    assert "1 to 1000000" in (no.value.hint or "")


def test_times_that_do_not_rise_with_the_bytes_show_no_rate() -> None:
    rows = [Measurement("all-gather", 1 << k, 400.0, 16, 2) for k in (10, 14, 20)]
    found = calibrate(rows, H100)
    assert "nic_speed_gbps" in found.held
    assert found.options["nic_speed_gbps"] == pytest.approx(
        network_config(H100, LatencyOptions()).nic_gb_per_s
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("kind,bytes,us\n", 1),
        ("kind," + "x" * 200_000, 1),
        ("kind,bytes,us,devices,hosts\n", 1),
        ("kind,bytes,us,devices,hosts\nall-gather,x,1,16,2\n", 2),
        (
            "kind,bytes,us,devices,hosts\n# a comment\nall-gather,8,1,16,2\nsend,8,1,16,2\n",
            4,
        ),
        ("kind,bytes,us,devices,hosts\nall-gather,8,nan,16,2\n", 2),
        ("kind,bytes,us,devices,hosts\nall-gather,8,1,16,17\n", 2),
        ("kind,bytes,us,devices,hosts\nall-gather,8\n", 2),
        (f"kind,bytes,us,devices,hosts\nall-gather,{'9' * 400},1,16,2\n", 2),
        (f"kind,bytes,us,devices,hosts\nall-gather,8,1,{'9' * 400},2\n", 2),
        ("kind,bytes,us,devices,hosts\nall-gather,8,1e-320,16,2\n", 2),
        ("kind,bytes,us,devices,hosts\nall-gather,8,1e300,16,2\n", 2),
    ],
)
def test_a_bad_file_is_refused_by_line(text, line, tmp_path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_measurements(str(file), target("h100_sxm"))
    assert refused.value.code == "U214"
    assert f"rows.csv:{line}:" in refused.value.message


def test_one_small_row_is_fitted_as_far_as_it_goes_and_called_poor() -> None:
    """The constants held exceed it: no launch time, not the target's own on top."""
    found = calibrate(
        (Measurement("all-gather", 1024, 40.0, 16, 2),), target("h100_sxm")
    )
    assert found.options["nccl_op_launch_us"] == 0.0
    assert found.fitted_us[0] < 70.0
    assert found.is_poor
    assert "do not fit the rows" in calibration_text(found)
    assert found.to_json()["is_poor"] is True


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("all-gather,1k,40,16,2", "whole numbers"),
        ("all-gather,1024,40,8,1", "across hosts"),
        ("all-gather,1024,nan,16,2", "out of range"),
    ],
)
def test_a_bad_row_says_what_is_wrong(row, what, tmp_path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"kind,bytes,us,devices,hosts\n{row}\n")
    with pytest.raises(UsageError, match=what):
        read_measurements(str(file), target("h100_sxm"))


def test_hosts_that_nvlink_joins_are_one(tmp_path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("kind,bytes,us,devices,hosts\nall-gather,1024,40,144,36\n")
    (row,) = read_measurements(str(file), target("gb200"))
    assert (row.hosts, row.steps) == (2, 143 / 72)
    file.write_text("kind,bytes,us,devices,hosts\nall-gather,1024,40,72,18\n")
    with pytest.raises(UsageError, match="NVLink joins 18 hosts"):
        read_measurements(str(file), target("gb200"))
