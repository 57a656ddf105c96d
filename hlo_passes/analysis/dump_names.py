"""The names of XLA's dump files.

    module_0001.jit_step.before_optimizations.txt
    module_0001.jit_step.0003.layout_assignment.after_a.before_b.hlo.pb
    module_0001.jit_step.0017.copy-insertion.after_removing_unnecessary_copies.txt
    module_0001.jit_step.sm_9.0a_gpu_after_optimizations.txt
    module_0002.jit_step.cpu_after_optimizations.txt

Source: openxla/xla `xla/service/dump.cc` (FilenameFor), files of `--xla_dump_to`.
"""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass
from typing import Final

#: A time in front of the name, the module, what it is, and the suffixes.
_NAME: Final = re.compile(
    r"(?:\d+\.)?module_(?P<number>\d+)\.(?P<module>.+?)\."
    r"(?:\d{4}\.(?P<pipeline>.+?)\.after_(?P<after>.+?)(?:\.before_(?P<before>.+?))?"
    r"|(?P<what>(?:(?:sm_[\w.]+_gpu|gfx\w+_gpu|gpu|cpu)_)?"
    r"(?:before_optimizations|after_optimizations|after_spmd_partitioner"
    r"|before_config_assignment)))"
    r"(?:\.hlo)?(?:\.txt|\.pb|\.hlo)?(?:\.gz)?"
)
_AFTER_OPTIMIZATIONS: Final = "after_optimizations"


@dataclass(frozen=True, slots=True)
class DumpName:
    """What the name of a dump file says.

    Attributes:
        number: of the module in its process.
        module: its name.
        after: the pass that has just run, '' for the named stages.
        before: the pass that runs next, '' for the named stages and inside a pass.
        stage: 'before_optimizations', 'cpu_after_optimizations', ...; '' for a dump
            between passes.
    """

    number: int
    module: str
    after: str = ""
    before: str = ""
    stage: str = ""

    @property
    def back_end(self) -> str:
        """The machine of a final module, 'cpu' or 'gpu'; '' elsewhere."""
        if not self.stage.endswith(_AFTER_OPTIMIZATIONS):
            return ""
        head = self.stage.removesuffix(_AFTER_OPTIMIZATIONS).rstrip("_")
        return head.rpartition("_")[2]

    def to_text(self) -> str:
        """'XLA's dump 1, after layout-assignment', with the pass or the stage."""
        where = f"after {self.after}" if self.after else self.stage
        return f"XLA's dump {self.number}, {where}"


def dump_name(path: str) -> DumpName | None:
    """What the name of a file says; None for one that XLA's dumps do not have."""
    found = _NAME.fullmatch(pathlib.PurePath(path).name)
    if found is None:
        return None
    return DumpName(
        int(found["number"]),
        found["module"],
        found["after"] or "",
        found["before"] or "",
        found["what"] or "",
    )
