"""The process that compiles a program for absent TPUs, with other flags each time.

    stdin   {"function": "train.py:step", "target": "v5e", "topology": "2x4", ...}
    stdout  {"content": "5f...", "machine": "2x4", "release": "0.12.0.1"}
    stdin   {"options": {...}, "folder": "/somewhere", "to_the_end": false}
    stdout  {}                                     schedule.json is there

As `compile_worker`, which has the rest.
"""

from __future__ import annotations

import json
import pathlib

from hlo_passes.runtime import tpu_aot
from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.tpu_program import flags_of, tpu_program
from hlo_passes.runtime.tuning.compile_worker import Fields, serve
from hlo_passes.runtime.tuning.tpu_program import TpuProgram
from hlo_passes.runtime.tuning.tpu_schedule import (
    compile_to_the_end,
    compile_to_tpu_schedule,
)

SCHEDULE_FILE = "schedule.json"


class _Worker:
    """What the first request says about all others."""

    program: TpuProgram

    def trace(self, request: Fields) -> Compilation:
        self.program = TpuProgram(**{**request, "flags": tuple(request["flags"])})
        tpu_aot.require_library(self.program.target)
        tpu_aot.require_passes_in_tpu_compilations()
        tpu_aot.ask_for_log()
        program = self.program
        return tpu_program(program.function, program.grid, program.arguments)

    def compile(self, compilation: Compilation, request: Fields) -> Fields:
        run = compile_to_the_end if request["to_the_end"] else compile_to_tpu_schedule
        options = {**flags_of(self.program.flags), **request["options"]}
        found = run(compilation, self.program.grid, options)
        file = pathlib.Path(request["folder"], SCHEDULE_FILE)
        file.write_text(json.dumps(found.to_json()))
        return {}


if __name__ == "__main__":
    worker = _Worker()
    serve(worker.trace, worker.compile)
