"""Whether an error is one that users may see: documented, of its form, no defect."""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.exit_codes import exit_code_of
from tests.modules import REPOSITORY

FORM: Final = re.compile(
    r"(?:[^\n]*:\d+:\d+: |%[^\n]*: )?(?:\[\w+\] )?error\[([A-Z]\d+)\]: ."
)
_ROW: Final = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
DOCUMENTED: Final = frozenset(
    _ROW.findall((REPOSITORY / "docs" / "errors.md").read_text("utf-8"))
)
#: Codes that mean a defect of ours, whatever the input was.
DEFECTS: Final = frozenset(("E001", "E002", "E003", "C002", "C003", "R003", "S012"))
EXIT_CODES: Final = {"P": 1, "V": 1, "U": 2, "C": 3, "E": 3, "S": 5, "R": 5}
#: A module in the wrong state is bad input, not one that cannot be run or simulated.
_BAD_INPUT: Final = ("S017", "S018", "S019")


def expected_exit_code(code: str) -> int:
    """How a command ends on an error of a code."""
    return 1 if code in _BAD_INPUT else EXIT_CODES[code[0]]


def require_documented(problem: HloError, name: str) -> None:
    """Check an error against docs/errors.md: code, exit code, form, file name."""
    text = problem.render()
    assert FORM.match(text), f"not the form of an error: {text[:200]}"
    assert problem.code in DOCUMENTED, f"{problem.code} is not documented"
    assert problem.code not in DEFECTS, text[:300]
    assert exit_code_of(problem) == expected_exit_code(problem.code), problem.code
    if problem.code[0] in "PU":
        assert not name or name in text, f"does not name the file: {text[:200]}"
