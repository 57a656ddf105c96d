"""A folder of XLA's dumps, `XLA_FLAGS=--xla_dump_to=DIR`, in the place of a file.

    file_of_dump("dump")                             its module after optimizations
    file_of_dump("dump", Choice("jit_step"))         of several the one of that name
    file_of_dump("dump", Choice("4", "partitioned")) number 4, after the partitioner

A folder holds every module that a process compiled, each at some stages, as text, as
proto, or as both. Text is taken where there is both, because it is read without JAX;
it leaves out large constants, so who runs a module prefers the proto.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.dump_names import DumpName, dump_name
from hlo_passes.errors import UsageError, nearest
from hlo_passes.module_form import PROTO, form_of
from hlo_passes.whole_numbers import whole_number

_BEFORE: Final = "before_optimizations"
_CONFIGURED: Final = "before_config_assignment"
_PARTITIONED: Final = "after_spmd_partitioner"
_FINAL: Final = "after_optimizations"
#: The pass whose dump is that stage where XLA did not dump the stage itself.
_PARTITIONER: Final = "spmd-partitioning"
#: What our own commands call XLA's stages.
_OTHER_NAMES: Final = {
    "partitioned": _PARTITIONED,
    "scheduled": _FINAL,
    "gpu_scheduled": _FINAL,
}
#: Modules that an error lists.
_MOST_LISTED: Final = 40
_UNITS: Final = ((1 << 20, "MiB"), (1 << 10, "KiB"))
#: Between a module's file name and the reports that XLA writes beside it.
_REPORTS: Final = ("-memory-usage-report.txt",)
_TOTAL: Final = re.compile(
    r"Memory Space: default \(color=0\)\nTotal bytes: ([0-9]{1,18}) "
)
_ENDINGS: Final = re.compile(r"(?:\.hlo)?(?:\.txt|\.pb|\.hlo)(?:\.gz)?\Z")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which module of a folder, by name or number, and at which stage; '' for any."""

    module: str = ""
    stage: str = ""
    prefers_proto: bool = False


@dataclass(frozen=True, slots=True)
class DumpedStage:
    """One stage of one module.

    Attributes:
        name: what the file's name says.
        step: its number among the dumps between passes, -1 for the named stages.
        files: text or proto of the module, or both.
    """

    name: DumpName
    step: int
    files: tuple[pathlib.Path, ...]

    @property
    def label(self) -> str:
        """'after spmd-partitioning', 'cpu_after_optimizations'."""
        return self.name.stage or f"after {self.name.after}"

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the stages of a module as the compiler reaches them."""
        stage = self.name.stage
        if stage.endswith(_FINAL):
            return (4, 0)
        named = {_BEFORE: 0, _CONFIGURED: 1, _PARTITIONED: 2}
        return (named.get(stage, 3), self.step)

    def answers(self, wanted: str) -> bool:
        """Whether this is a stage of that name, or the result of that pass."""
        plain = _plain(wanted)
        plain = _OTHER_NAMES.get(plain, plain)
        if (number := whole_number(wanted)) is not None:
            return self.step == number
        stage, after = self.name.stage, _plain(self.name.after)
        if plain == _PARTITIONED and after == _plain(_PARTITIONER):
            return True
        return plain in (stage, after) or (plain == _FINAL and stage.endswith(_FINAL))

    def file(self, *, prefers_proto: bool = False) -> pathlib.Path:
        """The text, or the proto if it is preferred or there is no text."""
        wanted = [f for f in self.files if (form_of(str(f)) == PROTO) == prefers_proto]
        return (wanted or self.files)[0]


@dataclass(slots=True)
class DumpedModule:
    """One module of a folder.

    Attributes:
        number: of the module in its process.
        name: its name.
        stages: in the order in which the compiler reaches them.
    """

    number: int
    name: str
    stages: list[DumpedStage] = field(default_factory=list)

    def stage(self, wanted: str) -> DumpedStage:
        """The last one that answers to a name; the last one of all for ''.

        Raises UsageError U052 if there is none.
        """
        found = [s for s in self.stages if not wanted or s.answers(wanted)]
        if found:
            return found[-1]
        labels = list(dict.fromkeys(s.label for s in self.stages))
        raise UsageError(
            f"--stage={wanted}: module {self.number} ({self.name}) has no such dump",
            code="U052",
            hint=nearest(wanted, labels)
            or f"it has {', '.join(labels[:_MOST_LISTED])}",
        )

    def to_text(self) -> str:
        """'4  jit_step  before_optimizations, cpu_after_optimizations, 12.3 KiB'."""
        labels = [s.label for s in self.stages if s.name.stage]
        between = len(self.stages) - len(labels)
        if between:
            labels.append(f"{between} between passes")
        size = _size_text(self.stages[-1].file().stat().st_size)
        return f"{self.number:4}  {self.name}  {', '.join(labels)}, {size}"


def is_folder(path: str) -> bool:
    """Whether a path is a folder, hence a dump or a mistake."""
    return os.path.isdir(path)


def dumped_modules(folder: str) -> list[DumpedModule]:
    """The modules of a folder, by number.

    Raises UsageError U001 if it cannot be read, U050 if no file is one of XLA's dumps.
    """
    found: dict[tuple[int, str], dict[tuple[str, str, str, int], list[str]]] = {}
    names: dict[tuple[str, str, str, int], DumpName] = {}
    try:
        listed = sorted(os.listdir(folder))
    except OSError as problem:
        raise UsageError(f"cannot read {folder}: {problem}", code="U001") from problem
    for file in listed:
        name = dump_name(file)
        if name is None or not _ENDINGS.search(file):
            continue
        key = (name.stage, name.after, name.before, _step_of(file))
        names[key] = name
        stages = found.setdefault((name.number, name.module), {})
        stages.setdefault(key, []).append(file)
    if not found:
        raise UsageError(
            f"{folder} is a folder without dumps of XLA",
            code="U050",
            hint="give a file, or a folder that XLA_FLAGS=--xla_dump_to=DIR filled "
            "(module_0001.jit_step.before_optimizations.txt, ...)",
        )
    modules = []
    for (number, module), stages in sorted(found.items()):
        made = [
            DumpedStage(
                names[key], key[3], tuple(pathlib.Path(folder, f) for f in files)
            )
            for key, files in stages.items()
        ]
        modules.append(DumpedModule(number, module, sorted(made, key=lambda s: s.rank)))
    return modules


def file_of_dump(folder: str, choice: Choice | None = None) -> str:
    """The file of one module at one stage.

    Raises UsageError U001 and U050 as `dumped_modules`, U051 if the choice fits several
    modules or none, U052 if the module was not dumped at that stage.
    """
    choice = choice or Choice()
    module = _chosen(folder, dumped_modules(folder), choice.module)
    stage = module.stage(choice.stage)
    return str(stage.file(prefers_proto=choice.prefers_proto))


def _chosen(folder: str, modules: Sequence[DumpedModule], wanted: str) -> DumpedModule:
    if (number := whole_number(wanted)) is not None:
        found = [m for m in modules if m.number == number]
    elif wanted:
        found = [m for m in modules if m.name == wanted]
        found = found or [m for m in modules if m.name == f"jit_{wanted}"]
    else:
        found = list(modules)
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"--module={wanted}: {folder} has no such module"
    elif wanted:
        what = f"--module={wanted}: {folder} has {len(found)} of that name"
    else:
        what = f"{folder} holds {len(found)} modules"
    shown = (found or modules)[:_MOST_LISTED]
    lines = [m.to_text() for m in shown]
    if more := len(found or modules) - len(shown):
        lines.append(f"... {more} more")
    raise UsageError(
        what,
        code="U051",
        hint="\n    ".join(
            ("choose one with --module=NAME or --module=NUMBER:", *lines)
        ),
    )


def assigned_bytes(path: str) -> int | None:
    """What XLA's buffer assignment takes of the device for a dumped module, if said.

    It is in the report that XLA writes beside the module's text.
    """
    if dump_name(path) is None:
        return None
    stem = _ENDINGS.sub("", path)
    for ending in _REPORTS:
        try:
            text = pathlib.Path(stem + ending).read_text("utf-8", "replace")
        except OSError:
            continue
        found = _TOTAL.search(text)
        if found is not None:
            return int(found[1])
    return None


def _step_of(file: str) -> int:
    found = re.search(r"\.(\d{4})\.[^.]", file)
    return int(found[1]) if found else -1


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _size_text(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
