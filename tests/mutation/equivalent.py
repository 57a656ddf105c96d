"""Mutants that nothing can tell from the program, each with the reason.

`equivalent.jsonl` has a line for each: the file, the changed lines before and after, and
a sentence that says why no caller sees a difference; a row without `after` speaks of
every change of those lines that an operator makes, one with `function` of that function
alone. Line numbers are left out, so that a row holds as long as the lines read so.
"""

from __future__ import annotations

import json
import pathlib
from functools import cache

from tests.mutation.mutants import Mutant

LISTED = pathlib.Path(__file__).with_name("equivalent.jsonl")


def reason_of(mutant: Mutant) -> str:
    """Why a mutant changes no behaviour; '' if nobody said that it does not."""
    known = reasons()
    for function in ("", mutant.function):
        for after in (mutant.after, ""):
            reason = known.get((mutant.file, function, mutant.before, after))
            if reason:
                return reason
    return ""


@cache
def reasons() -> dict[tuple[str, str, str, str], str]:
    """(file, function, before, after) -> reason; '' for any function or change."""
    rows = map(json.loads, LISTED.read_text().splitlines())
    return {
        (r["file"], r.get("function", ""), r["before"], r.get("after", "")): r["reason"]
        for r in rows
    }
