"""Each rule on a small module: lines and codes, all of them, in text order."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.verify import findings
from tests.verify.rule_cases import CASES, Case


def found_in(text: str) -> tuple[tuple[int, str], ...]:
    """(line, code) of every finding, or of the parser's one error."""
    try:
        found = findings(hlo_passes.parse(text))
    except hlo_passes.ParseError as problem:
        found = (problem,)
    return tuple((f.location.line if f.location else 0, f.code) for f in found)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_lines_and_codes(case: Case) -> None:
    assert found_in(case.text) == case.expected


def test_case_names_are_distinct() -> None:
    names = [case.name for case in CASES]
    assert len(names) > 100
    assert len(names) == len(set(names))
