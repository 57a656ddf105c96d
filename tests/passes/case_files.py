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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import hlo_passes
from hlo_passes.passes.base import PassContext
from hlo_passes.passes.pipeline import Pipeline

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


def case_files(folder: pathlib.Path = FOLDER) -> list[pathlib.Path]:
    """All case files of a folder with one folder a pass, sorted."""
    return sorted(folder.glob("*/*.hlo"))


def check_case(path: pathlib.Path, *, update: bool) -> None:
    """Run a case and everything that holds for all cases; or write what came out."""
    case = read_case(path)
    context = PassContext(xla_quirks=case.quirks)
    pipeline = Pipeline.parse(case.head["pipeline"], context)
    module = hlo_passes.parse(case.input, filename=str(path))
    result = pipeline.run(module)
    remarks = tuple(remark for run in result.passes for remark in run.remarks)
    output = module.to_text()
    if update:
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


def changing_and_leaving(
    paths: Iterable[pathlib.Path],
) -> tuple[Counter[str], Counter[str]]:
    """By pass: how many cases it changes, how many it leaves alone."""
    changing: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    for path in paths:
        case = read_case(path)
        counter = leaving if case.output == case.input else changing
        counter[path.parent.name] += 1
    return changing, leaving
