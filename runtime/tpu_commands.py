"""`lower` and `compile` with a TPU as their target: arguments, and what is printed.

hlo-passes lower model.py:step --target=v5e --topology=2x4 --write-costs=costs.json
hlo-passes compile model.py:step --target=v5e --topology=2x4 --flag=xla_tpu_...=true
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
from hlo_passes.progress import say

if TYPE_CHECKING:
    from hlo_passes.runtime.tpu_aot import Grid
    from hlo_passes.runtime.tpu_program import CompiledForTpu
    from hlo_passes.scheduler.tpu.comparison import Compared

#: Arguments of TPUs alone, and those that say something about GPUs.
_OF_TPUS: Final = {
    "slices": "--slices",
    "flag": "--flag",
    "write_costs": "--write-costs",
}
_OF_GPUS: Final = {
    "hosts": "--hosts",
    "gpus_per_host": "--gpus-per-host",
    "devices": "--devices",
    "costs": "--costs",
    "estimator": "--estimator",
    "profile": "--profile",
    "html": "--html",
}


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


def _grid_of(arguments: argparse.Namespace) -> Grid:
    """The chips that are asked for; UsageError U026 for arguments of GPUs."""
    from hlo_passes.runtime.tpu_aot import grid_to_compile_for

    for name, spelled in _OF_GPUS.items():
        if getattr(arguments, name, None):
            raise UsageError(
                f"{spelled} is for GPUs, and --target={arguments.target} is a TPU",
                code="U026",
                hint="--topology=2x4 says how many chips, --slices how many grids",
            )
    return grid_to_compile_for(
        arguments.target, arguments.topology, arguments.slices or 1
    )


def lower_for_chips(arguments: argparse.Namespace) -> int:
    """`hlo-passes lower --target=v5e`."""
    from hlo_passes.runtime.tpu_aot import require_passes_in_tpu_compilations
    from hlo_passes.runtime.tpu_program import FINAL, compile_for_tpu, lower_for_tpu

    grid = _grid_of(arguments)
    if arguments.passes:
        require_passes_in_tpu_compilations()
        raise UsageError(
            "--passes is not for TPUs yet",
            code="U026",
            hint="lower with --stage=tpu-before-scheduler, then hlo-passes opt",
        )
    if not arguments.write_costs:
        module = lower_for_tpu(
            arguments.function,
            grid,
            stage=arguments.stage,
            arguments=arguments.args,
            flags=arguments.flag,
        )
        write_text(arguments.output, module_contents(arguments.output, module))
        return ExitCode.DONE
    check_outputs(arguments.output, arguments.write_costs)
    compiled = compile_for_tpu(
        arguments.function,
        grid,
        arguments=arguments.args,
        flags=arguments.flag,
        with_log=True,
    )
    module = compiled.module(arguments.stage or FINAL)
    write_texts(
        (arguments.write_costs, _costs_text(compiled)),
        (arguments.output, module_contents(arguments.output, module)),
    )
    return ExitCode.DONE


def _costs_text(compiled: CompiledForTpu) -> str:
    return json.dumps(compiled.costs().to_json(), indent=1, sort_keys=True) + "\n"


def compile_for_chips(arguments: argparse.Namespace) -> int:
    """`hlo-passes compile --target=v5e`: the compiler's schedule and ours."""
    from hlo_passes.runtime.tpu_program import SCHEDULED, compile_for_tpu
    from hlo_passes.scheduler.tpu.comparison import compare_schedules

    grid = _grid_of(arguments)
    if arguments.passes != "latency-hiding-scheduler":
        raise UsageError(
            f"--passes={arguments.passes} is not for TPUs yet",
            code="U026",
            hint="the latency-hiding scheduler is compared with XLA:TPU's",
        )
    check_outputs(None, arguments.output or "", arguments.write_costs or "")
    compiled = compile_for_tpu(
        arguments.function,
        grid,
        arguments=arguments.args,
        flags=arguments.flag,
        with_log=True,
    )
    compared = None
    if compiled.log.rounds:
        compared = compare_schedules(
            compiled.module("tpu-before-scheduler"),
            compiled.module(SCHEDULED),
            compiled.costs(),
            compiled.log,
        )
    outputs: list[tuple[str, str | bytes]] = []
    if arguments.write_costs:
        outputs.append((arguments.write_costs, _costs_text(compiled)))
    if arguments.output:
        final = compiled.module("tpu-final")
        outputs.append((arguments.output, module_contents(arguments.output, final)))
    write_texts(*outputs)
    if arguments.json:
        sys.stdout.write(json.dumps(_view(compiled, compared), indent=1) + "\n")
    else:
        say(_text(arguments.function, compiled, compared))
    return ExitCode.DONE


def _view(compiled: CompiledForTpu, compared: Compared | None) -> dict[str, Any]:
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
    return view


def _text(function: str, compiled: CompiledForTpu, compared: Compared | None) -> str:
    from hlo_passes.runtime.tpu_program import library_version

    grid = compiled.grid
    chips = f"{grid.slices} x {grid.text}" if grid.slices > 1 else grid.text
    head = (
        f"{function} for {grid.part.name} {chips}, libtpu {library_version()}: "
        f"compiled in {compiled.seconds:.1f} s; nothing ran on a TPU\n"
    )
    if compared is None:
        return (
            head + "XLA:TPU's scheduler had nothing to do: no asynchronous operation\n"
        )
    return head + compared.to_text()
