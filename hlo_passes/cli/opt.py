"""`hlo-passes opt`: rewrite a module with a pipeline of passes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from typing import Final

from hlo_passes.analysis.module_state import module_state
from hlo_passes.cli.command import own_command
from hlo_passes.cli.pricing import (
    add_machine_arguments,
    check_machine_arguments,
    pricing_of,
)
from hlo_passes.errors import UsageError, nearest
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import check_outputs, read_module, write_texts
from hlo_passes.ir.module import Module
from hlo_passes.module_form import check_form, module_contents
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline, PipelineResult
from hlo_passes.progress import show_progress, tell

#: Names of instructions listed in a hint.
_SHOWN_NAMES: Final = 8


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="HLO; '-' for stdin")
    parser.add_argument("-o", "--output", metavar="OUT", help="default: stdout")
    parser.add_argument("--passes", required=True, metavar="PIPELINE")
    add_machine_arguments(parser)
    parser.add_argument(
        "--report", metavar="FILE", help="write what each pass did, as JSON"
    )
    parser.add_argument(
        "--verify-each",
        action="store_true",
        help="verify also after passes without changes",
    )
    parser.add_argument(
        "--print-after", action="append", default=[], metavar="PASS",
        help="print the module after this pass on stderr; 'all' for every pass",
    )  # fmt: skip
    parser.add_argument(
        "--timing", action="store_true", help="print the seconds of each pass on stderr"
    )
    parser.add_argument(
        "--remarks",
        action="store_true",
        help="print what passes did not do, and why, on stderr",
    )
    parser.add_argument(
        "--explain", default="", metavar="NAME",
        help="print why an instruction is where it is, on stderr",
    )  # fmt: skip
    parser.add_argument(
        "--no-xla-quirks", action="store_true",
        help="do the safe thing where XLA's behavior is surprising",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    # Refuse bad arguments before any file is read.
    check_outputs(arguments.output, arguments.report or "")
    check_form(arguments.output)
    check_machine_arguments(arguments)
    context = PassContext(
        pricing_of(arguments),
        xla_quirks=not arguments.no_xla_quirks,
        explain=arguments.explain.removeprefix("%"),
        progress=show_progress,
    )
    pipeline = Pipeline.parse(arguments.passes, context)
    names = {p.name for p in pipeline.passes}
    for name in arguments.print_after:
        if name not in names | {"all"}:
            raise UsageError(
                f"--print-after={name}: the pipeline has no such pass",
                code="U005",
                hint=f"its passes: {', '.join(sorted(names))}",
            )
    # Run the passes.
    module = read_module(arguments.input)
    names_before = set(_names(module)) if arguments.explain else ()
    state = module_state(module).to_json() if arguments.report else {}

    def print_after(name: str, after: Module) -> None:
        if name in arguments.print_after or "all" in arguments.print_after:
            tell(f"// after {name}\n{after.to_text()}\n")

    result = pipeline.run(
        module, verify_each=arguments.verify_each, after_pass=print_after
    )
    # Write the files, all or none of them.
    explained = _explanations(arguments.explain, names_before, module, result)
    outputs = [(arguments.output, module_contents(arguments.output, module))]
    if arguments.report:
        report = json.dumps({**result.to_json(), **state}, indent=1) + "\n"
        outputs.insert(0, (arguments.report, report))
    write_texts(*outputs)
    # Print to stderr what the user asked to know, and what else nobody would see.
    for run in result.passes:
        checked = run.statistics.get("computations-checked")
        if checked is not None:
            tell(f"{run.name}: nothing to refuse; computations checked: {checked}\n")
    tell(explained)
    if arguments.timing:
        for run in result.passes:
            tell(f"{run.seconds:9.3f} s  {run.name}\n")
    if arguments.remarks:
        for run in result.passes:
            for remark in run.remarks:
                tell(f"{run.name}: {remark}\n")
    for line in (*result.unknown, *result.left_out):
        tell(line + "\n")
    return ExitCode.DONE


def _explanations(
    wanted: str, before: Collection[str], module: Module, result: PipelineResult
) -> str:
    """What passes said about an instruction; `before`: the input's names."""
    if not wanted:
        return ""
    texts = [text for run in result.passes for text in run.explanations]
    if texts:
        return "\n".join(texts) + "\n"
    name = wanted.removeprefix("%")
    after = _names(module)
    if name in after:
        explaining = "latency-hiding-scheduler and gpu-schedule explain places"
        return (
            f"no pass of the pipeline says why %{name} is where it is: {explaining}\n"
        )
    if name in before:
        made = [each for each in after if each not in before]
        near = nearest(name, made, prefix="%")
        raise UsageError(
            f"--explain={wanted}: a pass of the pipeline replaced it",
            code="U006",
            hint=near or f"name what it became: {', '.join(made[:_SHOWN_NAMES])}",
        )
    raise UsageError(
        f"--explain={wanted}: no such instruction",
        code="U006",
        hint=nearest(name, {*before, *after}),
    )


def _names(module: Module) -> list[str]:
    return [i.name for c in module.computations for i in c.instructions]


COMMAND = own_command("opt", _configure, _run)
