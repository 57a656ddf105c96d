"""Hosts and topologies: what a target comes in, defaults, refusals, first lines."""

from __future__ import annotations

import json
import logging
import pathlib
from typing import Any

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, UsageError, scheduler
from hlo_passes.cli.main import main
from hlo_passes.scheduler.estimators import reported as reported_module
from hlo_passes.scheduler.hardware.machine import (
    host_figures,
    machine_for,
    machine_of,
    topology_of_hosts,
)
from hlo_passes.scheduler.hardware.target import (
    parse_target,
    target,
    target_names,
    target_text,
)
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from tests.modules import REPOSITORY

#: Devices -> the smallest machine, of hosts of eight and of NVL72 racks.
HGX = {1: "1x1x1", 2: "1x1x2", 4: "1x1x4", 8: "1x1x8", 16: "2x1x8", 64: "8x1x8",
       72: "9x1x8", 144: "18x1x8", 512: "64x1x8"}  # fmt: skip
NVL72 = {1: "1x1x1", 2: "1x1x2", 4: "1x1x4", 8: "1x2x4", 16: "1x4x4", 64: "1x16x4",
         72: "1x18x4", 144: "2x18x4", 512: "8x16x4"}  # fmt: skip
MACHINES = {
    "a100_sxm_80": HGX, "b200": HGX, "b300": HGX, "gb200": NVL72, "gb300": NVL72,
    "h100_pcie": HGX, "h100_sxm": HGX, "h200": HGX,
}  # fmt: skip
SIZES = [(name, size) for name in MACHINES for size in HGX]


def all_reduce(devices: int) -> str:
    """A scheduled module with one all-reduce of 16 MiB over all devices."""
    return f"""HloModule m, is_scheduled=true, num_partitions={devices}

add {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY e {{
  %p = f32[4194304]{{0}} parameter(0)
  %s = f32[4194304]{{0}} all-reduce-start(%p), channel_id=1, replica_groups=[1,{devices}]<=[{devices}], use_global_device_ids=true, to_apply=add
  ROOT %d = f32[4194304]{{0}} all-reduce-done(%s)
}}
"""


def module(devices: int = 16) -> hlo_passes.Module:
    return hlo_passes.parse(all_reduce(devices))


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(all_reduce(16))
    return str(path)


# -- every target at every size -----------------------------------------------------


def test_every_target_is_in_the_table() -> None:
    assert set(MACHINES) == set(target_names())
    assert all(host_figures(target(name)).system for name in MACHINES)


@pytest.mark.parametrize(("name", "devices"), SIZES)
def test_the_smallest_machine(name: str, devices: int) -> None:
    machine = machine_for(Pricing(target=name), devices)
    assert machine.to_text() == MACHINES[name][devices]
    assert machine.device_count == devices
    assert machine.partition_size <= host_figures(target(name)).fast_domain_gpus


@pytest.mark.parametrize(("name", "devices"), SIZES)
def test_all_devices_in_one_host(name: str, devices: int) -> None:
    on = Pricing(target=name, topology=f"1x1x{devices}")
    figures = host_figures(target(name))
    if devices <= figures.gpus_per_host:
        assert machine_of(module(devices), on).to_text() == f"1x1x{devices}"
        return
    with pytest.raises(UsageError) as refused:
        machine_of(module(devices), on)
    text = refused.value.render()
    assert refused.value.code == "U225"
    assert f"has {figures.gpus_per_host} GPUs, not {devices}" in text
    # The help names the machine of the same size that exists.
    assert MACHINES[name][devices] in text


@pytest.mark.parametrize("xla", ["0.10.2", "0.12"])
@pytest.mark.parametrize(("name", "devices"), SIZES)
def test_every_size_has_a_time(name: str, devices: int, xla: str) -> None:
    found = scheduler.simulate(module(devices), target=name, xla=xla)
    assert not [r for r in found.remarks if "no price" in r]
    if devices > 1:
        assert 10.0 < found.exposed_us < 10_000.0
        assert found.exposed_us not in (1.0, 5000.0)  # XLA's abstract constants
    report = scheduler.estimate(module(devices), target=name, xla=xla)
    (start,) = (row for row in report.rows if row.name == "s")
    assert start.latency_us == pytest.approx(found.communication_us)
    has_own = name in ("h100_sxm", "h100_pcie", "h200", "b200")
    assert any("XLA has no model" in r for r in found.remarks) != has_own


# -- hosts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hosts", "each", "text"),
    [
        ("h100_sxm", 1, None, "1x1x8"),
        ("h100_sxm", 2, None, "2x1x8"),
        ("h100_sxm", 2, 8, "2x1x8"),
        ("h100_sxm", 4, 4, "4x1x4"),
        ("gb200", 1, None, "1x1x4"),
        ("gb200", 18, None, "1x18x4"),
        ("gb200", 20, None, "2x10x4"),
        ("gb200", 36, 4, "2x18x4"),
        ("gb200", 18, 2, "1x18x2"),
        ("gb200", 36, 2, "2x18x2"),
        ("gb300", 128, None, "8x16x4"),
    ],
)
def test_hosts(name: str, hosts: int, each: int | None, text: str) -> None:
    assert topology_of_hosts(target(name), hosts, each).to_text() == text
    on = Pricing(target=name, hosts=hosts, gpus_per_host=each)
    assert machine_of(module(1), on).to_text() == text


def test_two_hosts_of_h100_are_two_domains() -> None:
    two = scheduler.simulate(module(), target="h100_sxm", hosts=2)
    assert (two.topology, two.machine) == ("2x1x8", "2 hosts of 8 GPUs")
    for same in ({}, {"topology": "2x1x8"}, {"hosts": 2, "topology": "2x1x8"}):
        again: dict[str, Any] = dict(same)
        assert scheduler.simulate(module(), **again).to_json() == two.to_json()
    one = scheduler.simulate(module(), topology="1x2x8", xla="0.12")
    assert one.exposed_us != scheduler.simulate(module(), xla="0.12").exposed_us
    assert "h100_sxm at most 8; for 2 hosts use --hosts=2" in one.remarks[0]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"hosts": 2, "topology": "4x1x8"}, "U225", "disagrees with --hosts=2"),
        ({"gpus_per_host": 4, "topology": "2x1x8"}, "U225", "--gpus-per-host=4"),
        ({"hosts": 2, "gpus_per_host": 16}, "U225", "use --hosts=4, which is 4x1x8"),
        ({"topology": "1x1x512"}, "U225", "use --hosts=64, which is 64x1x8"),
        ({"target": "gb200", "gpus_per_host": 8}, "U225", "has 4 GPUs, not 8"),
        ({"target": "gb200", "hosts": 19}, "U225", "use --hosts=18 or --hosts=20"),
        ({"target": "gb200", "hosts": 37}, "U225", "use --hosts=36 or --hosts=39"),
        ({"hosts": 0}, "U225", "not a number of hosts"),
        ({"gpus_per_host": -1}, "U225", "not a number of gpus"),
        ({"hosts": 10**30}, "U225", "not a number of hosts"),
        ({"hosts": 1}, "U218", "use --hosts=2"),
        ({"topology": "1x1x8"}, "U218", "use --hosts=2"),
        ({"target": "gb200", "hosts": 3}, "U218", "use --hosts=4 --gpus-per-host=4"),
        ({"topology": "8"}, "U202", "PxHxG"),
    ],
)
def test_what_is_refused(given: dict[str, Any], code: str, said: str) -> None:
    for use in (scheduler.simulate, scheduler.estimate):
        with pytest.raises(UsageError) as refused:
            use(module(), **given)
        assert refused.value.code == code
        assert said in refused.value.render()


def test_a_machine_of_whole_hosts_may_be_larger_than_the_module() -> None:
    assert machine_of(module(12), Pricing()).to_text() == "2x1x8"
    assert machine_of(module(6), Pricing(target="gb200")).to_text() == "1x2x4"
    assert machine_of(module(76), Pricing(target="gb200")).to_text() == "2x10x4"
    assert machine_of(module(2), Pricing(gpus_per_host=4)).to_text() == "1x1x4"
    assert machine_of(module(12), Pricing(gpus_per_host=4)).to_text() == "3x1x4"
    assert machine_of(module(), Pricing(devices=4)).to_text() == "1x1x4"
    report = scheduler.estimate(module(8), hosts=2)
    assert report.remarks == ("the module uses 8 of 16 GPUs",)


def test_a_part_that_nobody_described_has_no_limit() -> None:
    text = "gpu_device_info { core_count: 1 fpus_per_core: 1 memory_bandwidth: 1 "
    mine = parse_target(text + "clock_rate_ghz: 1 }", spec="mine")
    assert topology_of_hosts(mine, 2).to_text() == "2x1x8"
    assert topology_of_hosts(mine, 2, 16).to_text() == "2x1x16"


def test_a_calibrated_copy_keeps_its_hosts(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "mine.txtpb"
    copy.write_text(f"# latency-options: rtt_us=9\n{target_text('gb200')}")
    assert machine_for(Pricing(target=str(copy)), 144).to_text() == "2x18x4"


# -- first lines --------------------------------------------------------------------


def first_line(*words: str, capsys: pytest.CaptureFixture[str], at: int = 0) -> str:
    assert main(words) == 0
    return capsys.readouterr().out.splitlines()[at]


def test_the_first_line_says_where_a_model_has_no_answer(file, capsys) -> None:
    for command in ("estimate", "simulate"):
        asked = (command, file, "--target=gb200", "--xla=0.10.2")
        line = first_line(*asked, capsys=capsys)
        assert "beware: XLA has no model for gb200" in line
        line = first_line(*asked, "--estimator=gpu-approximate", capsys=capsys)
        assert "beware: no price for" in line


def test_estimate_and_simulate_agree_on_what_has_no_price(capsys) -> None:
    """XLA 0.12 makes asynchronous fusions of slices, for which it has a constant."""
    scan = str(REPOSITORY / "docs" / "pipelining" / "fsdp.xla_off.hlo.gz")
    for command in (("estimate",), ("simulate", "--no-advice")):
        line = first_line(*command, scan, "--hosts=2", capsys=capsys)
        assert "no price" not in line


def test_a_module_without_prices_says_why(capsys, tmp_path) -> None:
    path = tmp_path / "m.hlo"
    text = all_reduce(16).replace("f32[4194304]{0} all-reduce", "f32[16]{0} all-reduce")
    text = text.replace("f32[4194304]", "f32[16]").replace(
        "ROOT %d",
        "%b = f32[16]{0} collective-broadcast(%p), channel_id=2, "
        "replica_groups={{0,1}}\n  ROOT %d",
    )
    path.write_text(text)
    line = first_line("estimate", str(path), capsys=capsys)
    assert "%b is a collective-broadcast, which the model does not know" in line
    assert "no price for" in line
    assert "no price for" not in first_line(
        "estimate", str(path), "--extended", capsys=capsys
    )


PRODUCT = """HloModule m, is_scheduled=true, num_partitions=8

ENTRY %e (a: bf16[512,1024], b: bf16[1024,2048]) -> f32[512,2048] {
  %a = bf16[512,1024]{1,0} parameter(0)
  %b = bf16[1024,2048]{1,0} parameter(1)
  ROOT %d = f32[512,2048]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("command", ["estimate", "simulate"])
def test_products_that_xla_prices_too_high_are_named(command, tmp_path, capsys) -> None:
    """XLA's table has no product of bf16 into f32, and counts its flops 64 times."""
    path = tmp_path / "m.hlo"
    path.write_text(PRODUCT)
    said = "beware: XLA's table takes 64 times its share for a matrix product"
    asked = (command, str(path), "--target=h100_sxm")
    assert said in first_line(*asked, capsys=capsys)
    assert "beware" not in first_line(*asked, "--extended", capsys=capsys)
    path.write_text(PRODUCT.replace("f32[", "bf16["))
    assert "beware" not in first_line(*asked, capsys=capsys)


def test_every_report_names_machine_and_release(file, tmp_path, capsys) -> None:
    told = "h100_sxm 2x1x8 (2 hosts of 8 GPUs), XLA 0.11"
    asked = ("--hosts=2", "--gpus-per-host=8", "--xla=0.11")
    sweep = ("--passes=latency-hiding-scheduler", "--processes=1",
             "--sweep=parallel-collective-overlap-limit=1,2")  # fmt: skip
    for words in (
        ("estimate", file),
        ("estimate", file, "--compare-targets=h100_sxm,b200"),
        ("simulate", file),
        ("simulate", file, f"--against={file}"),
        ("simulate", file, *sweep),
    ):
        assert told in first_line(*words, *asked, capsys=capsys, at=1)
    assert main(["simulate", file, "--json", *asked]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["topology"], view["xla"]) == ("2x1x8", "0.11")
    assert view["machine"] == "2 hosts of 8 GPUs"
    page = scheduler.simulate(module(), xla="0.11").to_html()
    assert "2 hosts of 8 GPUs), XLA 0.11" in page


def test_an_option_without_effect_is_named_once(caplog) -> None:
    reported_module._tell_without_effect.cache_clear()
    for _ in range(2):
        scheduler.simulate(module(), topology="1x2x8", xla="0.10.2")
    (said,) = (r.getMessage() for r in caplog.records)
    assert "change no price under XLA 0.10.2" in said
    assert "partition_size=16" in said
    caplog.clear()
    # Here it has one, or asks for what the model takes anyway.
    with caplog.at_level(logging.WARNING):
        scheduler.simulate(module(), hosts=2, xla="0.10.2")
        scheduler.simulate(module(), topology="1x2x8", xla="0.12")
        scheduler.simulate(module(8), topology="1x1x8", xla="0.10.2")
        size = "partition_size=16"
        scheduler.simulate(module(), topology="1x2x8", xla="0.10.2", options=size)
    assert not caplog.records


# -- passes -------------------------------------------------------------------------


def test_hosts_of_a_pass_replace_those_of_the_pipeline() -> None:
    given = PassContext(hosts=2, gpus_per_host=4)
    assert LatencyHidingScheduler().pricing(given).hosts == 2
    own = LatencyHidingScheduler(topology="4x1x8").pricing(given)
    assert (own.hosts, own.gpus_per_host, own.topology) == (None, None, "4x1x8")
    own = LatencyHidingScheduler(hosts=4).pricing(PassContext(topology="2x1x8"))
    assert (own.hosts, own.topology) == (4, "")
    text = "latency-hiding-scheduler{hosts=2,gpus-per-host=8}"
    assert Pipeline.parse(text).run(module()).to_json()
    with pytest.raises(hlo_passes.HloError, match="hosts"):
        Pipeline.parse("latency-hiding-scheduler{hosts=0}")


def test_a_scheduler_orders_as_xla_where_a_report_does_not() -> None:
    """On a GPU without a model XLA orders by its constants, and so does the pass."""
    pass_ = LatencyHidingScheduler()
    text = module()
    start = text.entry.instructions[1]
    stack = pass_.make_estimator(text, PassContext(target="gb200"))
    assert stack.latency(start, start.users[0]).model == "gpu-approximate"
