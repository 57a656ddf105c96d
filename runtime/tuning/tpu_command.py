"""`hlo-passes tune` for absent TPUs: which levers to set, and what they give.

hlo-passes tune train.py:step --target=v5e --topology=2x4
hlo-passes tune train.py:step --target=v6e --flag=xla_tpu_...=true --output=flags.env
"""

from __future__ import annotations

import argparse
import math
import os
from functools import partial
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.progress import show_progress
from hlo_passes.runtime.tpu_aot import FLAGS_VARIABLE, require_library
from hlo_passes.runtime.tpu_commands import refuse_gpu_arguments
from hlo_passes.runtime.tpu_program import flags_of, library_version
from hlo_passes.runtime.tuning.compiled_tuning import (
    compiled_first,
    compiled_result,
    evaluating,
)
from hlo_passes.runtime.tuning.searching import searched
from hlo_passes.runtime.tuning.tpu_evaluation import TpuEvaluator
from hlo_passes.runtime.tuning.tpu_program import TpuProgram
from hlo_passes.scheduler.simulation.rules import Rules
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
    for name in ("also", "plug_in", "html", "write_costs"):
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
    with evaluating(partial(TpuEvaluator, program, Rules()), arguments) as evaluator:
        _, module = compiled_first(evaluator, arguments)
        choices = tpu_choices_for(tpu_facts_of(module), grid.part.name)
        device_bytes = grid.part.device_bytes
        search = searched(
            arguments,
            choices.settings,
            evaluator,
            memory_bytes=arguments.memory or device_bytes,
            nothing=evaluator.nothing,
            then="the best and the baseline are compiled to the end",
        )
        # The best again from its flags alone.
        recompiled: Recompiled | None = None
        given = [f"--{name}={_spelled(value)}" for name, value in given_options.items()]
        from_environment = os.environ.get(FLAGS_VARIABLE, "").strip()
        given_flags = " ".join(filter(None, (from_environment, *given)))
        if search.best and not search.interrupted:
            show_progress(
                "tune: compiling the best and the baseline to the end, which may take "
                "minutes; Ctrl-C tells what is known without it"
            )
            try:
                recompiled = evaluator.alone(search.best, given_flags)
            except KeyboardInterrupt:
                search.interrupted = True
        chips = grid.slices * math.prod(map(int, grid.text.split("x")))
        devices = chips * grid.part.devices_per_chip
        slices = f"{grid.slices} x " if grid.slices > 1 else ""
        return TpuTuneResult(
            **compiled_result(evaluator, search, choices, began),
            machine=f"{grid.part.name} {slices}{grid.text} ({devices} devices)",
            model=_MODEL,
            given_flags=given_flags,
            libtpu=library_version(),
            chip_bytes=device_bytes,
            given_options=given_options,
            recompiled=recompiled,
        )


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
