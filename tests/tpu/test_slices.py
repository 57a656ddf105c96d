"""Transfers between slices of TPUs: how they are scheduled, priced and drawn."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, scheduler
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.tpu.costs import require_tpu_costs
from hlo_passes.scheduler.tpu.log import read_log
from hlo_passes.scheduler.tpu.settings import tpu_settings
from tests.tpu.judge import judged
from tests.tpu.test_aot import needs_library
from tests.tpu.test_modules import costs_file

ARRAY = "f32[64,256]{1,0:T(8,128)}"
PAIR = f"({ARRAY}, u32[], token[])"
BETWEEN = (
    "is_host_transfer=true, "
    'frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}'
)
#: A parameter goes to the other slice, whose own comes here; work is beside it.
TWO_SLICES = f"""\
HloModule two_slices, is_scheduled=true, num_partitions=4

ENTRY %main (p: f32[64,256]) -> f32[64,256] {{
  %p = {ARRAY} parameter(0)
  %n = {ARRAY} negate(%p)
  %m = {ARRAY} negate(%n)
  %first = token[] after-all()
  %sent = {PAIR} send(%p, %first), {BETWEEN}
  %came = {PAIR} recv(%first), {BETWEEN}
  %sent.done = token[] send-done(%sent), {BETWEEN}
  %came.done = ({ARRAY}, token[]) recv-done(%came), {BETWEEN}, control-predecessors={{%sent.done, %sent}}
  %theirs = {ARRAY} get-tuple-element(%came.done), index=0
  ROOT %r = {ARRAY} add(%m, %theirs)
}}
"""
COSTS: dict[str, Any] = {
    "node_cost_cycles": {
        **dict.fromkeys(["p", "first", "sent", "came", "theirs"], 1.0),
        **dict.fromkeys(["sent.done", "came.done"], 1.0),
        "n": 9000.0,
        "m": 9000.0,
        "r": 1500.0,
    },
    "latency_cycles": {"sent": 3000.0, "came": 6000.0},
    "edge_latency_cycles": {"sent": {"came.done": 20_000.0}},
}


EDGE = ("sent", "came.done")


def names(module: hlo_passes.Module) -> list[str]:
    return [i.name for i in module.entry.instructions]


def scheduled(folder: pathlib.Path, text: str, costs: dict[str, Any]) -> list[str]:
    module = hlo_passes.parse(text)
    context = PassContext(Pricing(costs=costs_file(folder, **costs)))
    Pipeline.parse("latency-hiding-scheduler", context).run(module)
    return names(module)


def early(text: str) -> list[str]:
    """What goes as early as it can, whatever else is ready."""
    entry = hlo_passes.parse(text).entry
    estimator = EstimatorStack((TableEstimator(),))
    tracker = make_tracker(tpu_settings("v5e"))
    graph = ScheduleGraph(entry, entry.instructions, estimator, tracker)
    return [i.name for n, i in enumerate(entry.instructions) if graph.force_delay[n]]


def test_what_is_given_is_sent_first() -> None:
    assert early(TWO_SLICES) == ["sent"]


@pytest.mark.parametrize("through", ["bitcast", "copy"])
def test_laid_out_anew_it_is_still_given(through: str) -> None:
    same = f"  %same = {ARRAY} {through}(%p)\n  %n ="
    text = TWO_SLICES.replace("  %n =", same).replace("send(%p,", "send(%same,")
    assert early(text) == ["sent"]


def test_what_is_made_here_waits_for_its_turn() -> None:
    assert early(TWO_SLICES.replace("send(%p,", "send(%n,")) == []


def test_what_goes_to_the_host_does_too() -> None:
    assert early(TWO_SLICES.replace("xla_megascale_runtime", "another")) == []


def test_what_arrives_late_is_asked_for_last(tmp_path: pathlib.Path) -> None:
    order = scheduled(tmp_path, TWO_SLICES, COSTS)
    assert order.index("sent") < order.index("n")
    assert order.index("came.done") > order.index("m")


def test_several_are_in_flight(tmp_path: pathlib.Path) -> None:
    lines = TWO_SLICES.splitlines()
    more = [
        f"  %other = {PAIR} send(%p, %first), {BETWEEN}",
        f"  %other.done = token[] send-done(%other), {BETWEEN}",
    ]
    at = next(k for k, line in enumerate(lines) if "%sent.done =" in line)
    costs = COSTS | {
        "latency_cycles": {"sent": 30_000.0, "other": 30_000.0, "came": 6000.0},
        "node_cost_cycles": COSTS["node_cost_cycles"]
        | {"other": 1.0, "other.done": 1.0},
    }
    text = "\n".join([*lines[:at], *more, *lines[at:], ""])
    order = scheduled(tmp_path, text, costs)
    assert max(map(order.index, ["sent", "other"])) < min(
        map(order.index, ["sent.done", "other.done"])
    )


def test_no_more_than_the_limit_are_in_flight(tmp_path: pathlib.Path) -> None:
    """Forty arrays arrive, and nothing waits for one of them but the end."""
    limit, arrays = tpu_settings("v5e").send_recv_host_overlap_limit, range(40)
    assert limit == 32
    results = ", ".join([ARRAY] * len(arrays))
    lines = [
        "HloModule many, is_scheduled=true, num_partitions=4",
        "",
        f"ENTRY %main (p: f32[64,256]) -> ({results}) {{",
        f"  %p = {ARRAY} parameter(0)",
        "  %first = token[] after-all()",
        *(f"  %in{k} = {PAIR} recv(%first), {BETWEEN}" for k in arrays),
        *(
            f"  %in{k}.done = ({ARRAY}, token[]) recv-done(%in{k}), {BETWEEN}"
            for k in arrays
        ),
        *(f"  %x{k} = {ARRAY} get-tuple-element(%in{k}.done), index=0" for k in arrays),
        f"  ROOT %r = ({results}) tuple({', '.join(f'%x{k}' for k in arrays)})",
        "}",
        "",
    ]
    costs = {
        "node_cost_cycles": {"p": 1.0, "first": 1.0, "r": 1.0}
        | {f"{n}{k}{e}": 1.0 for k in arrays for n, e in (("in", ""), ("in", ".done"))},
        "latency_cycles": {f"in{k}": 1e6 for k in arrays},
        "memory_limit_bytes": 2**30,
    }
    in_flight = most = 0
    for name in scheduled(tmp_path, "\n".join(lines), costs):
        if name.startswith("in"):
            in_flight += -1 if name.endswith(".done") else 1
            most = max(most, in_flight)
    assert most == limit


def test_no_search_moves_what_has_yet_to_arrive(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(TWO_SLICES)
    context = PassContext(Pricing(costs=costs_file(tmp_path, **COSTS)))
    result = Pipeline.parse("schedule-improver", context).run(module)
    assert module.to_text() == TWO_SLICES
    (why,) = (r for r in result.passes[0].remarks if "%main" in r)
    assert "when another slice has what %sent sends" in why


def test_they_have_lanes_of_their_own(tmp_path: pathlib.Path) -> None:
    file = costs_file(tmp_path, **COSTS)
    found = scheduler.simulate(hlo_passes.parse(TWO_SLICES), costs=file)
    lanes = {row.name: row.lane for row in found.collectives}
    assert lanes == {"sent": "dcn-out 0", "came": "dcn-in 0"}
    (note,) = (note for note in found.notes if "at another slice" in note)
    assert note.startswith("1 transfer arrives at another slice up to 13.3 us later")


def test_costs_are_written_and_read(tmp_path: pathlib.Path) -> None:
    costs = require_tpu_costs(costs_file(tmp_path, **COSTS))
    assert costs.edge_cycles == COSTS["edge_latency_cycles"]
    assert costs.to_json()["edge_latency_cycles"] == COSTS["edge_latency_cycles"]
    module = hlo_passes.parse(TWO_SLICES)
    sent, done = (i for i in module.entry.instructions if i.name in EDGE)
    assert costs.in_cycles().latency(sent, done).us == 20_000.0
    table = costs.in_us()
    assert table.edges["sent"]["came.done"] == pytest.approx(20_000.0 / costs.mhz)


@pytest.mark.parametrize("wrong", [[1], {"sent": 3}, {"sent": {"came.done": -1}}])
def test_costs_that_are_none_are_refused(wrong: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "costs.json"
    costs_file(tmp_path, **COSTS)
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"edge_latency_cycles": wrong})
    )
    with pytest.raises(hlo_passes.HloError) as found:
        require_tpu_costs(str(file))
    assert found.value.code == "U206"


def test_the_log_has_edges_that_take_time() -> None:
    said = """\
Just built graph:
Instr: %sent = send(%p, %first)
Successors:
\tEdge: sent.done latency: 3000
\tEdge: came.done latency: 20000
\tEdge: other latency: 1
Cost: 1
Instr: %sent.done = send-done(%sent)
Cost: 1
Initial memory pressure for main: 0"""
    head = "I0101 00:00:00.000000    1 latency_hiding_scheduler.cc:1] "
    log = read_log(head + line for line in said.splitlines())
    assert log.latency_cycles == {"sent": 3000.0}
    assert log.edge_cycles == {"sent": {"came.done": 20_000.0}}


def test_with_slices_any_chip_is_aggressive() -> None:
    for name, alone in (("v5e", True), ("v6e", False)):
        assert tpu_settings(name).aggressive_scheduling_policies is alone
        assert tpu_settings(name, slices=2).aggressive_scheduling_policies
    flag = "xla_tpu_use_aggressive_scheduling=false"
    assert not tpu_settings("v5e", flag, slices=2).aggressive_scheduling_policies


@needs_library
@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_the_order_is_the_compilers(chip: str) -> None:
    program = str(pathlib.Path(__file__).parent / "programs.py") + ":dependent_permutes"
    verdict = judged(program, chip, "2x4*2")
    assert not verdict.outcome
    assert not verdict.differences
    assert verdict.rounds == verdict.orders == 1
    assert verdict.decisions == verdict.equal_decisions > 0


def test_what_else_names_the_handler_has_a_lane_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    pair = f"({ARRAY}, {ARRAY}, u32[]{{:S(2)}}, u32[]{{:S(2)}})"
    permute = (
        f"  %ps = {pair} collective-permute-start(%p), channel_id=1, "
        "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, "
        'frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}'
        f"\n  %pd = {ARRAY} collective-permute-done(%ps)\n  %n ="
    )
    text = TWO_SLICES.replace("  %n =", permute)
    file = costs_file(tmp_path, **COSTS)
    found = scheduler.simulate(hlo_passes.parse(text), costs=file)
    lanes = {row.name: row.lane for row in found.collectives}
    assert lanes["ps"] == "communication 0"


def test_a_hint_of_the_user_stays() -> None:
    hinted = BETWEEN.replace(
        "frontend_attributes={",
        'frontend_attributes={scheduler_hint="force_delay_async",',
    )
    text = TWO_SLICES.replace("send(%p,", "send(%n,").replace(BETWEEN, hinted)
    assert early(text) == ["sent", "came"]


def test_only_sends_of_the_module_are_told(tmp_path: pathlib.Path) -> None:
    edges = {"nope": {"q": 30_000.0}}
    file = costs_file(tmp_path, **(COSTS | {"edge_latency_cycles": edges}))
    found = scheduler.simulate(hlo_passes.parse(TWO_SLICES), costs=file)
    assert not any("at another slice" in note for note in found.notes)
