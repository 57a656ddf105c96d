"""A place in the user's program on one line.

params['layers'][0]['up'], model.py:41, jit(step)/layers_0/dot_general
params['layers'][0]['up'] and 11 more, model.py:41
"""

from __future__ import annotations

import os
from typing import Final

from hlo_passes.analysis.program_places import ProgramPlace

#: Longer names of what a collective transfers are cut in the middle.
_LONGEST_NAME: Final = 96


def place_lines(place: ProgramPlace, *, with_label: bool = True) -> list[str]:
    """One line, if anything is known: parameter, file and line, op_name."""
    parts = [shortened(place.label)] if with_label else []
    first = place.members[0] if place.members else place
    parts.append(_from_here(first.source))
    # An op_name that is the label is not said twice.
    parts.append(shortened(first.op_name) if first.parameter else "")
    said = ", ".join(part for part in parts if part)
    return [said] if said else []


def _from_here(source: str) -> str:
    """A path without the folder one is in."""
    return source.removeprefix(os.path.join(os.getcwd(), ""))


def shortened(name: str) -> str:
    """A name that fits a line: the middle of a long one is left out."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 3) // 2
    return f"{name[:half]}...{name[-half:]}"
