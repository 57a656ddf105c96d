"""`hlo-passes estimate` and `hlo-passes calibrate`, as a user runs them."""

from __future__ import annotations

import argparse
import json
from html import escape

import pytest

import hlo_passes
from hlo_passes import HloError, UsageError
from hlo_passes.cli.command import Command
from hlo_passes.scheduler.commands import CALIBRATE, ESTIMATE
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.perf_tables import (
    read_collective_table,
    read_matmul_table,
)
from tests.modules import REPOSITORY
from tests.scheduler.test_estimators import TEXT


def run(command: Command, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args([str(w) for w in words]))


#: Of the custom call that XLA has no model for.
_NO_PRICE = "beware: no price for 1 of 5 instructions that cost something"


@pytest.fixture
def module_file(tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    return file


def test_json_has_the_keys_of_the_contract(module_file, capsys) -> None:
    assert run(ESTIMATE, module_file, "--json", "--topology=1x1x8") == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["target"], view["topology"]) == ("h100_sxm", "1x1x8")
    for row in view["instructions"]:
        keys = {"computation", "name", "opcode", "node_cost_us", "latency_us", "model"}
        assert keys <= set(row)
        assert (row["latency_us"] is None) == (row["name"] != "start")


def test_fewer_devices_than_the_module_says_where_that_is_asked_for(
    module_file, capsys
) -> None:
    with pytest.raises(UsageError) as refused:
        run(ESTIMATE, module_file, "--topology=1x1x2")
    assert refused.value.code == "U218"
    assert run(ESTIMATE, module_file, "--topology=1x1x2", "--devices=2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["topology"] == "1x1x2"


def test_the_table_shows_the_most_expensive_first(module_file, capsys) -> None:
    assert run(ESTIMATE, module_file, "--rows=2") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"module   scheduled, for which machine is unknown; {_NO_PRICE}"
    assert lines[0] == (
        "h100_sxm 1x1x8 (8 GPUs in one host), XLA 0.10.2, estimator sol, 7 instructions"
    )
    assert lines[2].split() == ["node", "us", "latency", "us", "model", "instruction"]
    assert "%sync" in lines[3]
    assert any(line.startswith("unknown: 1 of") for line in lines)
    assert '  1 x XLA has no model for custom-call "mine"' in lines


def test_targets_side_by_side(module_file, capsys) -> None:
    words = (module_file, "--compare-targets=h100_sxm,b200,gb200", "--extended")
    assert run(ESTIMATE, *words) == 0
    first, *machines, _, head, row = capsys.readouterr().out.splitlines()[:7]
    assert first == f"module   scheduled, for which machine is unknown; {_NO_PRICE}"
    assert [line.split()[1] for line in machines] == ["1x1x8", "1x1x8", "1x2x4"]
    assert head.split() == ["h100_sxm", "b200", "gb200", "instruction"]
    assert row.split()[2].endswith("*")
    assert run(ESTIMATE, *words, "--json") == 0
    assert [v["target"] for v in json.loads(capsys.readouterr().out)["targets"]] == [
        "h100_sxm", "b200", "gb200",
    ]  # fmt: skip


def test_a_target_beside_targets_to_compare_is_refused(module_file) -> None:
    with pytest.raises(UsageError) as refused:
        run(ESTIMATE, module_file, "--target=b200", "--compare-targets=h100_sxm,b200")
    assert refused.value.code == "U224"


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_is_the_same_every_time(module_file, tmp_path, suffix, magic) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a", "b"):
        file = tmp_path / f"{name}.{suffix}"
        assert run(ESTIMATE, module_file, f"--plot={file}", "--topology=1x1x8") == 0
        pictures.append(file.read_bytes())
    assert pictures[0].startswith(magic)
    assert pictures[0] == pictures[1]


def test_a_written_profile_reads_back(module_file, tmp_path, capsys) -> None:
    file = tmp_path / "p.pbtxt"
    assert run(ESTIMATE, module_file, f"--write-profile={file}") == 0
    capsys.readouterr()
    assert (
        run(ESTIMATE, module_file, "--estimator=profile", f"--profile={file}", "--json")
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["instructions"]
    assert {r["model"] for r in rows if r["name"] in ("start", "f")} == {"profile"}


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("--target=h100", "U200"),
        ("--topology=8", "U202"),
        ("--latency-options=rtt_us=0", "U204"),
        ("--latency-options=rtt_us=1,rtt_us=1", "U204"),
        ("--estimator=best", "U209"),
        ("--plot=x.pdf", "U212"),
        ("--write-profile=x.txt", "U217"),
        ("--compare-targets=b200,b20", "U200"),
        ("--costs=nowhere.json", "U001"),
        ("--estimator=sol --costs=nowhere.json", "U219"),
        ("--collective-perf-table=nowhere", "U001"),
    ],
)
def test_wrong_usage_is_named(module_file, word, code) -> None:
    with pytest.raises(UsageError) as refused:
        run(ESTIMATE, module_file, *word.split())
    assert refused.value.code == code


def test_a_module_without_collectives_has_no_plot(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "m.hlo"
    file.write_text("ENTRY %e {\n  ROOT %p = f32[4] parameter(0)\n}\n")
    with pytest.raises(UsageError) as refused:
        run(ESTIMATE, file, f"--plot={tmp_path / 'p.svg'}")
    assert refused.value.code == "U211"
    assert not (tmp_path / "p.svg").exists()


def test_calibrate_writes_a_target(tmp_path, capsys) -> None:
    rows = tmp_path / "rows.csv"
    lines = [f"all-gather,{1 << k},{100 + (1 << k) / 2e5},16,2" for k in range(12, 30)]
    rows.write_text("kind,bytes,us,devices,hosts\n" + "\n".join(lines) + "\n")
    out = tmp_path / "mine.txtpb"
    assert run(CALIBRATE, rows, "-o", out, "--json") == 0
    view = json.loads(capsys.readouterr().out)
    assert view["relative_rms"] < 0.05
    assert target(str(out)).network["nic_speed_gbps"] == pytest.approx(
        view["options"]["nic_speed_gbps"], rel=1e-6
    )


# -- tables of the user's own ------------------------------------------------------------

TABLE = """
entries { key: "sm_90" value { entries {
  instruction { opcode: "all-gather" shape { element_type: F32 dimensions: 2048 }
    iota_collective_device_list { num_replica_groups: 1 num_devices_per_group: 8
      iota_reshape_dims: 8 iota_transpose_perm: 0 } }
  network_throughput_bytes_per_sec: 1000000000
} entries {
  instruction { opcode: "all-gather" shape { element_type: F32 dimensions: 1048576 }
    iota_collective_device_list { num_replica_groups: 1 num_devices_per_group: 8
      iota_reshape_dims: 8 } }
  network_throughput_bytes_per_sec: 100000000000
} } }
"""
MATMULS = """
entries { key: "sm_90" value { entries {
  instruction { opcode: "dot" shape { element_type: F32 dimensions: 64 dimensions: 64 }
    dot_dimension_numbers { lhs_contracting_dimensions: 1 rhs_contracting_dimensions: 0 } }
  operands { shape { element_type: F32 dimensions: 64 dimensions: 32 } }
  operands { shape { element_type: F32 dimensions: 32 dimensions: 64 } }
  clock_cycles: 1980
} } }
"""


def test_the_nearest_row_of_a_table_of_ones_own_answers(
    module_file, tmp_path, capsys
) -> None:
    file = tmp_path / "table.txtpb"
    file.write_text(TABLE)
    # 32 KiB is nearer to 8 KiB than to 4 MiB: 1 GB/s.
    assert run(ESTIMATE, module_file, f"--collective-perf-table={file}", "--json") == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["instructions"]}
    assert rows["start"]["latency_us"] == 32.768
    assert "no measured all-reduce" in rows["sync"]["reason"]


def test_a_matmul_table_of_ones_own(tmp_path) -> None:
    from hlo_passes.scheduler.latency.matmul_table import Gemm

    file = tmp_path / "matmul.txtpb"
    file.write_text(MATMULS)
    table = read_matmul_table(str(file), target("h100_sxm"))
    # 1980 cycles at 1.98 GHz are 1000 ns.
    assert table.ticks(Gemm(1, 64, 32, 64, "f32", "f32", "f32")) == 4000


@pytest.mark.parametrize(
    ("text", "code"),
    [('entries { key: "sm_80" }', "U213"), ("{", "P400"), ("", "U213")],
)
def test_a_table_of_another_part_is_refused(text, code, tmp_path) -> None:
    file = tmp_path / "table.txtpb"
    file.write_text(text)
    for read in (read_collective_table, read_matmul_table):
        with pytest.raises(HloError) as refused:
            read(str(file), target("h100_sxm"))
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("lhs_contracting_dimensions: 1", "lhs_contracting_dimensions: 7"),
        ("lhs_contracting_dimensions: 1", "lhs_contracting_dimensions: -1"),
        ("dimensions: 64", "dimensions: 0"),
        ("dimensions: 64", f"dimensions: {1 << 62}"),
        ("clock_cycles: 1980", f"clock_cycles: {1 << 63}"),
        ("num_replica_groups: 1", f"num_replica_groups: {1 << 40}"),
        ("num_replica_groups: 1", "num_replica_groups: -1"),
    ],
)
def test_figures_that_no_measurement_has_are_refused(right, wrong, tmp_path) -> None:
    text, read = MATMULS, read_matmul_table
    if right not in MATMULS:
        text, read = TABLE, read_collective_table
    assert right in text
    file = tmp_path / "table.txtpb"
    file.write_text(text.replace(right, wrong))
    with pytest.raises(HloError) as refused:
        read(str(file), target("h100_sxm"))
    assert refused.value.code == "U213"


def test_a_negative_rate_is_no_measurement(module_file, tmp_path, capsys) -> None:
    file = tmp_path / "table.txtpb"
    file.write_text(TABLE.replace("per_sec: 1000000000\n", "per_sec: -5\n"))
    assert run(ESTIMATE, module_file, f"--collective-perf-table={file}", "--json") == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["instructions"]}
    assert "has no value" in rows["start"]["reason"]


def test_the_picture_of_the_page_is_fresh(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    from hlo_passes.scheduler.latency.collective_time import CollectiveModel
    from hlo_passes.scheduler.plots import collective_curves, module_collectives

    module = hlo_passes.parse((REPOSITORY / "docs/s_curve.hlo").read_text())
    model = CollectiveModel(target("h100_sxm"))
    curves = collective_curves(module_collectives(module), [model])
    picture = (REPOSITORY / "docs/s_curve.svg").read_text()
    assert len(curves) == 5
    for curve in curves:
        assert f"<!-- {escape(curve.label)} -->" in picture
    borders = {c.label.split()[0]: c.regimes for c in curves if c.regimes}
    launch, knee = borders["collective-permute"]
    assert launch.size_bytes == pytest.approx(195_000, rel=0.01)
    assert knee.size_bytes == pytest.approx(902_597, rel=0.001)
    (knee,) = borders["all-reduce"]
    assert knee.size_bytes == pytest.approx(32 * 902_597, rel=0.001)


@pytest.mark.parametrize("place", ["none/p.svg", "folder.svg"])
def test_a_plot_that_cannot_be_written_is_refused_first(place, tmp_path) -> None:
    """Before the module is looked for, which is not there either."""
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError) as refused:
        run(ESTIMATE, tmp_path / "no_such_module.hlo", f"--plot={tmp_path / place}")
    assert refused.value.code == "U003"
