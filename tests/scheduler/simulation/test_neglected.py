"""Kernels that XLA has no model for: a step says what it lacks, or takes their bytes."""

from __future__ import annotations

import json
import pathlib

import pytest

from hlo_passes import Module, parse, scheduler
from hlo_passes.cli.main import main
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.simulation.neglected import NOTHING_NEGLECTED
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on

_TRITON = (
    'backend_config={"fusion_backend_config":{"kind":"__triton",'
    '"block_level_fusion_config":{"output_tiles":[{"sizes":["1","4096"]}],'
    '"num_warps":"4"}}}'
)
_MODULE = f"""HloModule step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%normalize (p: f32[4096,4096]) -> f32[4096,4096] {{
  %p = f32[4096,4096]{{1,0}} parameter(0)
  %zero = f32[] constant(0)
  %total = f32[4096]{{0}} reduce(%p, %zero), dimensions={{1}}, to_apply=%add
  %spread = f32[4096,4096]{{1,0}} broadcast(%total), dimensions={{0}}
  ROOT %share = f32[4096,4096]{{1,0}} divide(%p, %spread)
}}

%row (q: f32[4096,4096], k: s32[]) -> f32[1,4096] {{
  %q = f32[4096,4096]{{1,0}} parameter(0)
  %k = s32[] parameter(1)
  %first = s32[] constant(0)
  ROOT %part = f32[1,4096]{{1,0}} dynamic-slice(%q, %k, %first), dynamic_slice_sizes={{1,4096}}
}}

%body (t: (s32[], f32[4096,4096])) -> (s32[], f32[4096,4096]) {{
  %t = (s32[], f32[4096,4096]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[4096,4096]{{1,0}} get-tuple-element(%t), index=1
  %normal = f32[4096,4096]{{1,0}} fusion(%x), kind=kCustom, calls=%normalize, {_TRITON}
  ROOT %after = (s32[], f32[4096,4096]{{1,0}}) tuple(%i, %normal)
}}

%goes_on (u: (s32[], f32[4096,4096])) -> pred[] {{
  %u = (s32[], f32[4096,4096]{{1,0}}) parameter(0)
  ROOT %yes = pred[] constant(true)
}}

ENTRY %main (y: f32[4096,4096], n: s32[]) -> (f32[4096,4096], f32[1,4096]) {{
  %y = f32[4096,4096]{{1,0}} parameter(0)
  %n = s32[] parameter(1)
  %copied = f32[4096,4096]{{1,0}} copy(%y)
  %start = (s32[], f32[4096,4096]{{1,0}}) tuple(%n, %copied)
  %loop = (s32[], f32[4096,4096]{{1,0}}) while(%start), condition=%goes_on, body=%body, backend_config={{"known_trip_count":{{"n":"3"}}}}
  %end = f32[4096,4096]{{1,0}} get-tuple-element(%loop), index=1
  %some = f32[1,4096]{{1,0}} fusion(%end, %n), kind=kCustom, calls=%row, {_TRITON}
  ROOT %result = (f32[4096,4096]{{1,0}}, f32[1,4096]{{1,0}}) tuple(%end, %some)
}}
"""
#: 64 MiB in and out, by the bandwidth of an H100.
_ONCE_US = 2 * 4 * 4096**2 / target("h100_sxm").memory_bandwidth_bytes_per_s * 1e6


def _module() -> Module:
    return parse(_MODULE)


def test_a_step_says_what_it_lacks() -> None:
    """The copy once, the fusion in each iteration; the slice takes next to nothing."""
    timeline = scheduler.simulate(_module(), target="h100_sxm")
    assert timeline.neglected.count == 2
    assert timeline.neglected.us == pytest.approx(4 * _ONCE_US, rel=1e-4)
    assert timeline.step_time_us < 1.0
    (remark,) = timeline.remarks
    assert remark == (
        "no price for 2 kernels whose bytes take 160.1 us or more (--extended counts "
        "them)"
    )


def test_extended_takes_the_bytes() -> None:
    timeline = scheduler.simulate(_module(), target="h100_sxm", extended=True)
    assert timeline.neglected == NOTHING_NEGLECTED
    assert timeline.step_time_us == pytest.approx(4 * _ONCE_US, rel=1e-3)
    assert timeline.remarks == ()


def test_a_slice_of_an_operand_counts_as_a_slice() -> None:
    rows = scheduler.estimate(_module(), target="h100_sxm", extended=True).rows
    us = {row.name: row.node_cost_us for row in rows}
    assert us["copied"] == pytest.approx(_ONCE_US, rel=1e-4)
    assert us["normal"] == pytest.approx(_ONCE_US, rel=1e-4)
    assert us["some"] < 0.1


def test_not_where_fusions_are_still_to_be_made() -> None:
    """Copies and the like may yet become parts of others."""
    module = parse(_MODULE.replace(", is_scheduled=true", ""))
    estimate = scheduler.estimate(module, target="h100_sxm", extended=True)
    us = {row.name: row.node_cost_us for row in estimate.rows}
    assert us["copied"] == 0.01
    assert us["normal"] == pytest.approx(_ONCE_US, rel=1e-4)


_READ_TWICE = f"""HloModule step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%rows (p: f32[4096,4096], q: f32[4096,4096]) -> (f32[4096], f32[1,4096]) {{
  %p = f32[4096,4096]{{1,0}} parameter(0)
  %q = f32[4096,4096]{{1,0}} parameter(1)
  %zero = f32[] constant(0)
  %first = f32[1,4096]{{1,0}} slice(%q), slice={{[0:1], [0:4096]}}
  %total = f32[4096]{{0}} reduce(%p, %zero), dimensions={{1}}, to_apply=%add
  ROOT %both = (f32[4096]{{0}}, f32[1,4096]{{1,0}}) tuple(%total, %first)
}}

ENTRY %main (x: f32[4096,4096]) -> (f32[4096], f32[1,4096]) {{
  %x = f32[4096,4096]{{1,0}} parameter(0)
  ROOT %f = (f32[4096]{{0}}, f32[1,4096]{{1,0}}) fusion(%x, %x), kind=kCustom, calls=%rows, {_TRITON}
}}
"""


def test_a_value_that_two_operands_are_is_read_once() -> None:
    """Whole in one place and a row in the other, in either order."""
    swapped = _READ_TWICE.replace("slice(%q)", "slice(%p)")
    swapped = swapped.replace("reduce(%p,", "reduce(%q,")
    for text in (_READ_TWICE, swapped):
        timeline = scheduler.simulate(parse(text), target="h100_sxm")
        assert timeline.neglected.us == pytest.approx(_ONCE_US / 2, rel=1e-2)


def test_a_sort_of_a_value_with_itself_reads_it_once() -> None:
    text = """HloModule step, is_scheduled=true

%less (a: f32[], b: f32[], c: f32[], d: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = f32[] parameter(2)
  %d = f32[] parameter(3)
  ROOT %is = pred[] compare(%a, %b), direction=LT
}

ENTRY %main (x: f32[4096,4096]) -> (f32[4096,4096], f32[4096,4096]) {
  %x = f32[4096,4096]{1,0} parameter(0)
  ROOT %s = (f32[4096,4096]{1,0}, f32[4096,4096]{1,0}) sort(%x, %x), dimensions={1}, to_apply=%less
}
"""
    timeline = scheduler.simulate(parse(text), target="h100_sxm")
    assert timeline.neglected.us == pytest.approx(_ONCE_US * 3 / 2, rel=1e-3)


def test_reshapes_and_sums_that_are_still_to_be_fused_are_no_kernels() -> None:
    text = """HloModule step, is_scheduled=true

ENTRY %main (x: f32[4096,4096]) -> f32[16777216] {
  %x = f32[4096,4096]{1,0} parameter(0)
  %n = f32[4096,4096]{1,0} negate(%x)
  ROOT %r = f32[16777216]{0} reshape(%n)
}
"""
    timeline = scheduler.simulate(parse(text), target="h100_sxm")
    assert timeline.neglected == NOTHING_NEGLECTED


def test_xlas_own_count_is_left_alone() -> None:
    rules = Rules(xla_statistic=True)
    timeline = simulate_on(_module(), Pricing(target="h100_sxm"), rules)
    assert timeline.neglected == NOTHING_NEGLECTED
    assert timeline.remarks == ()


def test_what_does_not_matter_is_not_told() -> None:
    few = _MODULE.replace("4096,4096", "64,64").replace("4096", "64")
    timeline = scheduler.simulate(parse(few), target="h100_sxm")
    assert timeline.neglected == NOTHING_NEGLECTED
    assert timeline.remarks == ()


def test_reports_say_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(_MODULE)
    for command in ("simulate", "estimate"):
        assert main([command, str(file), "--target=h100_sxm"]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert "no price for 2 kernels whose bytes take 160.1 us or more" in first
    assert main(["simulate", str(file), "--target=h100_sxm", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["neglected_kernels"] == 2
    assert view["neglected_us"] == pytest.approx(4 * _ONCE_US, rel=1e-4)


def _product(rows: int, *, workspace: bool = False) -> str:
    sizes = f"bf16[{rows},8192]"
    numbers = (
        '{"gemm_backend_config":{"dot_dimension_numbers":'
        '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
    )
    shape, work = (
        f"{sizes}{{1,0}}",
        "dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    if workspace:
        shape = f"({shape}, s8[33554432]{{0}})"
        work = (
            'custom-call(%x, %w), custom_call_target="__cublas$lt$matmul", '
            f"backend_config={numbers}"
        )
    return f"""HloModule step, is_scheduled=true

ENTRY %main (x: {sizes}, w: bf16[8192,8192]) -> {shape.replace("{1,0}", "").replace("{0}", "")} {{
  %x = {sizes}{{1,0}} parameter(0)
  %w = bf16[8192,8192]{{1,0}} parameter(1)
  ROOT %d = {shape} {work}
}}
"""


@pytest.mark.parametrize("workspace", [False, True], ids=("dot", "library"))
def test_a_product_of_few_rows_takes_the_time_of_its_bytes(workspace: bool) -> None:
    module = parse(_product(8, workspace=workspace))
    read = 8192 * 8192 * 2 + 2 * 8 * 8192 * 2
    least = read / target("h100_sxm").memory_bandwidth_bytes_per_s * 1e6
    plain = scheduler.simulate(module, target="h100_sxm")
    assert plain.neglected.count == 0
    assert plain.neglected.products == 1
    assert plain.neglected.products_us == pytest.approx(
        least - plain.step_time_us, rel=1e-4
    )
    (told,) = plain.remarks
    assert told.startswith("the price of 1 matrix product leaves out 37.")
    extended = scheduler.simulate(module, target="h100_sxm", extended=True)
    assert extended.step_time_us == pytest.approx(least, rel=1e-4)
    assert extended.neglected == NOTHING_NEGLECTED


def test_a_large_product_takes_the_time_of_its_arithmetic() -> None:
    module = parse(_product(8192))
    plain, extended = (
        scheduler.simulate(module, target="h100_sxm", extended=flag)
        for flag in (False, True)
    )
    assert plain.step_time_us == extended.step_time_us
    assert plain.neglected == NOTHING_NEGLECTED
