"""Every schedule that XLA made passes, and its peak is XLA's own figure."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from tests.modules import CORPUS, SHARED, module_files, read_text

#: Variants of ../shared/golden that were made with an overlap limit of 4.
_FOUR = re.compile(r"overlap4|start_delay")
_SCHEDULED = [
    file
    for file in module_files(CORPUS)
    if "is_scheduled=true" in read_text(file)[:4000]
]
#: The suite takes every so manieth of the corpus; the fault campaign reads them all.
_STEP = 24


def _findings(file: pathlib.Path, **options: object) -> list[str]:
    module = hlo_passes.parse(read_text(file), filename=str(file))
    return [f.render() for f in check_schedule(module, **options)]


@pytest.mark.parametrize("hazards", ["async", "all"])
@pytest.mark.parametrize("file", _SCHEDULED[::_STEP], ids=lambda f: f.name)
def test_schedules_of_the_corpus_are_legal(file: pathlib.Path, hazards: str) -> None:
    assert _findings(file, alias_hazards=hazards) == []


_GOLDEN = [
    file
    for file in module_files(SHARED / "golden")
    if "latency-hiding" in file.name
    and ("llama3_8b_cp" in str(file) or "16x8/start_delay" in str(file))
]


@pytest.mark.parametrize(
    "file", _GOLDEN, ids=lambda f: f"{f.parent.parent.name}/{f.parent.name}/{f.name}"
)
def test_schedules_of_real_models_are_legal(file: pathlib.Path) -> None:
    limit = 4 if _FOUR.search(file.parent.name) else 1
    options: dict[str, object] = {"alias_hazards": "all"}
    when = "before"
    if file.name.endswith("after.hlo.gz"):
        options |= {"parallel_collective_overlap_limit": limit}
        options |= {"parallel_async_compute_limit": 2}
        when = "after"
    assert _findings(file, **options) == []
    module = hlo_passes.parse(read_text(file))
    statistics = json.loads((file.parent / "statistics.json").read_text())
    theirs = statistics[when][module.entry.name]["memory pressure peak (bytes)"]
    assert peak_memory(module).size_bytes == theirs


def test_order_alone_may_change() -> None:
    folder = SHARED / "golden" / "llama3_8b_cp_bf16_1x4" / "sol"
    if not folder.is_dir():
        pytest.skip("no ../shared/golden beside this checkout")
    before, after = (
        hlo_passes.parse(read_text(folder / f"latency-hiding-scheduler.{w}.hlo.gz"))
        for w in ("before", "after")
    )
    assert check_schedule(after, before) == []
