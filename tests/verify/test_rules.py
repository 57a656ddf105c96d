"""Each rule on a small module: the codes, all of them, in text order."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.verify import findings
from tests.verify.rule_cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_codes(case: Case) -> None:
    try:
        module = hlo_passes.parse(case.text, filename=f"{case.name}.hlo")
    except hlo_passes.ParseError as problem:
        assert case.codes, problem
        return
    found = findings(module)
    assert tuple(f.code for f in found) == case.codes, "\n".join(
        f.render() for f in found
    )


def test_case_names_are_distinct() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
