"""Mutants that nothing can tell from the program, each with the reason.

`equivalent.jsonl` has a line for each: the file, the changed lines before and after, and
a sentence that says why no caller sees a difference. Line numbers are left out, so that
a row holds as long as the lines read so.
"""

from __future__ import annotations

import json
import pathlib
from functools import cache

from tests.mutation.mutants import Mutant

LISTED = pathlib.Path(__file__).with_name("equivalent.jsonl")


def reason_of(mutant: Mutant) -> str:
    """Why a mutant changes no behaviour; '' if nobody said that it does not."""
    return reasons().get((mutant.file, mutant.before, mutant.after), "")


@cache
def reasons() -> dict[tuple[str, str, str], str]:
    """(file, before, after) -> reason, of all that are listed."""
    rows = map(json.loads, LISTED.read_text().splitlines())
    return {(r["file"], r["before"], r["after"]): r["reason"] for r in rows}
