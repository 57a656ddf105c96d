"""The pass: options, report, rules, explanations, memory limits, base orders."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.errors import PassError, PipelineSpecError, UsageError
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.framework.pipeline import PipelineResult
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.latency_hiding.result import log_text
from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.rule_list import parse_rules
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from tests.scheduler.latency_hiding.scenes import (
    Scene,
    chain_of_collectives,
    memory_scene,
    names,
    one_gather,
    two_gathers,
)

PASS = "latency-hiding-scheduler"
COARSE = "estimator=gpu-approximate"


def run(
    text: str, options: str = COARSE, context: PassContext | None = None
) -> tuple[hlo_passes.Module, PipelineResult]:
    """A module after the pass."""
    module = hlo_passes.parse(text)
    pipeline = hlo_passes.Pipeline.parse(f"{PASS}{{{options}}}", context)
    return module, pipeline.run(module)


def test_the_pass_schedules_and_says_so() -> None:
    module, result = run(one_gather(7).text())
    assert names(module) == "s f0 f1 f2 f3 f4 f5 f6 d t"
    assert result.changed
    (done,) = result.passes
    assert done.statistics["computations-scheduled"] == 1
    assert done.details["statistics"]["before"]["main"]["total wasted cycles"] == 4999
    assert done.details["statistics"]["after"]["main"]["total wasted cycles"] == 0
    assert "wasted cycles for all-gather" in done.details["statistics"]["after"]["main"]
    assert done.to_json()["details"] == done.details


def test_a_second_run_changes_nothing() -> None:
    module, _ = run(one_gather(7).text())
    assert not hlo_passes.Pipeline.parse(f"{PASS}{{{COARSE}}}").run(module).changed


def test_nothing_asynchronous_is_a_remark() -> None:
    scene = Scene()
    scene.loop("f", "p0")
    scene.root("f")
    module, result = run(scene.text())
    assert not result.changed
    assert "no computation has anything asynchronous" in result.remarks[0]
    found = schedule_module(module, GpuApproximateEstimator(), SchedulerSettings())
    assert (found.computations, found.reruns) == ((), 0)
    assert names(module) == "f t"


def test_a_module_without_schedule_gets_one() -> None:
    text = one_gather(7).text().replace(", is_scheduled=true", "")
    module, result = run(text)
    assert module.is_scheduled
    assert result.changed
    # The memory scheduler's order comes first, and the same windows arise from it.
    order = names(module).split()
    assert (order[0], order[-2:]) == ("s", ["d", "t"])


def test_exposed_collectives_name_the_rule_that_placed_them() -> None:
    _, result = run(two_gathers(2).text())
    exposed = [r for r in result.remarks if r.startswith("exposed: ")]
    assert exposed == [
        "exposed: %sa 4999 of 5000 us in %main: nothing else was ready",
        "exposed: %sb 2999 of 5000 us in %main: nothing else was ready",
    ]
    _, result = run(memory_scene().text(), f"{COARSE},memory-limit-bytes=8300")
    (exposed,) = [r for r in result.remarks if r.startswith("exposed: ")]
    assert exposed == (
        "exposed: %s 2999 of 5000 us in %main: "
        "its start was placed by kMemoryPeakOverLimit"
    )


# -- rules as data ------------------------------------------------------------------


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
        assert re.fullmatch(r"k[A-Z]\w+", rule.reason)
        assert rule.prefers


def test_the_rules_of_the_gpu_in_xlas_order() -> None:
    reasons = [rule.reason for rule in active_rules(SchedulerSettings())]
    assert (
        reasons
        == (
            "kForceEarly kForceDelay kForceDelayPriority kPreference "
            "kDecreaseMemoryOverLimit kMemoryPeakOverLimit kDelayAsyncStartForCompute "
            "kDelayAsyncStartForDepth kDelayMoveToHostAsyncStart kScheduleDone "
            "kDelayDoneOfForceDelayedAsyncStart kReleaseNonextendable kLessStall "
            "kStartAtZeroDepth kFreeBackedupResource kAsyncDepth kAvoidWaste kUnlockDone "
            "kCreatesMoreReadyNodes kDecreaseMemory kOriginalOrder"
        ).split()
    )


def order_with(scene: Scene, rules: str) -> str:
    module, _ = run(scene.text(), f"{COARSE},rules='{rules}'")
    return names(module)


def test_rules_can_be_moved_and_chosen() -> None:
    assert order_with(two_gathers(2), "original-order") == "sa d1 sb d2 f0 f1 t"
    moved = parse_rules("original-order<force-early")
    assert moved[0].name == "original-order"
    assert len(moved) == len(RULES)
    behind = parse_rules("force-early>less-stall")
    found = [rule.name for rule in behind]
    assert found.index("force-early") == found.index("less-stall") + 1
    assert [r.name for r in parse_rules("less-stall original-order")] == [
        "less-stall",
        "original-order",
    ]
    assert parse_rules("") == RULES


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("less-stal", "U215", "did you mean less-stall?"),
        ("-kLessStal", "U215", "did you mean kLessStall?"),
        ("less-stall -avoid-waste", "U216", "only names"),
        ("-avoid-waste less-stall<avoid-waste", "U216", ""),
    ],
)
def test_wrong_rules(text: str, code: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rules(text)
    assert caught.value.code == code
    assert hint in caught.value.hint


def test_a_rule_of_ones_own() -> None:
    def by_name(state: Any, a: int, b: int) -> int:
        of_a, of_b = state.graph.name(a), state.graph.name(b)
        return (of_a > of_b) - (of_a < of_b)

    own = Rule(
        "by-name", "mine", "the later name", by_name, lambda s, n: s.graph.name(n)
    )
    scene = Scene()
    scene.gather("s", "d", "p0")
    for name in ("zeta", "alpha", "mu"):
        scene.loop(name, "p1")
    scene.root("d", "zeta", "alpha", "mu")
    module = hlo_passes.parse(scene.text())
    rules = (own, *RULES)
    result = schedule_module(
        module, GpuApproximateEstimator(), rules=rules, log_decisions=True
    )
    order = names(module).split()
    compute = [n for n in order if n in ("zeta", "alpha", "mu")]
    assert compute == ["alpha", "mu", "zeta"]
    assert any(d.reason == "mine" for d in result.decisions)


@pytest.mark.parametrize(
    ("number", "takes_arrays"),
    [
        (lambda s, n: s.graph.cost[n], True),
        (lambda s, n: s.graph.cost[n] if s.graph.cost[n] else 0.0, False),
        (lambda s, n: max(s.graph.cost[n], 0.0), False),
        # An array of costs has one mean; a single cost is its own mean.
        (lambda s, n: s.graph.cost[n] - np.mean(s.graph.cost[n]), False),
    ],
)
def test_a_rule_written_for_one_node_is_asked_node_by_node(
    number: Any, takes_arrays: bool
) -> None:
    arrays = 0

    def counted(s: Any, n: Any) -> Any:
        nonlocal arrays
        arrays += isinstance(n, np.ndarray)
        return number(s, n)

    own = by_number("own", "mine", "the more expensive one", counted)
    costs = TableEstimator({f"f{k}": k % 7 + 1.0 for k in range(15)}, {"s": 10.0})
    orders = []
    for watched in (False, True):
        module = hlo_passes.parse(one_gather(15).text())
        schedule_module(module, costs, rules=(own, *RULES), log_decisions=watched)
        orders.append(names(module))
    assert arrays > 1 if takes_arrays else arrays == 1
    assert orders[0] == orders[1]


def test_preferences_come_before_most_rules() -> None:
    scene = Scene()
    scene.gather("s", "d", "p0")
    for name in ("a", "b", "c"):
        scene.loop(name, "p1")
    scene.root("d", "a", "b", "c")
    module = hlo_passes.parse(scene.text())
    wanted = {"c": 1.0, "a": 2.0, "b": 3.0}
    schedule_module(
        module,
        GpuApproximateEstimator(),
        preferences=lambda computation: {
            i: wanted[i.name] for i in computation.instructions if i.name in wanted
        },
    )
    order = [n for n in names(module).split() if n in wanted]
    assert order == ["c", "a", "b"]


# -- logs and explanations ----------------------------------------------------------


def test_decisions_are_logged_in_xlas_layout() -> None:
    result = one_gather(1).schedule()
    assert log_text(result.decisions) == (
        "t\t\tfirst\n"
        "d\t\tfirst\n"
        "d\tf0\tkScheduleDone\n"
        "f0\t\tfirst\n"
        "f0\ts\tkLessStall\n"
        "s\t\tfirst\n"
    )


def test_explanations(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(chain_of_collectives().text())
    out = tmp_path / "out.hlo"
    words = ["opt", str(file), f"--passes={PASS}{{{COARSE}}}", "-o", str(out)]
    assert main([*words, "--explain=sa"]) == 0
    told = capfd.readouterr().err
    assert "%sa in %main: instruction 2 of 19 (before: 3)" in told
    assert "lost 2 comparisons by kStartAtZeroDepth, the last one to %f0" in told
    assert main([*words, "--explain=%f0"]) == 0
    told = capfd.readouterr().err
    assert "a candidate from" in told
    assert "against" in told
    assert main([*words, "--explain=nothing"]) == 2
    assert "error[U006]: --explain=nothing" in capfd.readouterr().err


def test_an_explanation_counts_from_the_end_that_was_placed_first() -> None:
    text = chain_of_collectives().text()
    for options, end in (
        (COARSE, "us before the end"),
        (f"{COARSE},top-down-scheduling=true", "us after the beginning"),
    ):
        _, result = run(text, options, context=PassContext(explain="sa"))
        (told,) = result.passes[0].explanations
        assert end in told.splitlines()[0]
        assert all(end in line for line in told.splitlines() if " from " in line)


def test_an_explanation_of_what_takes_no_time() -> None:
    scene = Scene()
    scene.gather("s", "d", "p0")
    scene.root("d")
    for name, is_noop in (("p0", True), ("s", False)):
        _, result = run(scene.text(), context=PassContext(explain=name))
        (told,) = result.passes[0].explanations
        noted = "a no-op: placed as soon as nothing held it back" in told
        assert noted is is_noop


def test_an_explanation_counts_one_thing_in_the_singular() -> None:
    text = chain_of_collectives().text()
    _, result = run(text, COARSE, context=PassContext(explain="f0"))
    (told,) = result.passes[0].explanations
    assert re.search(r"lost 1 comparison by|over 1 other$", told, re.MULTILINE)
    assert not re.search(r"\b1 (comparisons|others)\b", told)


def test_an_explanation_lists_twenty_candidates_and_counts_the_others() -> None:
    for count, last in ((20, "%w19"), (24, "and 4 more")):
        scene = Scene()
        scene.gather("s", "d", "p0")
        for k in range(count):
            scene.loop(f"w{k}", "p1")
        scene.root("d", *(f"w{k}" for k in range(count)))
        _, result = run(scene.text(), context=PassContext(explain="d"))
        (told,) = result.passes[0].explanations
        lines = [line.strip() for line in told.splitlines()]
        assert lines[2] == f"chosen at 0 us before the end over {count} others"
        assert [line.split()[0] for line in lines[3:23]] == [
            f"%w{k}" for k in range(20)
        ]
        assert lines[-1].startswith(last)


def test_an_explanation_lists_twenty_misfits_and_counts_the_others() -> None:
    for count, last in ((20, "%d19"), (24, "and 4 more")):
        scene = Scene()
        for k in range(count + 1):
            scene.gather(f"st{k}", f"d{k}", "p0")
        scene.root(*(f"d{k}" for k in range(count + 1)))
        _, result = run(scene.text(), context=PassContext(explain=f"st{count}"))
        (told,) = result.passes[0].explanations
        lines = [line.strip() for line in told.splitlines()]
        at = lines.index("not considered") + 1
        assert lines[at:-1] == [
            f"%d{k} needs 1 of kGpuAsyncStreamCollectives (0 free)"
            for k in range(min(count - (count == 20), 20))
        ]
        assert lines[-1].startswith(last)


def test_explaining_changes_no_order() -> None:
    text = chain_of_collectives().text()
    plain, _ = run(text)
    told, result = run(text, context=PassContext(explain="sb"))
    assert names(told) == names(plain)
    assert result.passes[0].explanations


# -- memory -------------------------------------------------------------------------


def test_a_hard_limit_fails_or_keeps_the_order() -> None:
    text = memory_scene().text()
    free, _ = run(text)
    advisory = f"{COARSE},memory-limit-bytes=20000"
    _, result = run(text, advisory)
    peak = result.passes[0].details["memory"]["peak_bytes"]
    assert peak > 20000
    with pytest.raises(PassError, match="the limit is 20,000") as caught:
        run(text, f"{advisory},hard-memory-limit=fail")
    assert caught.value.code == "E032"
    assert names(free) != "s d big r sm r2 t"
    with pytest.raises(PassError, match="the input order needs"):
        run(text, f"{COARSE},memory-limit-bytes=2000,hard-memory-limit=input-order")


def test_a_hard_limit_keeps_an_order_that_fits() -> None:
    text = memory_scene().text()
    _, result = run(text)
    peak_after = result.passes[0].details["memory"]["peak_bytes"]
    before = result.passes[0].details["statistics"]["before"]["main"]
    peak_before = int(before["memory pressure peak (bytes)"])
    assert peak_before < peak_after
    limit = f"memory-limit-bytes={peak_before},hard-memory-limit=input-order"
    rules = "rules='-kMemoryPeakOverLimit -kDecreaseMemoryOverLimit'"
    module, result = run(text, f"{COARSE},{limit},{rules}")
    assert names(module) == "s d big r sm r2 t"
    assert not result.changed
    assert any(r.startswith("kept the input order") for r in result.remarks)
    # That order is offered, but not taken, where a limit is to fail.
    limit = limit.replace("input-order", "fail")
    with pytest.raises(PassError, match=f"the input order needs {peak_before:,}") as no:
        run(text, f"{COARSE},{limit},{rules}")
    assert no.value.code == "E032"
    assert "hard-memory-limit=input-order" in no.value.hint


#: The entry holds most, and nothing of it is scheduled.
WIDE_ENTRY = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%callee (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %start = f32[8]{0} all-reduce-start(%p), to_apply=%add
  ROOT %done = f32[8]{0} all-reduce-done(%start)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %wide = f32[1024]{0} iota(), iota_dimension=0
  %more = f32[1024]{0} negate(%wide)
  %part = f32[8]{0} slice(%more), slice={[0:8]}
  ROOT %r = f32[8]{0} call(%part), to_apply=%callee
}
"""


@pytest.mark.parametrize("mode", ["fail", "input-order"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_hard_limit_holds_where_nothing_is_scheduled(
    mode: str, is_async: bool
) -> None:
    text = WIDE_ENTRY
    if not is_async:
        text = text.replace(
            "%start = f32[8]{0} all-reduce-start", "%start = f32[8]{0} all-reduce"
        )
        text = text.replace("all-reduce-done(%start)", "negate(%start)")
    run(text, f"memory-limit-bytes=8192,hard-memory-limit={mode}")
    with pytest.raises(PassError, match="needs 8,192 bytes at its peak") as caught:
        run(text, f"memory-limit-bytes=8191,hard-memory-limit={mode}")
    assert caught.value.code == "E032"
    with pytest.raises(PassError, match="but the limit is 0"):
        run(text, f"memory-limit-bytes=0,hard-memory-limit={mode}")


def test_a_module_may_need_no_memory() -> None:
    text = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[0] {
  %p = f32[8]{0} parameter(0)
  ROOT %c = f32[0]{0} custom-call(%p), custom_call_target="c", frontend_attributes={scheduler_hint="force_delay"}
}
"""
    _, result = run(text)
    assert result.passes[0].details["memory"]["peak_bytes"] == 0


# -- options ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("overlap=3", "U012"),
        ("parallel-collective-overlap-limit=0", "U013"),
        ("parallel-collective-overlap-limit=many", "U013"),
        ("memory-limit-slop-factor=-1", "U013"),
        ("memory-limit-bytes=-1", "U013"),
        ("max-hops-to-closest-selective-overlap=-1", "U013"),
        ("hard-memory-limit=soft", "U013"),
        ("flavour=cpu", "U013"),
    ],
)
def test_wrong_options(options: str, code: str) -> None:
    with pytest.raises(PipelineSpecError) as caught:
        hlo_passes.Pipeline.parse(f"{PASS}{{{options}}}")
    assert caught.value.code == code


def test_costs_come_from_the_context(tmp_path: pathlib.Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"node_cost_us": {"f0": 3}, "latency_us": {"s": 10}}')
    context = PassContext(costs=str(costs))
    _, result = run(one_gather(1).text(), "", context)
    after = result.passes[0].details["statistics"]["after"]["main"]
    assert after["total wasted cycles"] == 7.0


@pytest.mark.parametrize("estimator", ["sol", "ring"])
def test_costs_of_the_context_give_way_to_an_estimator(estimator: str) -> None:
    context = PassContext(costs="absent")
    run(one_gather(1).text(), f"estimator={estimator}", context)


@pytest.mark.parametrize("outside", [PASS, "gpu-schedule"])
def test_costs_that_the_estimator_does_not_read_are_refused(outside: str) -> None:
    with pytest.raises(UsageError, match="estimator sol does not read it") as caught:
        hlo_passes.Pipeline.parse(f"{outside}{{estimator=sol,costs=absent.json}}").run(
            hlo_passes.parse(one_gather(1).text())
        )
    assert caught.value.code == "U219"


def test_an_estimator_of_ones_own_is_adjusted_as_one_by_name_is() -> None:
    text = one_gather(3).text()
    named = LatencyHidingScheduler(estimator="gpu-approximate")
    own = LatencyHidingScheduler()
    for costs in (
        GpuApproximateEstimator(),
        EstimatorStack((GpuApproximateEstimator(),)),
    ):
        module = hlo_passes.parse(text)
        context = PassContext(pricing=Pricing(estimator=costs))
        found = own.make_estimator(module, context)
        wanted = named.make_estimator(module, PassContext())
        assert found.name == wanted.name
        assert len(found.estimators) == len(wanted.estimators)


def test_progress_is_told_from_one_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from hlo_passes.scheduler.latency_hiding import driver, loop

    monkeypatch.setattr(loop, "_PROGRESS_STEP", 4)
    monkeypatch.setattr(driver, "_PROGRESS_SECONDS", 0.0)
    lines: list[str] = []
    run(chain_of_collectives().text(), context=PassContext(progress=lines.append))
    assert lines[-1] == ""
    assert re.fullmatch(r"scheduling %main: \d+ of 19 instructions", lines[0])
    told = [int(found) for found in re.findall(r": (\d+) of", "\n".join(lines))]
    assert told == [4, 8, 12, 16]
    # Nobody has to listen, and a short run is told once, when it ends.
    run(chain_of_collectives().text())
    monkeypatch.setattr(driver, "_PROGRESS_SECONDS", 1e9)
    lines.clear()
    run(chain_of_collectives().text(), context=PassContext(progress=lines.append))
    assert not any("scheduling" in line for line in lines)


def test_a_bad_priority_is_told_with_its_line() -> None:
    scene = one_gather(1)
    scene.add(
        "c", "f32[8]{0}", 'custom-call(%p1), custom_call_target="c", '
        'frontend_attributes={scheduler_delay_priority="soon",scheduler_hint="force_delay"}',
    )  # fmt: skip
    scene.lines.append(scene.lines.pop(-2))
    with pytest.raises(PassError) as caught:
        scene.order()
    assert caught.value.code == "E034"
    assert caught.value.location is not None


def test_the_report_counts_reruns() -> None:
    report = Report()
    text = memory_scene().text()
    module = hlo_passes.parse(text)
    pipeline = hlo_passes.Pipeline.parse(
        f"{PASS}{{{COARSE},memory-limit-bytes=9000,rerun=2}}"
    )
    pipeline.passes[0].run(module, PassContext(), report)
    assert report.statistics.get("reruns", 0) >= 1
    assert report.details["memory"]["limit_bytes"] < 9000


def test_a_cycle_of_hazards_is_a_remark() -> None:
    scene = Scene()
    scene.reduce("sa", "da", "p0")
    scene.reduce("sb", "db", "p0")
    scene.one("x", "da")
    scene.add("v", "f32[8]{0}", "add(%x, %p0)")
    scene.root("v", "db")
    module, result = run(scene.text())
    order = names(module).split()
    assert sorted(order) == sorted("sa da sb db x v t".split())
    assert [r for r in result.remarks if r.startswith("not kept apart")] == [
        f"not kept apart: %sa may overwrite what %{reader} reads, and they depend on "
        "each other in a cycle: this module lacks copies"
        for reader in ("sb", "db")
    ]
    # What else reads the array is not on that cycle.
    assert order.index("v") < order.index("sb")


PLAIN = """HloModule m, num_partitions=2, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  %r = f32[64]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  ROOT %t = f32[64]{0} add(%r, %x)
}
"""


@pytest.mark.parametrize(
    ("passes", "name", "exit_code", "says"),
    [
        ("latency-hiding-scheduler", "r", 0, [
            "%r in %main, which the scheduler does not order",
            "nothing in this computation is asynchronous",
            "synchronous: %r; async-collective-creator before the scheduler",
        ]),
        ("gpu-schedule", "r", 2, [
            "--explain=r: a pass of the pipeline replaced it",
            "help: name what it became: all-reduce-start, all-reduce-done",
        ]),
        ("gpu-schedule", "all-reduce-start", 0, ["us before its done"]),
        ("hlo-dce", "r", 0, ["latency-hiding-scheduler and gpu-schedule explain"]),
        ("hlo-dce", "q", 2, ["no such instruction"]),
    ],
)  # fmt: skip
def test_explain_says_what_to_do(tmp_path, capsys, passes, name, exit_code, says):
    file = tmp_path / "m.hlo"
    file.write_text(PLAIN)
    words = ["opt", str(file), f"--passes={passes}", f"--explain={name}"]
    assert main([*words, "-o", str(tmp_path / "out.hlo")]) == exit_code
    said = capsys.readouterr().err
    for text in says:
        assert text in said
