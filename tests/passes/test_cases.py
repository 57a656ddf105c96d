"""Every case file: the output, the flag, the remarks, and a second run."""

from __future__ import annotations

import pathlib

import pytest

from hlo_passes.passes.framework.registry import PASSES
from tests.passes.case_files import (
    FOLDER,
    case_files,
    changing_and_leaving,
    check_case,
)


@pytest.mark.parametrize(
    "path", case_files(), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_case(path: pathlib.Path, request: pytest.FixtureRequest) -> None:
    check_case(path, update=request.config.getoption("--update-cases"))


def test_every_pass_has_cases_most_of_which_do_not_match() -> None:
    """A pass is proven more by what it leaves alone than by what it does."""
    changing, leaving = changing_and_leaving(case_files())
    own = {name for name in PASSES if (FOLDER / name).is_dir()}
    assert own == set(PASSES)
    for name in PASSES:
        assert changing[name] > 0, name
        assert leaving[name] >= changing[name], name
