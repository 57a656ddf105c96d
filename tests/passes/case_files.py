"""Case files: a pipeline, a module, and what the one makes of the other.

// pipeline: collective-permute-combiner{threshold-count=2}
// quirks: off                            optional: do not do as XLA where it surprises
// runs again: the reason                 optional: a second run changes something
HloModule ...                             the input
// output
HloModule ...                             or `// unchanged`
// remarks
// not combined: ...                      every remark, in order
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, replace

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "cases"
_OUTPUT = "// output\n"
_REMARKS = "// remarks\n"
_UNCHANGED = "// unchanged\n"


@dataclass(frozen=True, slots=True)
class Case:
    """One case file, taken apart; `head` holds the lines that open it."""

    path: pathlib.Path
    head: dict[str, str]
    input: str
    output: str
    remarks: tuple[str, ...]

    @property
    def quirks(self) -> bool:
        """Whether XLA's surprises are wanted."""
        return self.head.get("quirks") != "off"

    def to_text(self) -> str:
        """The file's text."""
        head = "".join(f"// {key}: {value}\n" for key, value in self.head.items())
        output = _UNCHANGED if self.output == self.input else self.output
        remarks = "".join(f"// {remark}\n" for remark in self.remarks)
        tail = f"{_REMARKS}{remarks}" if remarks else ""
        return f"{head}{self.input}{_OUTPUT}{output}{tail}"

    def expecting(self, output: str, remarks: tuple[str, ...]) -> Case:
        """The same case with other expectations."""
        return replace(self, output=output, remarks=remarks)


def read_case(path: pathlib.Path) -> Case:
    """Take a case file apart; a file without expectations expects nothing yet."""
    rest = path.read_text(encoding="utf-8")
    head: dict[str, str] = {}
    while rest.startswith("// ") and not rest.startswith(_OUTPUT):
        line, _, rest = rest.partition("\n")
        key, _, value = line[3:].partition(": ")
        head[key] = value
    text, _, tail = rest.partition(_OUTPUT)
    output, _, remarks = tail.partition(_REMARKS)
    return Case(
        path,
        head,
        text,
        text if output == _UNCHANGED else output,
        tuple(line.removeprefix("// ") for line in remarks.splitlines()),
    )


def case_files() -> list[pathlib.Path]:
    """All case files, sorted."""
    return sorted(FOLDER.glob("*/*.hlo"))
