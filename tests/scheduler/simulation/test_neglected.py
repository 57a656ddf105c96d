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


def test_a_loop_that_never_runs_lacks_nothing() -> None:
    """Its body is passed over, not all that comes after it in the text."""
    module = parse(
        _MODULE.replace('"known_trip_count":{"n":"3"}', '"known_trip_count":{"n":"0"}')
    )
    neglected = scheduler.simulate(module, target="h100_sxm").neglected
    assert neglected.count == 1
    assert neglected.us == pytest.approx(_ONCE_US, rel=1e-4)


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
    # What reads the result of a dot may yet be fused with it.
    rows = 16 if workspace else 8
    read = (8192 + rows) * 8192 * 2
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


def _of_weights(made: str, *, state: str = ", is_scheduled=true") -> str:
    """A product of eight rows, with the instructions that make its weights."""
    return f"""HloModule step{state}

ENTRY %main (x: bf16[8,8192], w: bf16[8192,8192], i: s4[8192,8192], c: bf16[]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %w = bf16[8192,8192]{{1,0}} parameter(1)
  %i = s4[8192,8192]{{1,0}} parameter(2)
  %c = bf16[] parameter(3)
  {made}
  ROOT %d = bf16[8,8192]{{1,0}} dot(%x, %v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize(
    ("made", "bits"),
    [
        ("%v = bf16[8192,8192]{1,0} negate(%w)", 16),
        ("%v = bf16[8192,8192]{1,0} convert(%i)", 4),
        ("%v = bf16[8192,8192]{1,0} broadcast(%c), dimensions={}", 0),
    ],
    ids=("as large", "of four bits", "of one number"),
)
@pytest.mark.parametrize(
    "state", ["", ", is_scheduled=true"], ids=("no order", "ordered")
)
def test_a_product_that_is_not_fused_yet_reads_the_sources(
    made: str, bits: int, state: str
) -> None:
    timeline = scheduler.estimate(
        parse(_of_weights(made, state=state)), target="h100_sxm", extended=True
    )
    (us,) = (row.node_cost_us for row in timeline.rows if row.name == "d")
    read = (
        8192 * 8192 * bits / 8 / target("h100_sxm").memory_bandwidth_bytes_per_s * 1e6
    )
    assert us == pytest.approx(max(read, 2.566), rel=1e-2)


def test_products_whose_weights_differ_are_told_apart() -> None:
    """Equal shapes, but what they read is not equal."""
    text = _of_weights(
        "%v = bf16[8192,8192]{1,0} convert(%i)\n"
        "  %e = bf16[8,8192]{1,0} dot(%x, %w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}"
    )
    rows = scheduler.estimate(parse(text), target="h100_sxm", extended=True).rows
    us = {row.name: row.node_cost_us for row in rows}
    assert us["e"] == pytest.approx(4 * us["d"], rel=1e-2)


def test_an_empty_product_takes_no_time() -> None:
    text = _product(8).replace("bf16[8,", "bf16[0,")
    for extended in (False, True):
        step = scheduler.simulate(parse(text), target="h100_sxm", extended=extended)
        assert step.step_time_us == 0.0
        assert step.neglected == NOTHING_NEGLECTED


_GEMM = (
    'backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion"}}'
)
_STACKED = f"""HloModule step, is_scheduled=true

%slice (s: bf16[32,8192,8192], k: s32[]) -> bf16[8192,8192] {{
  %s = bf16[32,8192,8192]{{2,1,0}} parameter(0)
  %k = s32[] parameter(1)
  %zero = s32[] constant(0)
  %one = bf16[1,8192,8192]{{2,1,0}} dynamic-slice(%s, %k, %zero, %zero), dynamic_slice_sizes={{1,8192,8192}}
  ROOT %flat = bf16[8192,8192]{{1,0}} bitcast(%one)
}}

%nested (x: bf16[8,8192], s: bf16[32,8192,8192], k: s32[]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %s = bf16[32,8192,8192]{{2,1,0}} parameter(1)
  %k = s32[] parameter(2)
  %w = bf16[8192,8192]{{1,0}} fusion(%s, %k), kind=kCustom, calls=%slice
  ROOT %d = bf16[8,8192]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

ENTRY %main (x: bf16[8,8192], s: bf16[32,8192,8192], k: s32[]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %s = bf16[32,8192,8192]{{2,1,0}} parameter(1)
  %k = s32[] parameter(2)
  ROOT %f = bf16[8,8192]{{1,0}} fusion(%x, %s, %k), kind=kCustom, calls=%nested, {_GEMM}
}}
"""


def test_fusions_in_fusions_have_no_floor() -> None:
    """One layer of a stack is read, not the stack."""
    for extended in (False, True):
        step = scheduler.simulate(parse(_STACKED), target="h100_sxm", extended=extended)
        assert step.step_time_us < 3.0
        assert step.neglected == NOTHING_NEGLECTED


_BESIDE = f"""HloModule step, is_scheduled=true

%product (x: bf16[8,8192], w: bf16[8192,8192]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %w = bf16[8192,8192]{{1,0}} parameter(1)
  ROOT %d = bf16[8,8192]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

%wrapped (x: bf16[8,8192], w: bf16[8192,8192]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %w = bf16[8192,8192]{{1,0}} parameter(1)
  ROOT %f = bf16[8,8192]{{1,0}} fusion(%x, %w), kind=kCustom, calls=%product, {_GEMM}
}}

ENTRY %main (x: bf16[8,8192], w: bf16[8192,8192]) -> bf16[8,8192] {{
  %x = bf16[8,8192]{{1,0}} parameter(0)
  %w = bf16[8192,8192]{{1,0}} parameter(1)
  %s = ((bf16[8,8192]{{1,0}}, bf16[8192,8192]{{1,0}}), bf16[8,8192]{{1,0}}) async-start(%x, %w), calls=%wrapped
  ROOT %e = bf16[8,8192]{{1,0}} async-done(%s)
}}
"""


def test_a_product_beside_the_others_is_told() -> None:
    plain, extended = (
        scheduler.simulate(parse(_BESIDE), target="h100_sxm", extended=flag)
        for flag in (False, True)
    )
    assert plain.neglected.products == 1
    missing = plain.neglected.products_us
    assert extended.step_time_us == pytest.approx(plain.step_time_us + missing)


def test_a_branch_that_does_not_run_is_not_counted() -> None:
    text = _product(8)
    head, entry = text.split("ENTRY %main")
    product = entry.partition(" -> ")[2].partition("{\n")[2]
    branch = "%{0} (t: {1}) -> bf16[8,8192] {{\n  %t = {1} parameter(0)\n"
    pair = "(bf16[8,8192], bf16[8192,8192])"
    gets = (
        "  %x = bf16[8,8192]{1,0} get-tuple-element(%t), index=0\n"
        "  %w = bf16[8192,8192]{1,0} get-tuple-element(%t), index=1\n"
    )
    dot = product[product.index("  ROOT") :].rpartition("}")[0]
    bodies = "".join(
        branch.format(name, pair) + gets + dot + "}\n\n" for name in ("yes", "no")
    )
    text = f"""{head}{bodies}ENTRY %main (p: pred[], x: bf16[8,8192], w: bf16[8192,8192]) -> bf16[8,8192] {{
  %p = pred[] parameter(0)
  %x = bf16[8,8192]{{1,0}} parameter(1)
  %w = bf16[8192,8192]{{1,0}} parameter(2)
  %t = {pair} tuple(%x, %w)
  ROOT %c = bf16[8,8192]{{1,0}} conditional(%p, %t, %t), true_computation=%yes, false_computation=%no
}}
"""
    timeline = scheduler.simulate(parse(text), target="h100_sxm")
    assert timeline.neglected.products == 1
