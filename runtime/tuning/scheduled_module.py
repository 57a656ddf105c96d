"""Compiles a program for absent GPUs as far as the scheduled module, and no further.

    found = compile_to_schedule(compilation, {"xla_gpu_pipeline_all_gather": "..."})
    found.after      the module as XLA's HLO passes leave it, for the simulator
    found.before     the same before XLA's scheduler, for ours

XLA writes the module right before it makes kernels. What follows costs most of a
compilation and changes no price, so it is left out: XLA reads a file of kernels at that
moment, and one that is none ends the compilation.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.executable import CompilationError

#: Nothing can be measured on an absent GPU.
BASE_OPTIONS: Final[Mapping[str, Any]] = {"xla_gpu_autotune_level": 0}
#: XLA reads it after the last HLO pass, before it makes kernels.
_KERNELS: Final = "xla_gpu_kernel_cache_file"
_NO_KERNELS: Final = b"\xff not a file of kernels"
_SCHEDULER: Final = "latency-hiding-scheduler"
_TRANSFORMATION: Final = "apply-xla-transforms"
_LAST: Final = "post-scheduler-xla-transforms.after_apply-xla-transforms"


@dataclass(frozen=True, slots=True)
class ScheduledModule:
    """What XLA made of a program.

    Attributes:
        before: text of the module that XLA's scheduler received; '' where it did not
            run.
        after: text of the scheduled module.
        seconds: that the compilation took.
        is_last: whether all of XLA's HLO passes ran; else the module is from right
            after the scheduler.
    """

    before: str
    after: str
    seconds: float
    is_last: bool


def compile_to_schedule(
    compilation: Compilation,
    options: Mapping[str, Any],
    *,
    makes_kernels: bool = False,
) -> ScheduledModule:
    """Compile with XLA's flags by name.

    Args:
        compilation: for absent GPUs.
        options: flags of XLA, besides `BASE_OPTIONS` and those of the environment.
        makes_kernels: go on to the end, to measure what leaving it out saves.

    Raises CompilationError R004 where XLA stops before the module is scheduled.
    """
    with (
        dump_folder(f"{_SCHEDULER}|{_TRANSFORMATION}") as dump,
        tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder,
    ):
        given = {**BASE_OPTIONS, **dump.options, **options}
        if not makes_kernels:
            file = pathlib.Path(folder, "kernels")
            file.write_bytes(_NO_KERNELS)
            given[_KERNELS] = str(file)
        began = time.perf_counter()
        failure: CompilationError | None = None
        try:
            compilation.run(given)
        except CompilationError as problem:
            failure = problem
        seconds = time.perf_counter() - began
        last = dump.text_after("after_optimizations.txt")
        after = last or dump.text_after(_LAST)
        after = after or dump.text_after(f"after_{_SCHEDULER}")
        before = dump.text_after(f"before_{_SCHEDULER}")
    if after is None:
        raise failure or CompilationError(
            f"XLA wrote no scheduled dump of {compilation.name}"
        )
    return ScheduledModule(before or "", after, seconds, last is not None)
