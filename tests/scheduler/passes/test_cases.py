"""Case files of the passes around the scheduler, and the laws of all cases."""

from __future__ import annotations

import pathlib

import pytest

from tests.passes.case_files import case_files, changing_and_leaving, check_case

FOLDER = pathlib.Path(__file__).resolve().parent / "cases"


@pytest.mark.parametrize(
    "path", case_files(FOLDER), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_case(path: pathlib.Path, request: pytest.FixtureRequest) -> None:
    check_case(path, update=request.config.getoption("--update-cases"))


def test_every_pass_has_cases_of_both_kinds() -> None:
    changing, leaving = changing_and_leaving(case_files(FOLDER))
    for name in ("execution-stream-assignment", "scheduler-memory-fencing"):
        assert changing[name] > 0, name
        assert leaving[name] > 0, name
