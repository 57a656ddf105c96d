"""Parts of rules that a whole module seldom reaches."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.in_place import in_place_pairs
from hlo_passes.verify.async_pairs import is_prefix
from hlo_passes.verify.finding import Report
from hlo_passes.verify.header import check_header


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        ("f32[8]", "f32[8]", True),
        ("f32[8]", "f32[9]", False),
        ("f32[8]", "(f32[8])", False),
        ("()", "f32[8]", True),
        ("(f32[8])", "f32[8]", False),
        ("(f32[8])", "(f32[8], f32[9])", True),
        ("(f32[9])", "(f32[8], f32[9])", False),
        ("(f32[8], f32[9])", "(f32[8])", False),
        ("(f32[8], ())", "(f32[8], (f32[9]))", True),
        ("(f32[8], (f32[8]))", "(f32[8], (f32[9]))", False),
    ],
)
def test_what_begins_like_another_shape(part: str, whole: str, expected: bool) -> None:
    one, other = hlo_passes.parse_shape(part), hlo_passes.parse_shape(whole)
    assert is_prefix(one, other) is expected


def test_a_module_without_an_entry_is_told() -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"
    )
    report = Report()
    check_header(module, None, report)
    assert [f.code for f in report.findings(module)] == ["V009"]


def test_a_ragged_exchange_writes_into_its_second_operand() -> None:
    module = hlo_passes.parse(
        """HloModule m

ENTRY %main {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %o = s32[2] parameter(2)
  ROOT %r = f32[8] ragged-all-to-all(%p, %q, %o, %o, %o, %o), replica_groups={{0,1}}
}
"""
    )
    assert in_place_pairs(module.entry.root) == ((1, (), ()),)
