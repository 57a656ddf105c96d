"""Computations with work that the compiler's costs lack keep their order."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing
from hlo_passes.runtime.tpu_aot import grid_to_compile_for
from hlo_passes.runtime.tpu_handed_over import (
    HandedToTpu,
    compile_alone_for_tpu,
    hand_to_tpu,
)
from hlo_passes.scheduler.tpu.comparison import figures_of, without_figures
from hlo_passes.scheduler.tpu.costs import require_tpu_costs
from tests.tpu.test_aot import needs_library
from tests.tpu.test_modules import costs_file

ARRAY = "f32[64,256]{1,0:T(8,128)}"
PAIR = f"({ARRAY}, {ARRAY}, u32[]{{:S(2)}}, u32[]{{:S(2)}})"
#: As v5e makes it after its scheduler: in the inner loop a product has become a fusion
#: with a piece of the outer loop's all-gather. The costs are from before that.
NESTED = f"""\
HloModule nested, is_scheduled=true, num_partitions=4

%piece (a: f32[64,256], b: f32[64,256]) -> (f32[64,256], f32[64,256]) {{
  %a = {ARRAY} parameter(0)
  %b = {ARRAY} parameter(1)
  %product = {ARRAY} multiply(%a, %a)
  ROOT %both = ({ARRAY}, {ARRAY}) tuple(%product, %b)
}}

%less (i: (s32[], f32[64,256], f32[64,256])) -> pred[] {{
  %i = (s32[], {ARRAY}, {ARRAY}) parameter(0)
  %i.0 = s32[] get-tuple-element(%i), index=0
  %four = s32[] constant(4)
  ROOT %lt = pred[] compare(%i.0, %four), direction=LT
}}

%inner (x: (s32[], f32[64,256], f32[64,256])) -> (s32[], f32[64,256], f32[64,256]) {{
  %x = (s32[], {ARRAY}, {ARRAY}) parameter(0)
  %k = s32[] get-tuple-element(%x), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %u = {ARRAY} get-tuple-element(%x), index=1
  %v = {ARRAY} get-tuple-element(%x), index=2
  %f = ({ARRAY}, {ARRAY}) fusion(%v, %u), kind=kOutput, calls=%piece
  %g = {ARRAY} get-tuple-element(%f), index=0
  %s = {PAIR} collective-permute-start(%u), channel_id=1, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  %d = {ARRAY} collective-permute-done(%s)
  ROOT %t = (s32[], {ARRAY}, {ARRAY}) tuple(%next, %d, %g)
}}

ENTRY %main (p: f32[64,256]) -> f32[64,256] {{
  %p = {ARRAY} parameter(0)
  %zero = s32[] constant(0)
  %n = {ARRAY} negate(%p)
  %begin = (s32[], {ARRAY}, {ARRAY}) tuple(%zero, %p, %p)
  %w = (s32[], {ARRAY}, {ARRAY}) while(%begin), condition=%less, body=%inner
  %y = {ARRAY} get-tuple-element(%w), index=1
  %es = {PAIR} collective-permute-start(%p), channel_id=2, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  %ed = {ARRAY} collective-permute-done(%es)
  %h = {ARRAY} add(%n, %y)
  ROOT %r = {ARRAY} add(%h, %ed)
}}
"""
#: Without the fusion %f.
COSTS: dict[str, Any] = {
    "node_cost_cycles": {
        **dict.fromkeys(["x", "k", "one", "next", "u", "v", "g", "s", "d", "t"], 1.0),
        **dict.fromkeys(["p", "zero", "begin", "y", "es", "ed"], 1.0),
        "n": 9000.0,
        "w": 40_000.0,
        "h": 1500.0,
        "r": 1500.0,
    },
    "latency_cycles": {"s": 6000.0, "es": 6000.0},
}
SCHEDULERS = ("latency-hiding-scheduler", "schedule-improver")


def with_costs_of(**cycles: float) -> dict[str, Any]:
    costs = copy.deepcopy(COSTS)
    costs["node_cost_cycles"] |= cycles
    return costs


def names(module: hlo_passes.Module, computation: str) -> list[str]:
    found = module.computation(computation)
    assert found is not None
    return [i.name for i in found.instructions]


def after(
    name: str, folder: pathlib.Path, costs: dict[str, Any]
) -> tuple[hlo_passes.Module, list[str]]:
    module = hlo_passes.parse(NESTED)
    context = PassContext(Pricing(costs=costs_file(folder, **costs)))
    result = Pipeline.parse(name, context).run(module)
    return module, list(result.passes[0].remarks)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_computation_keeps_its_order_and_is_named(
    name: str, tmp_path: pathlib.Path
) -> None:
    given = names(hlo_passes.parse(NESTED), "inner")
    module, remarks = after(name, tmp_path, COSTS)
    assert names(module, "inner") == given
    assert "kept: %inner: the costs lack %f" in remarks
    # With a cost of its own it is scheduled.
    module, remarks = after(name, tmp_path, with_costs_of(f=9000.0))
    assert names(module, "inner") != given
    assert not any("lack" in remark for remark in remarks)


def test_its_caller_is_scheduled_with_the_compilers_cost_of_the_loop(
    tmp_path: pathlib.Path,
) -> None:
    module, remarks = after("latency-hiding-scheduler", tmp_path, COSTS)
    order = names(module, "main")
    assert order.index("es") < order.index("w") < order.index("ed")
    assert any(remark.startswith("%main: exposed") for remark in remarks)


def test_a_search_does_not_count_a_loop_without_costs_as_nothing(
    tmp_path: pathlib.Path,
) -> None:
    """It prices a loop by its body, so the caller is kept, too."""
    module, remarks = after("schedule-improver", tmp_path, COSTS)
    assert names(module, "main") == names(hlo_passes.parse(NESTED), "main")
    assert "kept: %main: it runs %inner, where the costs lack %f" in remarks


@pytest.mark.parametrize(
    ("missing", "text"), [("w", "the costs lack %w"), ("es", "the costs lack %es")]
)
def test_loops_and_starts_need_costs(
    missing: str, text: str, tmp_path: pathlib.Path
) -> None:
    costs = with_costs_of(f=9000.0)
    for table in costs.values():
        table.pop(missing, None)
    _, remarks = after("latency-hiding-scheduler", tmp_path, costs)
    assert f"kept: %main: {text}" in remarks


def test_what_takes_no_time_needs_none(tmp_path: pathlib.Path) -> None:
    """The log names no hidden tuples, and counters of loops cost a cycle."""
    costs = with_costs_of(f=9000.0)
    for name in ("g", "next", "one", "t", "x", "u"):
        del costs["node_cost_cycles"][name]
    _, remarks = after("latency-hiding-scheduler", tmp_path, costs)
    assert not any("kept" in remark for remark in remarks)


def test_it_has_no_statistic(tmp_path: pathlib.Path) -> None:
    costs = require_tpu_costs(costs_file(tmp_path, **COSTS))
    assert list(figures_of(hlo_passes.parse(NESTED), costs)) == ["main"]
    lacking = without_figures(hlo_passes.parse(NESTED), costs)
    assert lacking == {"inner": "the costs lack %f"}


def test_it_is_explained(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(NESTED)
    on = Pricing(costs=costs_file(tmp_path, **COSTS))
    context = PassContext(on, explain="s")
    result = Pipeline.parse("latency-hiding-scheduler", context).run(module)
    told = "%inner keeps its order: the costs lack %f"
    assert result.passes[0].explanations == (told,)


PROGRAM = """\
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def step(devices):
    mesh = Mesh(np.array(devices).reshape(-1, 2), ("rows", "columns"))
    on = lambda *axes: NamedSharding(mesh, P(*axes))
    keep = jax.lax.with_sharding_constraint

    def layer(x, w):
        u = jax.nn.gelu(keep(x @ w["up"], on("rows", None, "columns")))
        return keep(x + u @ w["down"], on("rows", None, None)), None

    def whole(w, x):
        return jax.lax.scan(layer, x, w)[0]

    def array(shape, where):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)

    up = array((4, 4096, 16384), on(None, "rows", "columns"))
    down = array((4, 16384, 4096), on(None, "columns", "rows"))
    x = array((8, 2048, 4096), on("rows", None, None))
    return jax.jit(whole), ({"up": up, "down": down}, x)
"""


@needs_library
def test_loops_with_pieces_of_an_all_gather_keep_the_compilers_order(
    tmp_path: pathlib.Path,
) -> None:
    """The inner loop has no all-gather of its own, but products with pieces of one."""
    file = tmp_path / "layers.py"
    file.write_text(PROGRAM)
    grid = grid_to_compile_for("v5e", "4x4", 1)
    alone = compile_alone_for_tpu(f"{file}:step", grid)
    both: HandedToTpu = hand_to_tpu(alone, passes="latency-hiding-scheduler")
    assert (both.changed, both.moved) == (0, 0)
    inner = [name for name in both.unpriced if "dot_general_body" in name]
    assert len(inner) == 1
    assert not both.given.keys() & both.unpriced.keys()
    assert f"%{inner[0]}: the costs lack %fusion" in both.to_text()
    assert json.loads(json.dumps(both.to_json()))["without_costs"] == both.unpriced
