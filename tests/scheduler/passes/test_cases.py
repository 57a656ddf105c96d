"""Case files of the schedulers and the passes around them, and the laws of all cases."""

from __future__ import annotations

import pathlib
import tomllib

import pytest

from hlo_passes import scheduler
from hlo_passes.passes.framework.registry import GROUP
from tests.modules import REPOSITORY
from tests.passes.case_files import (
    case_files,
    changing_and_leaving,
    check_case,
    read_case,
)

FOLDER = pathlib.Path(__file__).resolve().parent / "cases"


@pytest.mark.parametrize(
    "path", case_files(FOLDER), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_case(path: pathlib.Path, request: pytest.FixtureRequest) -> None:
    made = check_case(path, update=request.config.getoption("--update-cases"))
    if made is not None and "schedule" in read_case(path).sections:
        # Cases are fragments: not every device meets every other in them.
        assert not scheduler.check_schedule(made, device_order=False)


def test_every_pass_has_cases_of_both_kinds() -> None:
    changing, leaving = changing_and_leaving(case_files(FOLDER))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    for name in project["project"]["entry-points"][GROUP]:
        assert changing[name] > 0, name
        assert leaving[name] > 0, name


def test_every_schedule_says_why() -> None:
    """The order of each case follows from the rules by hand; its first lines say how."""
    cases = [read_case(path) for path in case_files(FOLDER)]
    scheduled = [case for case in cases if "schedule" in case.sections]
    assert len(scheduled) >= 25
    for case in scheduled:
        assert next(iter(case.head)) == "why", case.path
