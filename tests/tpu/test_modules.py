"""Modules for TPUs, written by hand: what they are, and that nobody prices them as GPUs'."""

from __future__ import annotations

import json
import pathlib

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, scheduler
from hlo_passes.analysis.module_state import WrongStateError, module_state
from hlo_passes.cli.main import main

TILED = """\
HloModule tiled, is_scheduled=true, entry_computation_layout={(f32[64,256]{1,0:T(8,128)})->f32[64,256]{1,0:T(8,128)}}, num_partitions=4

ENTRY %main (p: f32[64,256]) -> f32[64,256] {
  %p = f32[64,256]{1,0:T(8,128)} parameter(0)
  %s = (f32[64,256]{1,0:T(8,128)}, f32[64,256]{1,0:T(8,128)}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  %n = f32[64,256]{1,0:T(8,128)} negate(%p)
  %d = f32[64,256]{1,0:T(8,128)} collective-permute-done(%s)
  ROOT %r = f32[64,256]{1,0:T(8,128)} add(%n, %d)
}
"""
#: Without tiles: what else shows that a module is for a TPU.
MARKS = {
    "%c calls AsyncCollectiveStart": """\
HloModule marked, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %c = f32[8]{0} custom-call(%p), custom_call_target="AsyncCollectiveStart"
}
""",
    "%c calls ConcatBitcast": """\
HloModule marked, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %c = f32[8]{0} custom-call(%p), custom_call_target="ConcatBitcast"
}
""",
    "%gathering runs on the thread sparsecore": """\
HloModule marked, is_scheduled=true

%gathering (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%q)
}, execution_thread="sparsecore"

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %s = ((f32[8]{0}), f32[8]{0}, s32[]) call-start(%p), async_execution_thread="sparsecore", to_apply=%gathering
  ROOT %d = f32[8]{0} call-done(%s)
}
""",
    "the backend config of %n has estimated_cycles": """\
HloModule marked, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p), backend_config={"estimated_cycles":"7"}
}
""",
}
#: An update that names the operand whose memory its result has.
UPDATE = """\
HloModule updated, is_scheduled=true, entry_computation_layout={(f32[8]{0:T(128)})->f32[8]{0:T(128)}}

%gathering (q: f32[8]) -> f32[8] {
  %q = f32[8]{0:T(128)} parameter(0)
  ROOT %n = f32[8]{0:T(128)} negate(%q)
}, execution_thread="sparsecore"

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0:T(128)} parameter(0)
  %s = ((f32[8]{0:T(128)}), f32[8]{0:T(128)}, s32[]{:S(11)}) async-start(%p), calls=%gathering
  %u = ((f32[8]{0:T(128)}), f32[8]{0:T(128)}, s32[]{:S(11)}) async-update(%s), output_to_operand_aliasing={{2}: (0, {2})}
  ROOT %d = f32[8]{0:T(128)} async-done(%u)
}
"""
COSTS = {
    "unit": "cycles",
    "chip": "v5e",
    "tensorcore_mhz": 1500,
    "topology": "2x2",
    "node_cost_cycles": {"n": 3000.0, "r": 1500.0, "s": 1.0, "d": 1.0},
    "latency_cycles": {"s": 6000.0},
    "memory_limit_bytes": 1_000_000,
    "flags": "",
}


def costs_file(folder: pathlib.Path, **changes: object) -> str:
    file = folder / "costs.json"
    file.write_text(json.dumps(COSTS | changes))
    return str(file)


@pytest.mark.parametrize("mark", MARKS)
def test_what_shows_a_tpu_without_tiles(mark: str) -> None:
    state = module_state(hlo_passes.parse(MARKS[mark]))
    assert (state.stage, state.evidence) == ("tpu", (mark,))


@pytest.mark.parametrize("text", [TILED, *MARKS.values(), UPDATE])
def test_a_module_is_written_back_as_it_was(text: str) -> None:
    module = hlo_passes.parse(text)
    hlo_passes.verify(module)
    assert module.to_text() == text


def test_an_update_says_which_memory_it_has() -> None:
    wrong = UPDATE.replace("(0, {2})}\n", "(3, {2})}\n")
    with pytest.raises(hlo_passes.HloError):
        hlo_passes.verify(hlo_passes.parse(wrong.replace("_aliasing=", "_alias=")))


@pytest.mark.parametrize("text", [TILED, *MARKS.values()])
def test_nothing_prices_it_as_a_gpu(
    text: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(text)
    for command in (
        ["simulate", str(file)],
        ["estimate", str(file)],
        ["estimate", str(file), "--estimator=gpu-approximate"],
        ["opt", str(file), "--passes=latency-hiding-scheduler"],
        ["opt", str(file), "--passes=schedule-improver"],
    ):
        assert main(command) == 1, command
        said = capsys.readouterr().err
        assert "error[S018]" in said
        assert "--target=v5e" in said


def test_costs_of_a_gpu_do_not_schedule_it_as_a_gpu(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text('{"node_cost_us": {"n": 2.0}, "latency_us": {"s": 4.0}}')
    module = hlo_passes.parse(TILED)
    context = PassContext(Pricing(costs=str(file)))
    pipeline = Pipeline.parse("latency-hiding-scheduler", context)
    with pytest.raises(WrongStateError, match="S018"):
        pipeline.run(module)


def test_it_is_simulated_with_its_compilers_costs(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(TILED)
    timeline = scheduler.simulate(module, costs=costs_file(tmp_path))
    # 4 us of latency, of which 2 us of the negation hide a half; 1 us for the addition.
    assert timeline.step_time_us == pytest.approx(5.0, abs=0.01)
    assert timeline.exposed_us == pytest.approx(2.0, abs=0.01)
    assert timeline.target == "v5e"
    assert "nobody has measured" in timeline.remarks[0]


def test_an_estimate_says_which_chip(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TILED)
    assert main(["estimate", str(file), f"--costs={costs_file(tmp_path)}"]) == 0
    said = capsys.readouterr().out
    assert "v5e" in said
    assert "h100" not in said
    assert "estimator tpu-log" in said


def test_a_tpu_is_no_gpu(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text("HloModule m\n\nENTRY %e {\n  ROOT %p = f32[8] parameter(0)\n}\n")
    for command in ("estimate", "simulate"):
        assert main([command, str(file), "--target=v5e"]) == 2
        said = capsys.readouterr().err
        assert "error[U200]: v5e is a TPU, and this is about GPUs" in said
        assert "--write-costs=FILE" in said


def test_estimates_of_the_final_module(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(
        TILED.replace(
            "negate(%p)",
            'negate(%p), backend_config={"window_config":{"estimated_cycles":"3000"}}',
        )
    )
    command = ["estimate", str(file), "--target=v5e", "--estimator=tpu-final", "--json"]
    without = tmp_path / "without.hlo"
    without.write_text(TILED)
    assert main(["estimate", str(without), *command[2:]]) == 2
    assert "the module has none" in capsys.readouterr().err
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["n"]["node_cost_us"] == pytest.approx(2.0)
    # 65,536 bytes over one link of 50 GB/s.
    assert by_name["s"]["latency_us"] == pytest.approx(1.31072)
    assert by_name["s"]["model"] == "tpu-final/ici"
