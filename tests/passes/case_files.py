"""Case files: a pipeline, a module, and what the one makes of the other.

// why: what the case shows                optional; goes on in lines `//   ...`
// pipeline: collective-permute-combiner{threshold-count=2}
// quirks: off                            optional: do not do as XLA where it surprises
// runs again: the reason                 optional: a second run changes something
HloModule ...                             the input
// output
HloModule ...                             or `// unchanged`
// remarks
// not combined: ...                      every remark, in order

A case of a scheduler, which changes nothing but the order, has in place of `// output`:

// schedule
// %main: s f0 d t                        a computation, its instructions in order

Parameters are left out. The entry and every computation with asynchronous operations are
listed; remarks only where the file has that section. A pipeline that fails has:

// refused
// m.hlo:3:5: error[C020]: ...             the whole message
"""

from __future__ import annotations

import pathlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "cases"
_SECTION = re.compile(r"^// (output|schedule|refused|remarks)\n", re.MULTILINE)
_UNCHANGED = "// unchanged\n"
_ASYNCHRONOUS = re.compile(r".*-(start|done)|(send|recv)(-done)?")


@dataclass(frozen=True, slots=True)
class Case:
    """One case file, taken apart; `head` holds the lines that open it."""

    path: pathlib.Path
    head: dict[str, str]
    input: str
    sections: dict[str, str]

    @property
    def quirks(self) -> bool:
        """Whether XLA's surprises are wanted."""
        return self.head.get("quirks") != "off"

    @property
    def changes_nothing(self) -> bool:
        """Whether what comes out is what went in."""
        if "schedule" in self.sections:
            return self.sections["schedule"] == schedule_text(self.module())
        return self.sections.get("output") == _UNCHANGED

    def module(self) -> Module:
        """The input, read."""
        return hlo_passes.parse(self.input, filename=self.path.name)

    def to_text(self) -> str:
        """The file's text."""
        head = "".join(f"// {key}: {value}\n" for key, value in self.head.items())
        sections = "".join(f"// {n}\n{text}" for n, text in self.sections.items())
        return f"{head}{self.input}{sections}"


def read_case(path: pathlib.Path) -> Case:
    """Take a case file apart; a file without expectations expects nothing yet."""
    rest = path.read_text(encoding="utf-8")
    head: dict[str, str] = {}
    key = ""
    while rest.startswith("// ") and not _SECTION.match(rest):
        line, _, rest = rest.partition("\n")
        if line.startswith("//   "):
            head[key] += f"\n{line}"
            continue
        key, _, value = line[3:].partition(": ")
        head[key] = value
    text, *found = _SECTION.split(rest)
    return Case(path, head, text, dict(zip(found[::2], found[1::2], strict=True)))


def case_files(folder: pathlib.Path = FOLDER) -> list[pathlib.Path]:
    """All case files of a folder with one folder a pass, sorted."""
    return sorted(folder.glob("*/*.hlo"))


def schedule_text(module: Module) -> str:
    """The section `// schedule` of a module."""
    return "".join(
        f"// %{computation.name}: "
        + " ".join(i.name for i in computation.instructions if i.opcode != "parameter")
        + "\n"
        for computation in module.computations
        if computation is module.entry
        or any(_ASYNCHRONOUS.fullmatch(i.opcode) for i in computation.instructions)
    )


def _commented(lines: Iterable[str]) -> str:
    return "".join(f"// {line}\n" for line in lines)


def _sections(case: Case, pipeline: Pipeline, module: Module) -> dict[str, str]:
    """What the sections say now; checks that the pipeline is honest about changes."""
    try:
        result = pipeline.run(module)
    except HloError as problem:
        return {"refused": _commented(problem.render().splitlines())}
    output = module.to_text()
    assert result.changed == (output != case.input)
    remarks = _commented(r for run in result.passes for r in run.remarks)
    if "schedule" in case.sections:
        found = {"schedule": schedule_text(module)}
        remarks = remarks if "remarks" in case.sections else ""
        assert _unordered(module) == _unordered(case.module())
    else:
        found = {"output": output if output != case.input else _UNCHANGED}
    return found | ({"remarks": remarks} if remarks else {})


def _unordered(module: Module) -> list[str]:
    """What the module says below its header, whatever the order."""
    return sorted(module.to_canonical_text().splitlines()[1:])


def check_case(path: pathlib.Path, *, update: bool) -> Module | None:
    """Run a case and everything that holds for all cases; or write what came out.

    Returns the module that the pipeline made, None where it was refused.
    """
    case = read_case(path)
    pipeline = Pipeline.parse(
        case.head["pipeline"], PassContext(xla_quirks=case.quirks)
    )
    module = case.module()
    sections = _sections(case, pipeline, module)
    if update:
        path.write_text(replace(case, sections=sections).to_text(), encoding="utf-8")
        return None
    assert sections == case.sections
    if "refused" in sections:
        return None
    output = module.to_text()
    again = hlo_passes.parse(output)
    assert again.to_text() == output
    assert hlo_passes.parse(again.to_canonical_text()).to_canonical_text() == (
        again.to_canonical_text()
    )
    if "runs again" not in case.head:
        second = pipeline.run(again)
        assert not second.changed
        assert again.to_text() == output
    return module


def changing_and_leaving(
    paths: Iterable[pathlib.Path],
) -> tuple[Counter[str], Counter[str]]:
    """By pass: how many cases it changes (or refuses), how many it leaves alone."""
    changing: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    for path in paths:
        counter = leaving if read_case(path).changes_nothing else changing
        counter[path.parent.name] += 1
    return changing, leaving
