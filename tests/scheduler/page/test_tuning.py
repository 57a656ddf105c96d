"""The page of a search over flags, as a browser shows it."""

from __future__ import annotations

import pathlib

import pytest

from hlo_passes.cli.main import main
from tests.modules import REPOSITORY
from tests.scheduler.page.browser import browser, visit

TUTORIAL = REPOSITORY / "docs" / "tutorial"


@pytest.fixture(scope="module")
def running():
    with browser() as started:
        yield started


def _page(name: str, folder: pathlib.Path) -> pathlib.Path:
    page = folder / "tune.html"
    words = ["tune", str(TUTORIAL / name), "--budget=5", f"--html={page}"]
    assert main(words) == 0
    return page


def test_points_levers_and_both_schedules(running, tmp_path) -> None:
    with visit(running, _page("step.h100_sxm.hlo", tmp_path)) as seen:
        told = seen.text("#tune")
        assert "parallel_collective_overlap_limit=2" in told
        assert "combinations, by predicted step and peak memory" in told
        assert "baseline, 2.28 ms" in told
        assert "best, 1.87 ms" in told
        assert "1.87 ms (\u221218.2 %)" in told
        assert seen.page.locator("#tune circle").count() >= 4
        assert seen.page.locator("#tune circle.best").count() == 1
        assert seen.page.locator("canvas.lanes").count() == 2
        assert "was 2.28 ms" in seen.text("#cards")
        assert seen.is_silent()


def test_where_nothing_helps_there_is_one_schedule(running, tmp_path) -> None:
    with visit(running, _page("faster.h100_sxm.hlo", tmp_path)) as seen:
        assert "nothing: no combination is faster" in seen.text("#tune")
        assert seen.page.locator("canvas.lanes").count() == 1
        assert seen.is_silent()
