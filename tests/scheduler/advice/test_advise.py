"""Advice: what is said to be verified holds in XLA, and nothing is said without need."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from hlo_passes import Pipeline, PipelineResult, parse
from hlo_passes.cli.main import main
from hlo_passes.files import read_module
from hlo_passes.ir.async_form import half
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice import advise, trials
from hlo_passes.scheduler.advice.advise import advised
from hlo_passes.scheduler.advice.plain_form import plain_form
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.tuning.levers import LEVERS
from tests.modules import CORPUS, REPOSITORY

DOCS = REPOSITORY / "docs"
STEP, FASTER = (DOCS / "tutorial" / f"{n}.h100_sxm.hlo" for n in ("step", "faster"))
TRAINING = DOCS / "tutorial" / "training.h100_sxm.hlo"
SCAN = DOCS / "pipelining" / "fsdp.xla_off.hlo.gz"
LIMIT = "--xla_gpu_experimental_parallel_collective_overlap_limit"


def advised_of(file: pathlib.Path, **priced_on) -> tuple[Module, Timeline]:
    module, on, rules = read_module(str(file)), Pricing(**priced_on), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    return module, advised(timeline, module, on, rules)


def test_what_is_verified_is_what_xla_makes_of_the_flag() -> None:
    """`faster` is XLA's own schedule of the same function, compiled with the flag."""
    module, timeline = advised_of(STEP)
    first = timeline.advice[0]
    assert first.change == "a second collective in flight"
    assert first.xla_flag == f"{LIMIT}=2"
    assert first.verified
    recorded = simulate_on(read_module(str(FASTER)), Pricing(), Rules())
    assert first.step_time_us == pytest.approx(recorded.step_time_us, rel=1e-4)
    saved = timeline.step_time_us - recorded.step_time_us
    assert first.saved_us == pytest.approx(saved, rel=1e-3)
    memory = recorded.footprint.peak_bytes
    assert first.peak_bytes == pytest.approx(memory, rel=0.01)
    # The module itself stays as it is.
    assert module.to_text() == STEP.read_text()


def test_what_is_faster_already_has_no_flag() -> None:
    _, timeline = advised_of(FASTER)
    assert not [a for a in timeline.advice if a.saved_us > 0.0]
    (only,) = timeline.advice
    assert only.change.startswith("nothing that was tried shortens the step")


def test_every_exposed_collective_has_advice() -> None:
    for file in (STEP, FASTER, TRAINING, SCAN):
        _, timeline = advised_of(file, hosts=1 if "step" in file.name else 2)
        for row in timeline.collectives:
            assert bool(timeline.advice_on(row)) == (row.total_exposed_us > 0.0)


@pytest.mark.parametrize(
    ("file", "flags"),
    [
        (
            TRAINING,
            [
                "--xla_gpu_enable_pipelined_all_gather=true",
                "--xla_gpu_enable_pipelined_reduce_scatter=true",
            ],
        ),
        (
            SCAN,
            [
                "--xla_gpu_pipeline_all_gather=on",
                "--xla_gpu_pipeline_reduce_scatter=on",
            ],
        ),
    ],
)
def test_flags_are_those_of_the_release(file: pathlib.Path, flags: list[str]) -> None:
    _, timeline = advised_of(file, hosts=2)
    open_ones = [a for a in timeline.advice if a.is_change and not a.verified]
    assert [a.xla_flag for a in open_ones] == flags
    for each in open_ones:
        assert each.step_time_us is None
        bound = timeline.step_time_us - timeline.any_structure.us
        assert 0.0 < each.most_us <= bound
        assert "not verified here, `hlo-passes tune` compiles it" in each.to_text()


def test_changes_are_sorted_and_worth_it() -> None:
    _, timeline = advised_of(TRAINING, hosts=2)
    saved = [a.saved_us for a in timeline.advice if a.verified]
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > 0.05 * timeline.step_time_us
    for each in timeline.advice:
        if each.saved_us:
            assert each.step_time_us == timeline.step_time_us - each.saved_us
            assert each.sure is not None
            assert len(each.sure.changes_us) == 27


def test_the_same_every_time() -> None:
    first, second = (advised_of(TRAINING, hosts=2)[1].advice for _ in range(2))
    assert first == second


def test_a_budget_of_work_ends_it() -> None:
    module, on, rules = read_module(str(TRAINING)), Pricing(hosts=2), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    found = advise.advised(timeline, module, on, rules, most_instructions=300)
    assert found.not_tried > 0
    assert "not tried, since too much would be scheduled again; " in report_text(found)
    # What nobody tried is not said to be useless.
    assert all("nothing that was tried" not in a.change for a in found.advice)


def nest_of_loops(levels: int) -> str:
    """A permute in a loop, in a loop, and so on."""
    text = """HloModule nest, is_scheduled=true, num_partitions=2

%goes_on (a: f32[1024]) -> pred[] {
  %a = f32[1024] parameter(0)
  ROOT %yes = pred[] constant(true)
}

%body0 (p0: f32[1024]) -> f32[1024] {
  %p0 = f32[1024] parameter(0)
  ROOT %q0 = f32[1024] collective-permute(%p0), channel_id=1, \
source_target_pairs={{0,1},{1,0}}
}
"""
    for level in range(1, levels + 1):
        text += f"""
%body{level} (p{level}: f32[1024]) -> f32[1024] {{
  %p{level} = f32[1024] parameter(0)
  ROOT %q{level} = f32[1024] while(%p{level}), condition=%goes_on, \
body=%body{level - 1}, backend_config={{"known_trip_count":{{"n":"4"}}}}
}}
"""
    return f"""{text}
ENTRY %main (p: f32[1024]) -> f32[1024] {{
  %p = f32[1024] parameter(0)
  ROOT %loop = f32[1024] while(%p), condition=%goes_on, body=%body{levels}, \
backend_config={{"known_trip_count":{{"n":"4"}}}}
}}
"""


def test_what_a_rewrite_adds_is_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two iterations as one, at each of ten levels: a thousand times the loop."""
    module, on, rules = parse(nest_of_loops(9)), Pricing(), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    sizes: list[int] = []

    def noted(copy: Module, on: Pricing, rules: Rules, *, with_range: bool) -> Timeline:
        sizes.append(copy.instruction_count)
        return simulate_on(copy, on, rules, with_range=with_range)

    monkeypatch.setattr(trials, "simulate_on", noted)
    found = advise.advised(timeline, module, on, rules, most_instructions=2_000)
    assert found.not_tried == 1
    assert 0 < sum(sizes) <= 2_000
    # With room for it, it is tried.
    found = advise.advised(timeline, module, on, rules, most_instructions=20_000)
    assert found.not_tried == 0
    assert max(sizes) > 2_000


def test_it_says_why_not_everything_was_tried() -> None:
    module, on, rules = read_module(str(STEP)), Pricing(), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    found = advise.advised(timeline, module, on, rules, most_instructions=1)
    assert found.advice
    for each in found.advice:
        assert each.change.startswith(
            "not everything was tried, since the budget is 1 instructions scheduled "
            "again;"
        )


def test_nothing_is_said_of_other_machines_or_orders(tmp_path: pathlib.Path) -> None:
    unscheduled = tmp_path / "m.hlo"
    text = STEP.read_text().replace("is_scheduled=true, ", "")
    assert "is_scheduled" not in text
    unscheduled.write_text(text)
    assert advised_of(unscheduled)[1].advice == ()
    module, on = read_module(str(STEP)), Pricing()
    for rules in (Rules(xla_statistic=True),):
        timeline = simulate_on(module, on, rules)
        assert advised(timeline, module, on, rules) is timeline


_BOUND = """HloModule m, is_scheduled=true, replica_count=8

add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }

ENTRY main {
  p = f32[67108864]{0} parameter(0)
  s = f32[67108864]{0} all-reduce-start(p), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=add
  ROOT d = f32[67108864]{0} all-reduce-done(s)
}
"""


def test_where_the_bound_is_reached_it_says_so(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(_BOUND)
    _, timeline = advised_of(file)
    (only,) = timeline.advice
    assert only.change.startswith("leave it: no order is faster, the bound is reached")
    assert only.verified
    assert only.step_time_us == timeline.step_time_us
    assert "What to change" not in report_text(timeline)


def test_the_plain_form_has_no_pairs_and_schedules_to_the_same() -> None:
    for file in (STEP, TRAINING, SCAN):
        module = read_module(str(file))
        plain = plain_form(module)
        assert not plain.is_scheduled
        again = parse(plain.to_text())
        halves = [
            i.name
            for c in again.computations
            for i in c.instructions
            if half(i) and "all-gather" in i.opcode
        ]
        assert halves == []
        found = Pipeline.parse("gpu-schedule").run(again)
        assert isinstance(found, PipelineResult)
        hosts = 1 if file is STEP else 2
        on = Pricing(hosts=hosts)
        given, made = (simulate_on(m, on, Rules()) for m in (module, again))
        assert made.step_time_us == pytest.approx(given.step_time_us, rel=0.01)


def test_json_has_it_per_collective(capsys) -> None:
    assert main(["simulate", str(STEP), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {c["name"]: c["advice"] for c in found["collectives"]}
    first = by_name["all-gather-start.1"][0]
    assert {"change", "xla_flag", "step_time_us", "verified"} <= first.keys()
    assert first["verified"] is True
    assert first["xla_flag"] == f"{LIMIT}=2"
    assert all(
        c["advice"] == [] or c["total_exposed_us"] > 0 for c in found["collectives"]
    )
    assert main(["simulate", str(STEP), "--json", "--no-advice"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(c["advice"] == [] for c in found["collectives"])


def test_costs_by_name_try_the_order_alone(capsys) -> None:
    module, costs = DOCS / "simulator.hlo", DOCS / "simulator_costs.json"
    assert main(["simulate", str(module), f"--costs={costs}"]) == 0
    told = capsys.readouterr().out
    assert "advice: " in told


def test_every_lever_of_the_advice_is_in_the_table() -> None:
    for lever in (*advise._ORDERS, *advise._REWRITES):
        assert LEVERS[lever.lever].candidate(lever.setting)
        options = dict(LEVERS[lever.lever].candidate(lever.setting).options)
        assert options or lever.passes


def test_golden_schedules_are_advised_without_failure() -> None:
    files = sorted(
        CORPUS.glob("golden/*/*/gpu-convert-async-collectives-to-sync.after.hlo*")
    )
    assert len(files) > 30
    for file in files[::12]:
        _, timeline = advised_of(file)
        for each in timeline.advice:
            assert each.to_text() == each.to_text().strip()
            assert dataclasses.asdict(each)["change"]
