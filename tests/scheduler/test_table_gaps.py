"""A costs file that leaves work out, or is of another module, in reports and passes."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from hlo_passes import PassContext, Pipeline, Pricing, scheduler
from hlo_passes.analysis.module_state import WrongStateError
from hlo_passes.cli.main import main
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.estimators.table_gaps import left_out, require_table_of
from hlo_passes.text.reader import parse

#: Beside the permute a loop runs a product and a kernel, and nothing asynchronous.
TEXT = """\
HloModule looped, is_scheduled=true, num_partitions=2

%body (b: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %b = (s32[], f32[64,64]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[64,64] get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %y = f32[64,64] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %z = f32[64,64] tanh(%y)
  ROOT %t = (s32[], f32[64,64]) tuple(%j, %z)
}

%cond (c: (s32[], f32[64,64])) -> pred[] {
  %c = (s32[], f32[64,64]) parameter(0)
  %k = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(8)
  ROOT %l = pred[] compare(%k, %n), direction=LT
}

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64] parameter(0)
  %zero = s32[] constant(0)
  %s = (f32[64,64], f32[64,64]) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %init = (s32[], f32[64,64]) tuple(%zero, %p)
  %w = (s32[], f32[64,64]) while(%init), condition=%cond, body=%body
  %q = f32[64,64] get-tuple-element(%w), index=1
  %d = f32[64,64] collective-permute-done(%s)
  ROOT %r = f32[64,64] add(%q, %d)
}
"""


def written(folder: pathlib.Path, **node_costs: float) -> str:
    file = folder / "costs.json"
    file.write_text(json.dumps({"node_cost_us": node_costs, "latency_us": {}}))
    return str(file)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("y z r", ""),
        ("y r", ""),  # at least half of a computation: the other costs nothing
        ("r", "y z"),
        ("y z", "r"),
        ("", "y z r"),
    ],
)
def test_work_that_has_no_cost(names: str, expected: str) -> None:
    table = TableEstimator(dict.fromkeys(names.split(), 1.0))
    assert [i.name for i in left_out(parse(TEXT), table)] == expected.split()


def test_collectives_have_a_note_of_their_own(tmp_path: pathlib.Path) -> None:
    """Synchronous ones, too: their time is a latency."""
    text = TEXT.replace(
        "%s = (f32[64,64], f32[64,64]) collective-permute-start(",
        "%s = f32[64,64] collective-permute(",
    ).replace("collective-permute-done(%s)", "bitcast(%s)")
    assert left_out(parse(text), TableEstimator({"y": 1, "z": 1, "r": 1})) == []
    timeline = scheduler.simulate(parse(text), costs=written(tmp_path, y=1, z=1, r=1))
    assert any("the costs lack 1 of the starts" in note for note in timeline.notes)


def test_the_first_line_of_a_report_says_so(tmp_path: pathlib.Path) -> None:
    costs = written(tmp_path, r=3.0)
    said = f"{costs} has no cost for 2 instructions in %body: 0 was taken"
    assert said in scheduler.simulate(parse(TEXT), costs=costs).remarks
    assert said in scheduler.estimate(parse(TEXT), costs=costs).remarks
    whole = written(tmp_path, r=3.0, y=1.0, z=1.0)
    assert not any(
        "no cost for" in remark
        for remark in scheduler.simulate(parse(TEXT), costs=whole).remarks
    )


@pytest.mark.parametrize("name", ["latency-hiding-scheduler", "schedule-improver"])
def test_so_do_the_remarks_of_schedulers(name: str, tmp_path: pathlib.Path) -> None:
    on = PassContext(Pricing(costs=written(tmp_path, r=3.0)))
    result = Pipeline.parse(name, on).run(parse(TEXT))
    remarks = [remark for each in result.passes for remark in each.remarks]
    assert any("no cost for 2 instructions in %body" in remark for remark in remarks)


@pytest.mark.parametrize(
    "command",
    [
        ("simulate",),
        ("estimate",),
        ("opt", "--passes=latency-hiding-scheduler"),
        ("opt", "--passes=schedule-improver"),
    ],
)
def test_costs_of_another_module_are_refused(
    command: tuple[str, ...],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "looped.hlo"
    file.write_text(TEXT)
    costs = written(tmp_path, another=3.0)
    assert main([*command, str(file), f"--costs={costs}"]) == 1
    out, err = capsys.readouterr()
    assert not out
    said = f"{file}:9:4: error[S019]: {costs} has no cost for anything in the module"
    assert err.startswith(said)


def test_who_asks_for_no_costs_by_name_is_not_asked(tmp_path: pathlib.Path) -> None:
    module = parse(TEXT)
    assert require_table_of(module, Pricing()) == ()
    table = TableEstimator({"another": 1.0})
    assert require_table_of(module, Pricing(estimator=table)) == ()
    # A file without a name says of all that it costs nothing.
    (told,) = require_table_of(module, Pricing(costs=written(tmp_path)))
    assert "3 instructions in %body and 1 other computation: 0" in told
    with pytest.raises(WrongStateError, match="S019"):
        require_table_of(module, Pricing(costs=written(tmp_path, another=1.0)))


def test_a_module_of_collectives_alone(tmp_path: pathlib.Path) -> None:
    text = """HloModule one, is_scheduled=true, num_partitions=2

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %c = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={{0,1}}
}
"""
    foreign = Pricing(costs=written(tmp_path, another=1.0))
    with pytest.raises(WrongStateError, match="%c first"):
        require_table_of(parse(text), foreign)


def test_costs_that_answer_last_leave_nothing_out(tmp_path: pathlib.Path) -> None:
    foreign = Pricing(estimator="sol+table", costs=written(tmp_path, another=1.0))
    assert require_table_of(parse(TEXT), foreign) == ()
    with pytest.raises(WrongStateError, match="S019"):
        require_table_of(parse(TEXT), dataclasses.replace(foreign, estimator="table"))


def test_names_that_are_everywhere_are_no_costs(tmp_path: pathlib.Path) -> None:
    with pytest.raises(WrongStateError, match="S019"):
        require_table_of(parse(TEXT), Pricing(costs=written(tmp_path, p=0.0, one=0.0)))


def test_what_is_called_asynchronously_has_names(tmp_path: pathlib.Path) -> None:
    text = """HloModule called, is_scheduled=true, num_partitions=2

%callee (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %g = f32[8] tanh(%q)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %s = ((f32[8]), f32[8]) call-start(%p), to_apply=%callee
  %d = f32[8] call-done(%s)
  ROOT %n = f32[8] negate(%d)
}
"""
    (told,) = require_table_of(parse(text), Pricing(costs=written(tmp_path, g=5.0)))
    assert "1 instruction in %main" in told


def test_a_copy_is_a_kernel_on_gpus() -> None:
    module = parse(
        """HloModule copied

ENTRY %main (p: f32[64,8]{1,0}) -> f32[64,8]{0,1} {
  %p = f32[64,8]{1,0} parameter(0)
  ROOT %c = f32[64,8]{0,1} copy(%p)
}
"""
    )
    assert [i.name for i in left_out(module, TableEstimator({"x": 1.0}))] == ["c"]
