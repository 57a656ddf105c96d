"""`hlo-passes tune` for absent TPUs: which levers to set, and what they give.

hlo-passes tune train.py:step --target=v5e --topology=2x4
hlo-passes tune train.py:step --target=v6e --flag=xla_tpu_...=true --output=flags.env
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.progress import show_progress
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.tpu_aot import require_library
from hlo_passes.runtime.tpu_commands import refuse_gpu_arguments
from hlo_passes.runtime.tpu_program import flags_of, library_version
from hlo_passes.runtime.tuning.searching import searched
from hlo_passes.runtime.tuning.tpu_evaluation import FLAGS_VARIABLE, TpuEvaluator
from hlo_passes.runtime.tuning.tpu_program import TpuProgram
from hlo_passes.scheduler.simulation.arguments import rules_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.store import Store
from hlo_passes.scheduler.tuning.tpu_facts import tpu_choices_for, tpu_facts_of
from hlo_passes.scheduler.tuning.tpu_result import Recompiled, TpuTuneResult

_MODEL: Final = "costs: tpu-log"


def tune_for_chips(arguments: argparse.Namespace, began: float) -> TpuTuneResult:
    """Search with XLA:TPU for every combination.

    Raises:
        UsageError: U026 for arguments of GPUs, U250 to U252 for chips and flags.
        NoTpuCompilerError: R007.
        CompilationError: R004, XLA refuses the program, or has no statistic of it.
    """
    refuse_gpu_arguments(arguments)
    for name in ("also", "html", "write_costs"):
        if getattr(arguments, name, None):
            spelled = name.replace("_", "-")
            raise UsageError(
                f"--{spelled} of tune is not for TPUs",
                code="U026",
                hint="--json has every combination, --flag sets flags for all of them",
            )
    program = TpuProgram(
        arguments.function,
        arguments.args,
        arguments.target,
        arguments.topology,
        arguments.slices or 1,
        tuple(arguments.flag),
    )
    grid, given_options = program.grid, flags_of(program.flags)
    require_library(arguments.target)
    store = Store.default() if arguments.cache is None else Store(arguments.cache)
    show_progress("tune: tracing the program" if sys.stderr.isatty() else "")
    evaluator = TpuEvaluator(
        program, Rules(), store, arguments.executor, arguments.processes
    )
    try:
        # The program as it is says which levers may matter.
        nothing = evaluator.nothing
        first = evaluator.baseline()
        if first.problem or not first.module:
            raise CompilationError(first.problem or "XLA:TPU scheduled nothing")
        module = evaluator.module(nothing)
        evaluator.rules = rules_of(arguments, module)
        choices = tpu_choices_for(tpu_facts_of(module), grid.part.name)
        device_bytes = grid.part.hbm_bytes // grid.part.devices_per_chip
        limit = arguments.memory or device_bytes
        search = searched(
            arguments,
            choices.settings,
            evaluator,
            memory_bytes=limit,
            nothing=nothing,
        )
        # The best again from its flags alone.
        recompiled: Recompiled | None = None
        given = [f"--{name}={_spelled(value)}" for name, value in given_options.items()]
        from_environment = os.environ.get(FLAGS_VARIABLE, "").strip()
        given_flags = " ".join(filter(None, (from_environment, *given)))
        if search.best and not search.interrupted:
            show_progress("tune: compiling the best to the end")
            try:
                recompiled = evaluator.alone(search.best, given_flags)
            except KeyboardInterrupt:
                search.interrupted = True
        chips = grid.slices * math.prod(map(int, grid.text.split("x")))
        devices = chips * grid.part.devices_per_chip
        slices = f"{grid.slices} x " if grid.slices > 1 else ""
        return TpuTuneResult(
            name=arguments.function,
            machine=f"{grid.part.name} {slices}{grid.text} ({devices} devices)",
            model=_MODEL,
            release=evaluator.release,
            search=search,
            dropped=choices.dropped,
            given_flags=given_flags,
            is_compiled=True,
            pipelines={},
            compilations=evaluator.compilations,
            seconds=time.monotonic() - began,
            remarks=search.tried[nothing].remarks,
            libtpu=library_version(),
            chip_bytes=device_bytes,
            given_options=given_options,
            recompiled=recompiled,
        )
    finally:
        evaluator.close()
        show_progress("")


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
