"""The process that compiles a program again and again, with other flags each time.

    stdin   {"function": "train.py:step", "target": "h100_sxm", "hosts": 2, ...}
    stdout  {"content": "5f...", "machine": "2x1x8", "release": "0.12.0.1"}
    stdin   {"options": {...}, "folder": "/somewhere", "makes_kernels": false,
             "installed": null or {"passes": ..., "stage": ..., "target": ...}}
    stdout  {"seconds": 1.9, "is_last": true}      before.hlo and after.hlo are there

The program is traced once. An error is {"error": TEXT, "code": EXIT CODE}. It is called
as `python -m hlo_passes.runtime.tuning.compile_worker`; what the program itself prints
goes to stderr.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax

from hlo_passes.errors import HloError
from hlo_passes.exit_codes import exit_code_of
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.handed_over import install_for_gpu
from hlo_passes.runtime.lower_file import gpu_program
from hlo_passes.runtime.own_frames import leave_out_frames_of_the_command
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.runtime.tuning.scheduled_module import compile_to_schedule

Fields = dict[str, Any]
_Answer = Callable[[Fields], None]


def _answers() -> _Answer:
    """Take stdout for the answers; what anybody else prints goes to stderr."""
    own = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The answers end when `told_if_ended` has told why this process did.
    os.set_inheritable(own.fileno(), True)

    def answer(fields: dict[str, Any]) -> None:
        own.write(json.dumps(fields) + "\n")
        own.flush()

    return answer


def _trace(request: Fields) -> Compilation:
    program = Program(**request)
    return gpu_program(program.function, program.on, program.arguments)


def _traced(compilation: Compilation) -> Fields:
    """What to answer of a program that was traced: the fields of `Traced`."""
    return {
        "content": hashlib.sha256(compilation.stablehlo().encode()).hexdigest(),
        "machine": compilation.machine,
        "release": jax.__version__,
    }


def _compile(compilation: Compilation, request: Fields) -> Fields:
    installed = request["installed"]
    with contextlib.ExitStack() as until_compiled:
        if installed is not None:
            on = Pricing(target=installed["target"], topology=compilation.machine)
            passes, stage = installed["passes"], installed["stage"]
            until_compiled.enter_context(install_for_gpu(passes, stage=stage, on=on))
        found = compile_to_schedule(
            compilation, request["options"], makes_kernels=request["makes_kernels"]
        )
    folder = pathlib.Path(request["folder"])
    (folder / "before.hlo").write_text(found.before)
    (folder / "after.hlo").write_text(found.after)
    return {"seconds": found.seconds, "is_last": found.is_last}


def serve(
    trace: Callable[[Fields], Compilation],
    compile_once: Callable[[Compilation, Fields], Fields],
) -> None:
    """Answer requests until stdin ends: trace the first one, compile the others.

    Args:
        trace: the program that a request names.
        compile_once: as a request says; what to answer.
    """
    answer = _answers()
    compilation: Compilation | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if compilation is None:
                leave_out_frames_of_the_command()
                compilation = trace(request)
                fields = _traced(compilation)
            else:
                fields = compile_once(compilation, request)
        except HloError as problem:
            fields = {
                "error": problem.render(),
                "message": problem.message,
                "code": exit_code_of(problem),
            }
        answer(fields)


if __name__ == "__main__":
    serve(_trace, _compile)
