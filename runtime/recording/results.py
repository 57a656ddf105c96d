"""What was captured: a row for each module, its HLO, the index, the table.

captured 2 modules in captured: 3 compilations, 1.2 s, in 1 Python process
  module      devices  compiled  seconds  collectives  file
  jit_step          8         2     1.10            5  jit_step.hlo
  jit_init          1         1     0.10            0  jit_init.hlo
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from hlo_passes.analysis.module_state import module_state
from hlo_passes.errors import HloError
from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.module import Module
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.progress import with_progress
from hlo_passes.runtime.capture import STAGES, module_at
from hlo_passes.runtime.devices import MAXIMUM_EMULATED, devices_for, emulate
from hlo_passes.runtime.gpu_aot import gpu_devices, machine_to_compile_for
from hlo_passes.runtime.recording.captured_folder import INDEX
from hlo_passes.runtime.recording.program import Ran
from hlo_passes.runtime.stablehlo_program import StableHloProgram, read_program

_BEFORE, _PARTITIONED, _, _GPU = STAGES
_HEADER: Final = ("module", "devices", "compiled", "seconds", "collectives", "file")
_LEFT: Final = ("module", "file")


@dataclass(frozen=True, slots=True)
class Lowering:
    """What to make of recorded modules.

    Attributes:
        stage: as of `lower`, None for the default.
        target: a GPU, None for emulated devices.
        on: the GPUs.
    """

    stage: str | None
    target: str | None
    on: Pricing

    def check(self) -> None:
        """Refuse what can never be compiled: R007, U026, U200, U225."""
        if self.target is not None:
            on = replace(self.on, target=self.target)
            gpu_devices(self.target, machine_to_compile_for(on))

    def module(self, program: StableHloProgram) -> Module:
        """A recorded module at the stage."""
        stage = self.stage or (_PARTITIONED if self.target is None else _GPU)
        if self.target is None:
            if program.device_count == 1 and stage == _PARTITIONED:
                stage = _BEFORE  # it is the same, and needs no compilation
            devices = devices_for(program.device_count)
            return module_at(program.on(devices), stage)
        on = replace(self.on, target=self.target)
        machine = machine_to_compile_for(on, program.device_count)
        return module_at(program.on(gpu_devices(self.target, machine), machine), stage)


@dataclass(slots=True)
class Row:
    """A module that was recorded; the keys of its object in the index.

    Attributes:
        name: of the module.
        stablehlo: its file.
        hlo: the file of the stage that was asked for, '' if there is none.
        module_state: of that file's module, as `simulate --json` says it.
        devices: that it is for.
        platform: that the program compiled it for.
        compilations: how often XLA got it.
        cached: how many of these JAX found on disk.
        seconds: all compilations together.
        collectives: in `hlo`, None without.
        processes: of the program that compiled it.
        problem: why there is no `hlo`, or what XLA said to the program; '' if nothing.
    """

    name: str
    stablehlo: str
    devices: int
    platform: str
    hlo: str = ""
    module_state: str = ""
    compilations: int = 0
    cached: int = 0
    seconds: float = 0.0
    collectives: int | None = None
    processes: list[int] = field(default_factory=list)
    problem: str = ""

    def add(self, process: int, note: dict[str, Any]) -> None:
        """Count one compilation."""
        self.compilations += 1
        self.cached += note["cached"]
        self.seconds += note["seconds"]
        if process not in self.processes:
            self.processes.append(process)
        self.problem = self.problem or note.get("error", "")


@dataclass(slots=True)
class Captured:
    """Everything that was captured.

    Attributes:
        command: the program and its arguments.
        exit_code: of the program.
        folder: of the modules and the index.
        rows: in the order of their first compilation, process by process.
        pythons: process -> its interpreter, of all that started.
        with_jax: the processes among them that imported JAX.
        problems: what kept us from recording.
    """

    command: Sequence[str]
    exit_code: int
    folder: pathlib.Path
    rows: list[Row] = field(default_factory=list)
    pythons: dict[int, str] = field(default_factory=dict)
    with_jax: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, ran: Ran, command: Sequence[str], folder: pathlib.Path) -> Captured:
        """What the processes of a program noted."""
        found = cls(command, ran.exit_code, folder)
        rows: dict[tuple[str, str], Row] = {}
        for process, note in ran.journal:
            if "python" in note:
                found.pythons[process] = note["python"]
            elif "jax" in note:
                found.with_jax.append(process)
            elif "problem" in note:
                found.problems.append(note["problem"])
            else:
                key = (note["name"], note["digest"])
                if key not in rows:
                    rows[key] = Row(
                        note["name"], note["file"], note["devices"], note["platform"]
                    )
                elif rows[key].stablehlo != note["file"]:
                    # Another process wrote it, too, called from another line.
                    (folder / note["file"]).unlink(missing_ok=True)
                rows[key].add(process, note)
        found.rows = list(rows.values())
        return found

    def lower(self, lowering: Lowering) -> None:
        """Write the HLO of every row; a row that XLA refuses says so."""
        if lowering.target is None and self.rows:
            most = max(row.devices for row in self.rows)
            emulate(min(most, MAXIMUM_EMULATED))
        rows = with_progress(self.rows, len(self.rows), "lowering")
        for row in rows:
            file = self.folder / row.stablehlo
            try:
                module = lowering.module(read_program(str(file)))
            except HloError as problem:
                row.problem = row.problem or problem.message
                continue
            row.hlo = file.with_suffix(".hlo").name
            (self.folder / row.hlo).write_text(module.to_text())
            row.module_state = module_state(module).stage
            row.collectives = sum(
                is_collective(i) for c in module.computations for i in c.instructions
            )

    def write(self) -> None:
        """Write the index."""
        content = {
            "command": list(self.command),
            "exit_code": self.exit_code,
            "python_processes": len(self.pythons),
            "jax_processes": len(self.with_jax),
            "problems": self.problems,
            "modules": [asdict(row) for row in self.rows],
        }
        text = json.dumps(content, indent=1) + "\n"
        (self.folder / INDEX).write_text(text)

    def to_text(self, folder: str) -> str:
        """The table, and what was not recorded; `folder` as the user names it."""
        lines = [self._headline(folder)]
        if self.rows:
            cells = [_HEADER, *map(_cells, self.rows)]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            for each in cells:
                line = "  ".join(
                    cell.ljust(width) if name in _LEFT else cell.rjust(width)
                    for name, cell, width in zip(_HEADER, each, widths, strict=True)
                )
                lines.append(f"  {line}".rstrip())
        lines += [f"  {r.name} ({r.stablehlo}): {r.problem}" for r in self.rows
                  if r.problem]  # fmt: skip
        lines += [f"beware: {problem}" for problem in dict.fromkeys(self.problems)]
        return "\n".join(lines) + "\n"

    def _headline(self, folder: str) -> str:
        if self.rows:
            count = sum(row.compilations for row in self.rows)
            seconds = sum(row.seconds for row in self.rows)
            return (
                f"captured {counted(len(self.rows), 'module')} in {folder}: "
                f"{counted(count, 'compilation')}, {seconds:.1f} s, in "
                f"{counted(len(self.with_jax), 'process')} with JAX"
            )
        if not self.pythons:
            return (
                "captured nothing: the command started no Python that reads PYTHONPATH "
                "(python -I, -E and -S do not)"
            )
        if self.problems:
            return "captured nothing"
        if not self.with_jax:
            return "captured nothing: no process of the command imported JAX"
        return "captured nothing: no module was compiled, or none has such a name"


def _cells(row: Row) -> tuple[str, ...]:
    compiled = str(row.compilations)
    if row.cached:
        compiled += f" ({row.cached} from disk)"
    return (
        row.name, str(row.devices), compiled, f"{row.seconds:.2f}",
        "-" if row.collectives is None else str(row.collectives),
        row.hlo or row.stablehlo,
    )  # fmt: skip
