"""Asynchronous fusions, which XLA gives a constant, take as long as the fusion itself."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.timeline import Timeline

BODY = """HloModule m, is_scheduled=true

%negated (p: f32[1024,1024]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0} parameter(0)
  ROOT %n = f32[1024,1024]{1,0} negate(%p)
}
"""
WRAPPED = """
%wrapped (q: f32[1024,1024]) -> f32[1024,1024] {
  %q = f32[1024,1024]{1,0} parameter(0)
  ROOT %f = f32[1024,1024]{1,0} fusion(%q), kind=kLoop, calls=%negated
}
"""
ENTRY = """
ENTRY %main (a: f32[1024,1024]) -> (f32[1024,1024], f32[1024,1024]) {
  %a = f32[1024,1024]{1,0} parameter(0)
  START
  %beside = f32[1024,1024]{1,0} fusion(%a), kind=kLoop, calls=%negated
  %d = f32[1024,1024]{1,0} async-done(%s)
  ROOT %t = (f32[1024,1024]{1,0}, f32[1024,1024]{1,0}) tuple(%beside, %d)
}
"""
SHAPE = "((f32[1024,1024]{1,0}), f32[1024,1024]{1,0}, u32[])"
GENERIC = BODY + WRAPPED + ENTRY.replace(
    "START", f"%s = {SHAPE} async-start(%a), calls=%wrapped"
)  # fmt: skip
SUGAR = BODY + ENTRY.replace(
    "START", f"%s = {SHAPE} fusion-start(%a), kind=kLoop, calls=%negated"
).replace("async-done", "fusion-done")  # fmt: skip
CONSTANT_US = 5000.0


def timeline_of(text: str, **options) -> Timeline:
    return scheduler.simulate(hlo_passes.parse(text), **options)


@pytest.mark.parametrize("text", [GENERIC, SUGAR])
def test_it_takes_as_long_on_its_stream_as_on_the_compute_lane(text: str) -> None:
    timeline = timeline_of(text)
    lanes = {span.lane: span for span in timeline.spans if span.kind != "wait"}
    beside, work = lanes["compute"], lanes["async compute 0"]
    assert (work.name, work.kind) == ("s", "async")
    # Both begin at once and run side by side; neither slows the other down.
    assert (work.start_us, work.end_us) == (beside.start_us, beside.end_us)
    assert 0.0 < timeline.step_time_us == beside.end_us < 100.0
    assert timeline.exposed_us == 0.0
    assert timeline.times.serial_us == 2 * timeline.step_time_us
    assert any(n.startswith("1 asynchronous fusion takes") for n in timeline.notes)
    assert not any("abstract" in note for note in timeline.notes)


def test_it_does_not_run_beside_what_waits_for_it() -> None:
    late = GENERIC.replace("fusion(%a)", "fusion(%d)").replace(
        "  %d = f32[1024,1024]{1,0} async-done(%s)\n", ""
    )
    late = late.replace(
        "  %beside =", "  %d = f32[1024,1024]{1,0} async-done(%s)\n  %beside ="
    )
    timeline = timeline_of(late)
    assert timeline.times.other_exposed_us == pytest.approx(timeline.compute_us)
    assert timeline.step_time_us == pytest.approx(timeline.times.serial_us)


def test_where_numbers_are_to_be_xlas_it_keeps_the_constant() -> None:
    thread = '"parallel"'  # XLA's scheduler overlaps nothing else of this kind
    text = GENERIC.replace(
        "calls=%wrapped", f"async_execution_thread={thread}, calls=%wrapped"
    )
    text = text.replace("\n\nENTRY", f", execution_thread={thread}\n\nENTRY")
    module = hlo_passes.parse(text)
    rows = {row.name: row for row in scheduler.estimate(module).rows}
    assert rows["s"].latency_us == CONSTANT_US
    statistic = scheduler.simulate(module, xla_statistic=True)
    assert statistic.step_time_us == CONSTANT_US
    assert not any("asynchronous" in note for note in statistic.notes)
    assert any("abstract constants" in note for note in statistic.notes)


def test_an_estimator_of_constants_keeps_them() -> None:
    timeline = timeline_of(GENERIC, estimator="gpu-approximate")
    assert timeline.step_time_us == CONSTANT_US
    assert any("abstract constants" in note for note in timeline.notes)


def test_a_profile_of_the_wrapped_fusion_counts(tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text('costs { name: "f" cost_us: 70.0 }\n')
    assert timeline_of(GENERIC, profile=str(file)).step_time_us == 70.0


def test_a_table_of_costs_has_the_word() -> None:
    costs = TableEstimator({"f": 3.0}, {"s": 12.0})
    assert timeline_of(GENERIC, estimator=costs).step_time_us == 12.0


def test_a_fusion_without_a_model_is_told_beside_the_headline() -> None:
    timeline = timeline_of(GENERIC.replace("kind=kLoop", "kind=kOutput"))
    head, _, rest = report_text(timeline).partition("\n\nno collectives")
    (line,) = [line for line in head.splitlines() if line.startswith("beware ")]
    assert "(sol/constant), which are not microseconds" in line
    assert "abstract constants" not in rest
    assert "note: 1 asynchronous fusion takes" in rest
    page = timeline.to_html()
    assert page.count("which are not microseconds.") == 1


def test_what_wraps_no_fusion_keeps_the_constant() -> None:
    text = GENERIC.replace("fusion(%q), kind=kLoop, calls=%negated", "negate(%q)")
    timeline = timeline_of(text)
    assert timeline.step_time_us == CONSTANT_US
    assert "beware   1 operation has no better price" in report_text(timeline)
