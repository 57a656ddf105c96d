"""docs/scheduler.md: the explanation and the counts."""

from __future__ import annotations

import gzip

import pytest

import hlo_passes
from hlo_passes.passes.framework.base import PassContext
from tests.modules import REPOSITORY, SHARED

PAGE = (REPOSITORY / "docs" / "scheduler.md").read_text(encoding="utf-8")
RECORDED = SHARED / "golden" / "llama3_8b_cp_bf16_1x4" / "sol"


@pytest.mark.skipif(not RECORDED.is_dir(), reason="needs ../shared/golden")
def test_the_explanation_is_what_the_tool_says() -> None:
    before = RECORDED / "latency-hiding-scheduler.before.hlo.gz"
    module = hlo_passes.parse(gzip.decompress(before.read_bytes()).decode())
    context = PassContext(
        costs=str(RECORDED / "costs.json.gz"), explain="all-gather-start.3"
    )
    pipeline = hlo_passes.Pipeline.parse("latency-hiding-scheduler", context)
    (told,) = pipeline.run(module).passes[0].explanations
    shown = PAGE.split("<!-- explanation -->\n```text\n")[1].split("```")[0]
    assert shown == told + "\n"


@pytest.mark.skipif(not RECORDED.is_dir(), reason="needs ../shared/golden")
def test_the_page_counts_what_is_recorded() -> None:
    logs = sorted(RECORDED.parent.parent.glob("*/*/decisions.tsv.gz"))
    lines = sum(gzip.decompress(f.read_bytes()).count(b"\n") for f in logs)
    runs = len(list(RECORDED.parent.parent.glob("*/*/statistics.json")))
    assert f"the {runs} runs" in PAGE
    assert f"all {lines:,} comparisons" in PAGE
