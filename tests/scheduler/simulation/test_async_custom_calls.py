"""Asynchronous custom calls, which no estimator has a price for, are told as such."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.estimate_table import table_text
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.simulation.report import report_text

HEAD = "HloModule m, is_scheduled=true\n"
WRAPPED = """
%wrapped (q: f32[8,128]) -> f32[8,128] {
  %q = f32[8,128]{1,0} parameter(0)
  ROOT %c = f32[8,128]{1,0} custom-call(%q), custom_call_target="own"
}
"""
ENTRY = """
ENTRY %main (a: f32[8,128]) -> f32[8,128] {
  %a = f32[8,128]{1,0} parameter(0)
  START
  %d = f32[8,128]{1,0} async-done(%s)
  ROOT %n = f32[8,128]{1,0} negate(%d)
}
"""
SHAPE = "((f32[8,128]{1,0}), f32[8,128]{1,0}, u32[])"
GENERIC = (
    HEAD
    + WRAPPED
    + ENTRY.replace("START", f"%s = {SHAPE} async-start(%a), calls=%wrapped")
)
SUGAR = HEAD + ENTRY.replace(
    "START", f'%s = {SHAPE} custom-call-start(%a), custom_call_target="own"'
).replace("async-done", "custom-call-done")
CALL = (
    HEAD
    + WRAPPED
    + ENTRY.replace("START", f"%s = {SHAPE} call-start(%a), to_apply=%wrapped").replace(
        "async-done", "call-done"
    )
)
ON_TPU = {"target": "v5e", "estimator": "tpu-final"}
CYCLES = 'negate(%d), backend_config={"estimated_cycles":"1880"}'
NO_PRICE = "no price for 1 operation"


def first_lines(text: str, **options: object) -> tuple[str, str]:
    """What `estimate` and `simulate` say first."""
    module = hlo_passes.parse(text)
    estimated = table_text(scheduler.estimate(module, **options))
    simulated = report_text(scheduler.simulate(module, **options))
    return estimated.partition("\n")[0], simulated.partition("\n")[0]


@pytest.mark.parametrize("text", [GENERIC, SUGAR])
def test_one_has_xlas_constant_and_no_price(text: str) -> None:
    module = hlo_passes.parse(text)
    rows = {row.name: row for row in scheduler.estimate(module).rows}
    assert (rows["s"].latency_us, rows["s"].model) == (5000.0, "gpu-approximate")
    timeline = scheduler.simulate(module)
    assert (timeline.unpriced, timeline.exposed_us) == (1, 5000.0)
    estimated, simulated = first_lines(text)
    assert estimated.endswith("no price for 1 of 3 instructions that cost something")
    assert simulated.endswith(NO_PRICE)


@pytest.mark.parametrize("text", [GENERIC, SUGAR])
def test_one_that_no_estimator_knows_counts_nothing_and_is_told(text: str) -> None:
    text = text.replace("negate(%d)", CYCLES)
    estimated, simulated = first_lines(text, **ON_TPU)
    assert estimated.endswith(f"{NO_PRICE}: 0 was taken for each")
    assert simulated.endswith(NO_PRICE)
    timeline = scheduler.simulate(hlo_passes.parse(text), **ON_TPU)
    assert (timeline.unpriced, timeline.exposed_us) == (1, 0.0)
    assert "1 operation has no price: 0 was taken for each" in timeline.notes


@pytest.mark.parametrize("text", [GENERIC, SUGAR])
def test_one_that_the_costs_lack_is_told(text: str) -> None:
    module = hlo_passes.parse(text)
    lacking, whole = TableEstimator({"n": 3.0}), TableEstimator({"n": 3.0}, {"s": 2.0})
    report = scheduler.estimate(module, estimator=lacking)
    assert report.remarks[-1:] == (f"{NO_PRICE}: 0 was taken for each",)
    assert {row.name: row.reason for row in report.rows}["s"] == "the costs lack %s"
    notes = scheduler.simulate(module, estimator=lacking).notes
    assert any(note.startswith("the costs lack 1 of the starts") for note in notes)
    assert not scheduler.estimate(module, estimator=whole).remarks
    notes = scheduler.simulate(module, estimator=whole).notes
    assert not any("lack" in note or "no price" in note for note in notes)


def test_a_call_takes_what_it_calls() -> None:
    priced = CALL.replace("negate(%d)", CYCLES).replace(
        'target="own"', 'target="own", backend_config={"estimated_cycles":"3760"}'
    )
    assert not any("no price" in line for line in first_lines(priced, **ON_TPU))
    timeline = scheduler.simulate(hlo_passes.parse(priced), **ON_TPU)
    assert timeline.unpriced == 0
    assert timeline.exposed_us == pytest.approx(2 * timeline.compute_us)
