"""`hlo-passes bisect`: the pass at fault, its rewrite, and the smallest module.

hlo-passes bisect m.hlo --passes=a,b,c --run -o small.hlo
hlo-passes bisect m.hlo --passes=a,b,c --script=./check.sh
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from hlo_passes.cli.command import Command, positive
from hlo_passes.cli.pricing import (
    add_machine_arguments,
    check_machine_arguments,
    pricing_of,
)
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import (
    check_outputs,
    read_module,
    write_text,
)
from hlo_passes.module_form import check_form, module_contents
from hlo_passes.passes.base import PassContext
from hlo_passes.passes.pipeline import Pipeline
from hlo_passes.progress import tell

if TYPE_CHECKING:
    from hlo_passes.runtime.bisect.search import Bisection

_TIMEOUT_SECONDS = 60


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="HLO; '-' for stdin")
    parser.add_argument("--passes", required=True, metavar="PIPELINE")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--run", action="store_true",
        help="a module is bad if it gives other results on emulated devices",
    )  # fmt: skip
    kind.add_argument(
        "--script", metavar="FILE",
        help="called with the files AFTER BEFORE: exit code 0 good, 125 cannot tell, "
        "otherwise bad; without --run and --script only a pass that fails is bad",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="OUT", help="default: stdout")
    parser.add_argument("--seed", type=int, default=0, help="of made-up inputs")
    add_machine_arguments(parser)
    parser.add_argument(
        "--timeout-seconds", type=positive, default=_TIMEOUT_SECONDS,
        help="limit for one run of two modules, or of the script",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _run(arguments: argparse.Namespace) -> int:
    from hlo_passes.runtime.bisect.oracles import CrashOracle, RunOracle, ScriptOracle
    from hlo_passes.runtime.bisect.search import bisect
    from hlo_passes.runtime.devices import topology_of

    # Refuse bad arguments before any file is read.
    if arguments.json:
        check_outputs(None, arguments.output or "")
    else:
        check_outputs(arguments.output)
    check_form(arguments.output)
    check_machine_arguments(arguments)
    context = PassContext(pricing_of(arguments))
    pipeline = Pipeline.parse(arguments.passes, context)
    module = read_module(arguments.input)
    # The parts of the pipeline follow the release that the whole of it follows.
    pipeline = replace(pipeline, context=pipeline.settled(module))
    # Choose who judges a module.
    if arguments.run:
        replicas, partitions = topology_of(module)
        oracle = RunOracle(
            replicas * partitions, arguments.seed, arguments.timeout_seconds
        )
    elif arguments.script:
        oracle = ScriptOracle(arguments.script, arguments.timeout_seconds)
    else:
        oracle = CrashOracle()

    # Search for the smallest pipeline and module that still fail.
    def progress(text: str) -> None:
        tell(f"{text}\n")

    try:
        found = bisect(module, pipeline, oracle, progress)
    finally:
        oracle.close()
    # Write the smaller module and the report.
    text = found.module.to_text()
    if arguments.output:
        contents = module_contents(arguments.output, found.module)
        write_text(arguments.output, contents)
    if arguments.json:
        sys.stdout.write(json.dumps(_json(found, text), indent=1) + "\n")
    else:
        tell("".join(f"{line}\n" for line in report_lines(found)))
        if not arguments.output:
            write_text(None, text)
    return ExitCode.DONE


def report_lines(found: Bisection) -> list[str]:
    """The findings as text."""
    lines = [
        f"pass: {', then '.join(found.passes)}",
        f"failure: {found.what}",
        f"module: {found.module.instruction_count} of {found.instructions_before} "
        "instructions",
    ]
    if found.rewrite is not None:
        lines.append(f"rewrite: change {found.rewrite.change} of "
                     f"{found.rewrite.changes}")  # fmt: skip
        lines += [f"  {line}" for line in found.rewrite.lines]
    lines.append(f"{found.trials} trials, {found.seconds:.1f} s")
    return lines


def _json(found: Bisection, text: str) -> dict[str, object]:
    rewrite = found.rewrite
    return {
        "passes": list(found.passes),
        "what": found.what,
        "instructions_before": found.instructions_before,
        "instructions_after": found.module.instruction_count,
        "rewrite": rewrite and {
            "change": rewrite.change,
            "changes": rewrite.changes,
            "lines": list(rewrite.lines),
        },
        "trials": found.trials,
        "seconds": found.seconds,
        "module": text,
    }  # fmt: skip


BISECT = Command(
    "bisect",
    "find the pass that harms a module, its rewrite, and the smallest module",
    _configure,
    _run,
)
