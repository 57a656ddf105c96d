"""Every case file: the output, the flag, the remarks, and a second run."""

from __future__ import annotations

import pathlib
from collections import Counter

import pytest

import hlo_passes
from hlo_passes.passes.base import PassContext
from hlo_passes.passes.pipeline import Pipeline
from hlo_passes.passes.registry import PASSES
from tests.passes.case_files import FOLDER, case_files, read_case


@pytest.mark.parametrize(
    "path", case_files(), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_case(path: pathlib.Path, request: pytest.FixtureRequest) -> None:
    """Run a case and everything that holds for all cases."""
    case = read_case(path)
    context = PassContext(xla_quirks=case.quirks)
    pipeline = Pipeline.parse(case.head["pipeline"], context)
    module = hlo_passes.parse(case.input, filename=str(path))
    result = pipeline.run(module)
    remarks = tuple(remark for run in result.passes for remark in run.remarks)
    output = module.to_text()
    if request.config.getoption("--update-cases"):
        path.write_text(case.expecting(output, remarks).to_text())
        return
    assert output == case.output
    assert remarks == case.remarks
    assert result.changed == (output != case.input)
    again = hlo_passes.parse(output)
    assert again.to_text() == output
    assert hlo_passes.parse(again.to_canonical_text()).to_canonical_text() == (
        again.to_canonical_text()
    )
    if "runs again" not in case.head:
        second = pipeline.run(again)
        assert not second.changed
        assert again.to_text() == output


def test_every_pass_has_cases_most_of_which_do_not_match() -> None:
    """A pass is proven more by what it leaves alone than by what it does."""
    changing: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    for path in case_files():
        case = read_case(path)
        counter = leaving if case.output == case.input else changing
        counter[path.parent.name] += 1
    own = {name for name in PASSES if (FOLDER / name).is_dir()}
    assert own == set(PASSES)
    for name in PASSES:
        assert changing[name] > 0, name
        assert leaving[name] >= changing[name], name
