"""`lower` and `compile` with a TPU as their target: arguments, and what is printed.

hlo-passes lower model.py:step --target=v5e --topology=2x4 --write-costs=costs.json
hlo-passes compile model.py:step --target=v5e --topology=2x4 --flag=xla_tpu_...=true
hlo-passes compile model.py:step --target=v5e --passes=schedule-improver
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.cli.command import positive
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import check_outputs, write_text, write_texts
from hlo_passes.module_form import module_contents
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.progress import say

if TYPE_CHECKING:
    from hlo_passes.runtime.tpu_aot import Grid
    from hlo_passes.runtime.tpu_handed_over import HandedToTpu
    from hlo_passes.runtime.tpu_program import CompiledForTpu
    from hlo_passes.scheduler.tpu.comparison import Compared

#: Arguments of TPUs alone, and those that say something about GPUs.
_OF_TPUS: Final = {
    "slices": "--slices",
    "flag": "--flag",
    "write_costs": "--write-costs",
}
_STAGES_OF_TPUS: Final = "tpu-"
_OF_GPUS: Final = {
    "hosts": "--hosts",
    "gpus_per_host": "--gpus-per-host",
    "devices": "--devices",
    "costs": "--costs",
    "estimator": "--estimator",
    "profile": "--profile",
    "html": "--html",
}
#: What a TPU has in place of an argument of GPUs; prices are those of its compiler.
_GRID: Final = "--topology=2x4 says how many chips, --slices how many grids"
_INSTEAD: Final = {
    "hosts": _GRID,
    "gpus_per_host": _GRID,
    "devices": _GRID,
    "html": "`lower --write-costs=FILE -o step.hlo` and then `simulate step.hlo "
    "--costs=FILE --html=PAGE` make a page",
}
_COMPILER_PRICES: Final = (
    "leave it out: the TPU's compiler gives the prices; --flag=NAME=VALUE changes what "
    "it does"
)


def add_tpu_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only a TPU as the target understands."""
    parser.add_argument(
        "--slices", type=positive, metavar="N", help="for a TPU: so many grids of chips"
    )
    parser.add_argument(
        "--flag", action="append", default=[], metavar="NAME=VALUE",
        help="for a TPU: a flag of its compiler, as xla_tpu_...=true; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--write-costs", metavar="FILE",
        help="for a TPU: the costs of the compiler's scheduler, for --costs",
    )  # fmt: skip


def refuse_tpu_arguments(arguments: argparse.Namespace) -> None:
    """UsageError U026 for an argument of TPUs with another target."""
    for name, spelled in _OF_TPUS.items():
        if getattr(arguments, name, None):
            raise UsageError(
                f"{spelled} is for a TPU",
                code="U026",
                hint="as in --target=v5e --topology=2x4",
            )
    stage = getattr(arguments, "stage", None) or ""
    if stage.startswith(_STAGES_OF_TPUS):
        raise UsageError(
            f"--stage={stage} is for a TPU",
            code="U026",
            hint="as in --target=v5e --topology=2x4",
        )


def refuse_gpu_arguments(arguments: argparse.Namespace) -> None:
    """UsageError U026 for an argument of GPUs with a TPU as the target."""
    for name, spelled in _OF_GPUS.items():
        if getattr(arguments, name, None):
            raise UsageError(
                f"{spelled} is for GPUs, and --target={arguments.target} is a TPU",
                code="U026",
                hint=_INSTEAD.get(name, _COMPILER_PRICES),
            )


def _grid_of(arguments: argparse.Namespace) -> Grid:
    """The chips that are asked for; UsageError U026 for arguments of GPUs."""
    from hlo_passes.runtime.tpu_aot import grid_to_compile_for

    refuse_gpu_arguments(arguments)
    return grid_to_compile_for(
        arguments.target, arguments.topology, arguments.slices or 1
    )


def lower_for_chips(arguments: argparse.Namespace) -> int:
    """`hlo-passes lower --target=v5e`."""
    from hlo_passes.runtime.tpu_program import (
        FINAL,
        TPU_STAGES,
        compile_for_tpu,
        lower_for_tpu,
    )

    grid = _grid_of(arguments)
    if not arguments.write_costs and not arguments.passes:
        module = lower_for_tpu(
            arguments.function,
            grid,
            stage=arguments.stage,
            arguments=arguments.args,
            flags=arguments.flag,
        )
        write_text(arguments.output, module_contents(arguments.output, module))
        return ExitCode.DONE
    asked = "--passes" if arguments.passes else "--write-costs"
    stage = arguments.stage or FINAL
    if not stage.startswith(_STAGES_OF_TPUS):
        raise UsageError(
            f"{asked} does not go with --stage={stage}",
            code="U026",
            hint="the compiler's scheduler, its costs and the passes come later: ask "
            f"for one of {', '.join(TPU_STAGES)}",
        )
    check_outputs(arguments.output, arguments.write_costs or "")
    if arguments.passes:
        both = _handed_over(arguments, grid)
        alone, compiled = both.alone, both.ours
    else:
        compiled = alone = compile_for_tpu(
            arguments.function,
            grid,
            arguments=arguments.args,
            flags=arguments.flag,
            with_log=True,
        )
    module = compiled.module(stage)
    outputs: list[tuple[str, str | bytes]] = []
    if arguments.write_costs:
        outputs.append((arguments.write_costs, _costs_text(alone)))
    outputs.append((arguments.output, module_contents(arguments.output, module)))
    write_texts(*outputs)
    return ExitCode.DONE


def _handed_over(arguments: argparse.Namespace, grid: Grid) -> HandedToTpu:
    """`lower --passes`: compiled alone for the costs, and with the passes inside."""
    from hlo_passes.runtime.tpu_handed_over import compile_alone_for_tpu, hand_to_tpu
    from hlo_passes.runtime.tpu_program import TPU_STAGES

    if arguments.stage not in (None, *TPU_STAGES):
        raise UsageError(
            "--passes run inside a complete compilation for TPUs",
            code="U026",
            hint=f"--stage is one of {', '.join(TPU_STAGES)}, or left out",
        )
    Pipeline.parse(arguments.passes)  # refuse it before XLA compiles
    alone = compile_alone_for_tpu(
        arguments.function, grid, arguments=arguments.args, flags=arguments.flag
    )
    stage = arguments.passes_stage or "post-scheduler"
    return hand_to_tpu(alone, passes=arguments.passes, stage=stage)


def _costs_text(compiled: CompiledForTpu) -> str:
    return json.dumps(compiled.costs().to_json(), indent=1, sort_keys=True) + "\n"


def compile_for_chips(arguments: argparse.Namespace) -> int:
    """`hlo-passes compile --target=v5e`: the compiler alone, and with passes inside.

    Our scheduler is also compared with the compiler's, on what the latter got.
    """
    from hlo_passes.runtime.tpu_handed_over import (
        compile_alone_for_tpu,
        hand_to_tpu,
        needs_costs,
    )
    from hlo_passes.runtime.tpu_program import SCHEDULED
    from hlo_passes.scheduler.tpu.comparison import compare_schedules

    grid = _grid_of(arguments)
    pipeline = Pipeline.parse(arguments.passes)  # refuse it before XLA compiles
    check_outputs(None, arguments.output or "", arguments.write_costs or "")
    alone = compile_alone_for_tpu(
        arguments.function, grid, arguments=arguments.args, flags=arguments.flag
    )
    compiled = alone.compiled
    compared = both = None
    if compiled.log.rounds:
        compared = compare_schedules(
            compiled.module("tpu-before-scheduler"),
            compiled.module(SCHEDULED),
            compiled.costs(),
            compiled.log,
        )
    # Without anything asynchronous there are no costs, and nothing to order.
    if compared is not None or not needs_costs(pipeline):
        both = hand_to_tpu(alone, passes=arguments.passes, stage=arguments.stage)
    outputs: list[tuple[str, str | bytes]] = []
    if arguments.write_costs:
        outputs.append((arguments.write_costs, _costs_text(compiled)))
    if arguments.output:
        final = (both.ours if both else compiled).module("tpu-final")
        outputs.append((arguments.output, module_contents(arguments.output, final)))
    write_texts(*outputs)
    if arguments.json:
        view = _view(compiled, compared, both)
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
    else:
        say(_text(arguments.function, compiled, compared, both))
    return ExitCode.DONE


def _view(
    compiled: CompiledForTpu, compared: Compared | None, both: HandedToTpu | None
) -> dict[str, Any]:
    grid = compiled.grid
    view: dict[str, Any] = {
        "target": grid.part.name,
        "topology": grid.text,
        "slices": grid.slices,
        "tensorcore_mhz": compiled.log.mhz,
        "flags": dict(compiled.flags),
        "seconds": compiled.seconds,
        "xla_statistics": compiled.log.statistics,
    }
    if compared is not None:
        view |= compared.to_json()
    if both is not None:
        view["inside"] = both.to_json()
    return view


def _text(
    function: str,
    compiled: CompiledForTpu,
    compared: Compared | None,
    both: HandedToTpu | None,
) -> str:
    from hlo_passes.runtime.tpu_program import library_version

    grid = compiled.grid
    chips = f"{grid.slices} x {grid.text}" if grid.slices > 1 else grid.text
    head = (
        f"{function} for {grid.part.name} {chips}, libtpu {library_version()}: "
        f"compiled in {compiled.seconds:.1f} s; nothing ran on a TPU\n"
    )
    nothing = "XLA:TPU's scheduler had nothing to do: no asynchronous operation\n"
    text = head + (nothing if compared is None else compared.to_text())
    return text if both is None else text + both.to_text()
