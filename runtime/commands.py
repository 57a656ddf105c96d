"""The subcommands that need JAX: `hlo-passes run` and `hlo-passes lower`.

hlo-passes run m.hlo --against=rewritten.hlo --seed=1
hlo-passes lower model.py:step --stage=partitioned -o step.hlo
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.analysis.module_state import ModuleState, module_state
from hlo_passes.cli.command import not_negative, own_command, positive
from hlo_passes.cli.pricing import add_host_arguments, pricing_of
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import check_outputs, read_module, require_file, write_text
from hlo_passes.ir.module import Module
from hlo_passes.module_form import check_form, module_contents
from hlo_passes.progress import say
from hlo_passes.runtime.program_option import add_program_arguments
from hlo_passes.runtime.tpu_commands import (
    add_tpu_arguments,
    lower_for_chips,
    refuse_tpu_arguments,
)
from hlo_passes.scheduler.tpu.chips import is_chip

#: How long a device waits for the others in a collective before the run counts as
#: hung, and how long a run may take. The limits are generous: devices share few cores.
_TIMEOUT_SECONDS: Final = 60
_TIME_LIMIT_SECONDS: Final = 3600


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT")
    parser.add_argument("--against", metavar="OTHER", help="a module to compare with")
    for name, what in (("rtol", "relative"), ("atol", "absolute")):
        parser.add_argument(
            f"--{name}", type=not_negative, metavar="X",
            help=f"with --against: {what} tolerance; without both, every bit must be "
            "the same",
        )  # fmt: skip
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--inputs", metavar="FILE.npz", help="arrays for the parameters")
    given.add_argument(
        "--seed", type=int, default=0, help="seed of the generated inputs"
    )
    parser.add_argument("--outputs", metavar="FILE.npz", help="file for the results")
    parser.add_argument("--repeat", type=positive, default=1)
    parser.add_argument(
        "--devices", type=positive, help="number of devices, instead of the module's"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--sync",
        choices=("each", "collectives"),
        help="run step by step, look at the values of each instruction, or of "
        "collectives alone, and name the first that differs",
    )
    parser.add_argument(
        "--timeout-seconds",
        type=positive,
        default=_TIMEOUT_SECONDS,
        help="how long a device may wait in a collective before it counts as a "
        "deadlock",
    )
    parser.add_argument(
        "--time-limit-seconds",
        type=positive,
        default=_TIME_LIMIT_SECONDS,
        help="time limit for the whole run",
    )


def run_module(arguments: argparse.Namespace) -> int:
    """`hlo-passes run`: run a module on emulated devices, perhaps against another."""
    from hlo_passes.runtime import run_process
    from hlo_passes.runtime.devices import topology_of
    from hlo_passes.runtime.memory import bytes_needed, require
    from hlo_passes.runtime.plain.legalize import plain_module
    from hlo_passes.runtime.plain.refusals import require_valid
    from hlo_passes.runtime.work import cpu_seconds_at_least

    # Refuse bad arguments and modules that cannot be run before any device starts.
    if arguments.seed < 0:
        raise UsageError(f"--seed={arguments.seed} is negative", code="U024")
    if arguments.against is None and (arguments.rtol, arguments.atol) != (None, None):
        raise UsageError(
            "--rtol and --atol are for a comparison",
            code="U024",
            hint="--against=OTHER",
        )
    if arguments.sync is not None and arguments.repeat > 1:
        raise UsageError("--sync runs a module once, without --repeat", code="U024")
    check_outputs(None, arguments.outputs or "")
    if arguments.inputs:
        require_file(arguments.inputs)
    module = read_module(arguments.input)
    other = read_module(arguments.against) if arguments.against else None
    for one in (module, other):
        if one is not None:
            require_valid(one)
    topology = topology_of(module, device_count=arguments.devices)
    # Refuse what needs more memory than there is, and collect the collectives for the
    # messages of a timeout.
    collectives = []
    for one in (module, other):
        if one is None:
            continue
        plain = plain_module(one)
        count = topology[0] * topology[1]
        needed = cpu_seconds_at_least(one, count)
        if needed > arguments.time_limit_seconds:
            raise run_process.WorkerError(
                f"{one.name} takes {needed:.0f} s at least on this CPU, "
                f"{arguments.time_limit_seconds} are allowed",
                hint="lower the program with smaller shapes, or set "
                "--time-limit-seconds",
            )
        require(bytes_needed(plain, device_count=count), one.name)
        collectives += plain.collectives
    if other is not None:
        asked = topology_of(other, device_count=arguments.devices)
        if arguments.devices is None:
            _require_same_devices(topology, asked)
    # Run in another process, which can be ended.
    with (
        run_process.ended_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="hlo-passes-run-") as folder,
    ):
        request = _request(arguments, module, other, topology, pathlib.Path(folder))
        answer = run_process.run(
            request,
            collectives,
            timeout_seconds=arguments.timeout_seconds,
            time_limit_seconds=arguments.time_limit_seconds,
        )
    # Print the answer.
    state = module_state(module)
    if arguments.json:
        sys.stdout.write(json.dumps({**answer, **state.to_json()}) + "\n")
    else:
        say(_report(arguments, state, answer))
    parted = answer["steps"] is not None and answer["steps"]["different"]
    return ExitCode.DIFFERENT if answer["matches"] is False or parted else ExitCode.DONE


def _require_same_devices(one: tuple[int, int], other: tuple[int, int]) -> None:
    if one != other:
        raise UsageError(
            f"the modules ask for {one} and {other} replicas and partitions",
            code="U020",
            hint="compare a module with a pass's result for it",
        )


def _request(
    arguments: argparse.Namespace,
    module: Module,
    other: Module | None,
    topology: tuple[int, int],
    folder: pathlib.Path,
) -> Any:
    from hlo_passes.runtime.run_request import Request

    (folder / "module.hlo").write_text(module.to_text())
    if other is not None:
        (folder / "against.hlo").write_text(other.to_text())
    absolute = {
        name: str(pathlib.Path(path).absolute()) if path else None
        for name, path in (("in", arguments.inputs), ("out", arguments.outputs))
    }
    return Request(
        module=str(folder / "module.hlo"),
        name=arguments.input,
        against=str(folder / "against.hlo") if other is not None else None,
        against_name=arguments.against,
        topology=topology,
        inputs=absolute["in"],
        inputs_name=arguments.inputs,
        seed=arguments.seed,
        outputs=absolute["out"],
        repeat=arguments.repeat,
        rtol=arguments.rtol,
        atol=arguments.atol,
        sync=arguments.sync,
        answer=str(folder / "answer.json"),
    )


def _report(
    arguments: argparse.Namespace, state: ModuleState, answer: Mapping[str, Any]
) -> str:
    from hlo_passes.runtime.stepping.report import text_lines

    lines = [
        f"{arguments.input} ({state.summary}): ran on {answer['devices']} emulated "
        f"devices, "
        f"{min(answer['seconds']):.3f} s"
    ]
    not_finite = 0
    for number, output in enumerate(answer["outputs"]):
        line = f"  {number}: {_shape_text(output)} sha256 {output['sha256'][:16]}"
        if output["nan"] or output["infinite"]:
            not_finite += 1
            line += f"  {_not_finite_text(output, answer['devices'])}"
        lines.append(line)
    if answer["matches"] is not None:
        lines += _comparison_lines(arguments, answer)
    if answer["steps"] is not None:
        lines += text_lines(answer["steps"], arguments.input, arguments.against)
    if not_finite:
        count = len(answer["outputs"])
        lines.append(
            f"beware: {not_finite} of {count} outputs have elements that are not finite"
            + (", which say little about equality" if arguments.against else "")
            + "; other inputs: --seed, --inputs"
        )
    return "\n".join(lines) + "\n"


def _shape_text(output: Mapping[str, Any]) -> str:
    return f"{output['dtype']}[{','.join(map(str, output['shape']))}]"


def _not_finite_text(output: Mapping[str, Any], devices: int) -> str:
    elements = math.prod(output["shape"]) * devices
    kinds = [("nan", "NaN"), ("infinite", "infinite")]
    counts = [f"{output[key]} {word}" for key, word in kinds if output[key]]
    share = (output["nan"] + output["infinite"]) / elements
    return f"{' and '.join(counts)} of {elements} elements ({share:.1%})"


def _comparison_lines(
    arguments: argparse.Namespace, answer: Mapping[str, Any]
) -> list[str]:
    """The verdict, and a row for each output that differs."""
    other, rows = arguments.against, answer["differences"]
    if answer["bitwise_equal"]:
        return [f"{other}: every bit is the same"]
    some = f"{len(rows)} of {len(answer['outputs'])} outputs"
    lines = [f"{other}: results differ, in {some}"]
    within = (arguments.rtol, arguments.atol) != (None, None)
    if within:
        limits = f"rtol={arguments.rtol or 0:g}, atol={arguments.atol or 0:g}"
        beyond = sum(row["beyond"] > 0 for row in rows)
        verdict = f"{beyond} of them beyond" if beyond else "all of them within"
        lines = [f"{other}: bits differ in {some}, {verdict} {limits}"]
    table = [["output", "type", "differ", "of", *(["beyond"] if within else [])]]
    table[0] += ["largest error", "relative", "ulp", "not finite on one side"]
    for row in rows:
        cells = [
            str(row["result"]), _shape_text(answer["outputs"][row["result"]]),
            str(row["different"]), str(row["elements"]),
            *([str(row["beyond"])] if within else []),
            *(_figure(row[f"max_{name}_error"]) for name in ("abs", "rel", "ulp")),
            str(row["one_sided"] or "-"),
        ]  # fmt: skip
        table.append(cells)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        texts = [cell.rjust(n) for cell, n in zip(cells, widths, strict=True)]
        lines.append("  " + "  ".join(texts))
    return lines


def _figure(value: float | None) -> str:
    """A figure; None is an infinite one, which JSON does not have."""
    return "inf" if value is None else f"{value:.3g}"


def _configure_lower(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser)
    parser.add_argument(
        "--stage",
        choices=(
            "before-optimizations",
            "partitioned",
            "scheduled",
            "gpu-scheduled",
            "tpu-before-scheduler",
            "tpu-scheduled",
            "tpu-final",
        ),
        help="default: partitioned, or gpu-scheduled with --target, tpu-final for TPUs",
    )
    parser.add_argument(
        "--target",
        help="a GPU or TPU that this machine does not have, such as h100_sxm or v5e",
    )
    add_host_arguments(parser)
    add_tpu_arguments(parser)
    parser.add_argument(
        "--passes", metavar="PIPELINE",
        help="with --target, from jax 0.12 on: run passes inside XLA's compilation",
    )  # fmt: skip
    parser.add_argument(
        "--passes-stage", choices=("pre-scheduler", "post-scheduler"),
        help="stage in that compilation; default: post-scheduler",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="OUT")


def lower_function(arguments: argparse.Namespace) -> int:
    """`hlo-passes lower`: print the module of a program at a stage."""
    from hlo_passes.runtime.lower_file import lower_file

    check_outputs(arguments.output)
    if arguments.passes_stage and not arguments.passes:
        raise UsageError(
            f"--passes-stage={arguments.passes_stage} without --passes",
            code="U026",
            hint="--stage selects the module",
        )
    check_form(arguments.output)
    if is_chip(arguments.target or ""):
        return lower_for_chips(arguments)
    refuse_tpu_arguments(arguments)
    if arguments.passes:
        module = _lower_with_passes(arguments)
    else:
        module = lower_file(
            arguments.function,
            stage=arguments.stage,
            target=arguments.target,
            topology=arguments.topology,
            hosts=arguments.hosts,
            gpus_per_host=arguments.gpus_per_host,
            arguments=arguments.args,
        )
    write_text(arguments.output, module_contents(arguments.output, module))
    return ExitCode.DONE


def _lower_with_passes(arguments: argparse.Namespace) -> Module:
    from hlo_passes.runtime.handed_over import lower_with_passes

    if not arguments.target or arguments.stage not in (None, "gpu-scheduled"):
        raise UsageError(
            "--passes run inside a complete compilation for a GPU",
            code="U026",
            hint="use --target=h100_sxm without --stage; otherwise: hlo-passes opt",
        )
    return lower_with_passes(
        arguments.function,
        passes=arguments.passes,
        stage=arguments.passes_stage or "post-scheduler",
        on=pricing_of(arguments),
        arguments=arguments.args,
    )


RUN = own_command("run", _configure_run, run_module)
LOWER = own_command("lower", _configure_lower, lower_function)
