"""Costs that are not of the module are refused, and gaps are told first."""

from __future__ import annotations

import json
import pathlib

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, scheduler
from hlo_passes.analysis.module_state import WrongStateError
from hlo_passes.cli.main import main
from hlo_passes.scheduler.tpu.costs import require_tpu_costs
from hlo_passes.scheduler.tpu.costs_of_module import coverage, left_out
from hlo_passes.text.reader import parse
from tests.tpu.test_modules import COSTS, TILED, costs_file
from tests.tpu.test_simulated_text import late

#: What takes time in `TILED`: %s, %n, %d and %r.
COUNT = 4
#: As v5e leaves an all-gather that it cuts after its scheduler.
CUT = TILED.replace(
    "ENTRY",
    """%async_collective_fusion.1 (q: f32[64,256]) -> f32[64,256] {
  %q = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT %m = f32[64,256]{1,0:T(8,128)} negate(%q)
}

ENTRY""",
).replace(
    "  %d = ",
    "  %beside = f32[64,256]{1,0:T(8,128)} fusion(%p), kind=kLoop, "
    "calls=%async_collective_fusion.1\n  %d = ",
)


#: The loop has a permute, and nothing else has anything asynchronous.
BESIDE_A_LOOP = """HloModule beside, is_scheduled=true, num_partitions=4

%less (i: (s32[], f32[64,256])) -> pred[] {
  %i = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}) parameter(0)
  %i.0 = s32[]{:T(128)} get-tuple-element(%i), index=0
  %four = s32[]{:T(128)} constant(4)
  ROOT %lt = pred[] compare(%i.0, %four), direction=LT
}

%body (x: (s32[], f32[64,256])) -> (s32[], f32[64,256]) {
  %x = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}) parameter(0)
  %k = s32[]{:T(128)} get-tuple-element(%x), index=0
  %u = f32[64,256]{1,0:T(8,128)} get-tuple-element(%x), index=1
  %s = (f32[64,256]{1,0:T(8,128)}, f32[64,256]{1,0:T(8,128)}, u32[], u32[]) collective-permute-start(%u), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  %d = f32[64,256]{1,0:T(8,128)} collective-permute-done(%s)
  ROOT %t = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}) tuple(%k, %d)
}

ENTRY %main (p: f32[64,256]) -> f32[64,256] {
  %p = f32[64,256]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %n = f32[64,256]{1,0:T(8,128)} negate(%p)
  %begin = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}) tuple(%zero, %n)
  %w = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}) while(%begin), condition=%less, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  %y = f32[64,256]{1,0:T(8,128)} get-tuple-element(%w), index=1
  ROOT %r = f32[64,256]{1,0:T(8,128)} negate(%y)
}
"""


def lacking(*names: str) -> dict[str, float]:
    """Costs of `TILED` without those of some instructions."""
    costs = COSTS["node_cost_cycles"]
    return {name: cycles for name, cycles in costs.items() if name not in names}


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(TILED)
    return str(path)


@pytest.mark.parametrize("command", ["estimate", "simulate", "opt"])
def test_costs_of_another_program_are_refused(
    command: str, file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = costs_file(tmp_path, node_cost_cycles=lacking("n", "s", "d"))
    passes = ["--passes=latency-hiding-scheduler"] * (command == "opt")
    assert main([command, file, f"--costs={costs}", *passes]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{file}:5:4: error[S019]: {costs} has no cost for 3 of 4 ")
    assert "--stage=tpu-scheduled --write-costs=FILE" in said
    assert "--target=v5e --estimator=tpu-final" in said


@pytest.mark.parametrize("target", ["v6e", "b200"])
def test_costs_of_another_chip_are_refused(
    target: str, file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = costs_file(tmp_path)
    for command in ("estimate", "simulate"):
        assert main([command, file, f"--costs={costs}", f"--target={target}"]) == 1
        said = capsys.readouterr().err
        assert f"error[S019]: {costs} has costs of v5e, and the target is" in said
        assert f"--target={'v6e' if target == 'v6e' else 'v5e'} --stage=" in said
        assert main([command, file, f"--costs={costs}", "--target=v5e"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["simulate"],
        ["simulate", "--target=v5e"],
        ["estimate"],
        ["tune"],
        ["diff", "OTHER"],
        ["opt", "--passes=schedule-improver", "-o", "OUT"],
        ["opt", "--passes=latency-hiding-scheduler", "-o", "OUT"],
        ["opt", "--passes=collective-combiner-annotator", "-o", "OUT"],
        ["opt", "--passes=collective-matmul", "-o", "OUT"],
    ],
    ids=" ".join,
)
def test_costs_of_gpus_price_no_module_for_a_tpu(
    tmp_path: pathlib.Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They share the names of collectives with it, so these would have prices."""
    here, out, costs = (tmp_path / n for n in ("m.hlo", "out.hlo", "costs.json"))
    here.write_text(TILED)
    names = {i.name: 1.0 for c in parse(TILED).computations for i in c.instructions}
    costs.write_text(json.dumps({"node_cost_us": names, "latency_us": {}}))
    other = tmp_path / "other.hlo"
    other.write_text(late(TILED))
    places = {"OTHER": str(other), "OUT": str(out)}
    words = [places.get(word, word) for word in command[1:]]
    assert main([command[0], str(here), *words, f"--costs={costs}"]) == 1
    assert "error[S018]: " in capsys.readouterr().err
    assert not out.exists()


def test_gaps_are_told_in_the_first_line(
    file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = costs_file(tmp_path, node_cost_cycles=lacking("n", "s"))
    said = f"{costs} has no cost for 2 of 4 instructions that take time"
    for command in ("estimate", "simulate"):
        assert main([command, file, f"--costs={costs}"]) == 0
        assert said in capsys.readouterr().out.splitlines()[0]
    on = PassContext(Pricing(costs=costs))
    result = Pipeline.parse("latency-hiding-scheduler", on).run(hlo_passes.parse(TILED))
    assert result.remarks[0].startswith(said)
    whole = scheduler.simulate(hlo_passes.parse(TILED), costs=costs_file(tmp_path))
    assert not any("has no cost" in remark for remark in whole.remarks)


def test_a_matrix_product_that_is_missing_is_of_another_program(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few instructions may be most of the work."""
    file = tmp_path / "m.hlo"
    text = TILED.replace("%n = f32[64,256]", "%n = f32[64,64]").replace(
        "negate(%p)", "dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )
    file.write_text(text.replace("add(%n, %d)", "negate(%d)"))
    costs = costs_file(tmp_path, node_cost_cycles=lacking("n"))
    assert main(["simulate", str(file), f"--costs={costs}"]) == 1
    said = capsys.readouterr().err
    assert "error[S019]" in said
    assert "no cost for 1 of 4 instructions that take time, %n first" in said


def test_what_was_cut_later_refuses_nothing(tmp_path: pathlib.Path) -> None:
    """The compiler's costs cannot know it; it is told all the same."""
    module = hlo_passes.parse(CUT)
    costs = require_tpu_costs(costs_file(tmp_path, node_cost_cycles=lacking("n", "s")))
    found = coverage(module, costs)
    assert (found.total, len(found.missing), found.cut) == (COUNT + 1, 3, 1)
    assert found.named_share == pytest.approx(0.5)
    timeline = scheduler.simulate(module, costs=str(tmp_path / "costs.json"))
    assert "no cost for 3 of 5 instructions" in timeline.remarks[0]


def test_a_computation_without_anything_asynchronous_has_no_costs(
    tmp_path: pathlib.Path,
) -> None:
    text = TILED.replace(TILED[TILED.index("  %s = ") : TILED.index("  %n = ")], "")
    text = text.replace("collective-permute-done(%s)", "negate(%p)")
    module = hlo_passes.parse(text)
    costs = require_tpu_costs(costs_file(tmp_path, node_cost_cycles={}))
    assert coverage(module, costs).total == 0
    assert coverage(module, costs).named_share == 1.0


def test_an_entry_that_is_not_priced_is_told_first(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop is simulated by its body; what is beside it has no cost anywhere."""
    file = tmp_path / "m.hlo"
    file.write_text(BESIDE_A_LOOP)
    inside = dict.fromkeys(["k", "u", "s", "d", "t"], 1.0)
    costs = costs_file(tmp_path, node_cost_cycles=inside, latency_cycles={"s": 6000.0})
    assert [
        i.name for i in left_out(parse(BESIDE_A_LOOP), require_tpu_costs(costs))
    ] == [
        "n",
        "r",
    ]
    for command in ("estimate", "simulate"):
        assert main([command, str(file), f"--costs={costs}"]) == 0
        assert (
            f"{costs} has no cost for 2 instructions of %main, where nothing is "
            "asynchronous: 0 was taken" in capsys.readouterr().out.splitlines()[0]
        )
    priced = costs_file(tmp_path, node_cost_cycles=inside | {"n": 9.0, "r": 9.0})
    assert not left_out(parse(BESIDE_A_LOOP), require_tpu_costs(priced))


def test_a_pass_refuses_before_it_orders(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(TILED)
    on = PassContext(Pricing(costs=costs_file(tmp_path, node_cost_cycles={})))
    for name in ("latency-hiding-scheduler", "schedule-improver"):
        with pytest.raises(WrongStateError, match="S019"):
            Pipeline.parse(name, on).run(module)
    assert module.to_text() == TILED


def test_the_help_says_what_to_type(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", file, "--target=v6e"]) == 1
    said = capsys.readouterr().err
    assert "error[S018]" in said
    assert "prices of v6e are those of its compiler" in said
    assert "--target=v6e --stage=tpu-scheduled --write-costs=FILE" in said
    assert "--target=v6e --estimator=tpu-final" in said
    # Without a target, or with an unknown one.
    assert main(["simulate", file, "--estimator=tpu-final"]) == 2
    said = capsys.readouterr().err
    assert "error[U250]: the estimator tpu-final needs a TPU as the target" in said
    assert "v4, v5e, v5p, v6e, tpu7x" in said
    assert main(["estimate", file, "--target=v5"]) == 2
    assert "did you mean v5e or v5p?" in capsys.readouterr().err
    assert main(["estimate", file, "--target=xyzzy"]) == 2
    assert "v5p, v6e, tpu7x, or a .txtpb file" in capsys.readouterr().err
