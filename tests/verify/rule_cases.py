"""The case files: small modules, a note on each line that a rule must refuse.

    // case: result-size
    HloModule m

    ENTRY %main {
      %p = f32[8] parameter(0)
      ROOT %r = f32[9] add(%p, %p)  // error: [V402]
    }

A case without notes is one that XLA accepts and that a stricter verifier might refuse.
`test_rules` checks lines and codes; `test_against_xla` asks jaxlib about the same
texts, but for the cases marked `(not asked of XLA)`: it does not look at what they are about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "cases"
_CASE = re.compile(r"// case: ([\w-]+)( \(not asked of XLA\))?\n")
_NOTE = re.compile(r"  // error: \[([A-Z\d, ]+)\]$")


@dataclass(frozen=True, slots=True)
class Case:
    """A module and the (line, code) pairs expected of it, in text order."""

    name: str
    text: str
    expected: tuple[tuple[int, str], ...]
    ask_xla: bool


def _read(text: str) -> list[Case]:
    parts = _CASE.split(text)
    cases = []
    for name, mark, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        expected = []
        for number, line in enumerate(body.split("\n"), start=1):
            note = _NOTE.search(line)
            if note:
                expected += [(number, code.strip()) for code in note[1].split(",")]
        cases.append(Case(name, body, tuple(expected), ask_xla=mark is None))
    return cases


CASES: Final = [
    case
    for file in sorted(_FOLDER.glob("*.hlo.txt"))
    for case in _read(file.read_text())
]

#: A scheduled program of four partitions with most of what the rules look at.
PROGRAM: Final = (_FOLDER / "program.hlo").read_text()
