"""`hlo-passes bisect`: the pass at fault, its rewrite, and the smallest module.

hlo-passes bisect m.hlo --passes=a,b,c --run -o small.hlo
hlo-passes bisect m.hlo --passes=a,b,c --script=./check.sh
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from hlo_passes.analysis.module_state import ModuleState, heading_of, module_state
from hlo_passes.cli.command import own_command, positive
from hlo_passes.cli.pricing import (
    add_machine_arguments,
    check_machine_arguments,
    pricing_of,
)
from hlo_passes.exit_codes import INTERRUPTED, ExitCode
from hlo_passes.files import (
    check_outputs,
    read_module,
    write_text,
)
from hlo_passes.ir.module import Module
from hlo_passes.module_form import check_form, module_contents
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.progress import Status, show_progress, tell

if TYPE_CHECKING:
    from hlo_passes.runtime.bisect.search import Bisection

_BUDGET_SECONDS = 1800
_ENDED = {
    "time": "the time was up: a longer --budget-seconds may find less",
    "interrupt": "interrupted: this is the best finding so far",
}


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
        "--timeout-seconds", type=positive, metavar="N",
        help="limit for one run of one module, or of the script; default: ten times "
        "what the untouched module takes",
    )  # fmt: skip
    parser.add_argument(
        "--budget-seconds", type=positive, default=_BUDGET_SECONDS, metavar="N",
        help="limit for the whole search; the best finding so far is the result then "
        f"(default: {_BUDGET_SECONDS})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _run(arguments: argparse.Namespace) -> int:
    from hlo_passes.runtime.bisect.oracles import CrashOracle, RunOracle, ScriptOracle
    from hlo_passes.runtime.bisect.search import Search, bisect
    from hlo_passes.runtime.devices import topology_of
    from hlo_passes.runtime.run_process import ended_by_sigterm

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
    state = module_state(module)
    # The parts of the pipeline follow the release that the whole of it follows.
    pipeline = replace(pipeline, context=pipeline.settled(module))
    # Choose who judges a module; say at once what is too large to run.
    search, status = Search(), Status()

    def waiting(text: str) -> None:
        status.status(f"{text}; {search.status()}")

    limit = arguments.timeout_seconds
    if arguments.run:
        replicas, partitions = topology_of(module)
        status.line(_size_line(module, replicas * partitions, arguments))
        oracle = RunOracle(
            replicas * partitions, arguments.seed, limit, waiting=waiting
        )
    elif arguments.script:
        oracle = ScriptOracle(arguments.script, limit, waiting=waiting)
    else:
        oracle = CrashOracle()
    status.line(
        f"the search may take {arguments.budget_seconds} s (--budget-seconds); "
        "Ctrl-C ends it with the best finding so far"
    )

    # Search for the smallest pipeline and module that still fail.
    def progress(text: str) -> None:
        status.line(text)
        if search.best is not None:
            waiting("searching")

    try:
        with ended_by_sigterm():
            found = bisect(
                module, pipeline, oracle, progress,
                budget_seconds=arguments.budget_seconds, search=search,
            )  # fmt: skip
    finally:
        show_progress("")
        oracle.close()
    # Write the smaller module and the report.
    text = found.module.to_text()
    if arguments.output:
        contents = module_contents(arguments.output, found.module)
        write_text(arguments.output, contents)
    if arguments.json:
        sys.stdout.write(json.dumps(_json(found, state, text), indent=1) + "\n")
    else:
        tell(heading_of((state,)))
        tell("".join(f"{line}\n" for line in report_lines(found)))
        tell(f"again: {_again(arguments, found)}\n")
        if not arguments.output:
            write_text(None, text)
    return INTERRUPTED if found.ended == "interrupt" else ExitCode.DONE


def _size_line(module: Module, devices: int, arguments: argparse.Namespace) -> str:
    """How large the program is, and whether it can be run as a whole."""
    from hlo_passes.errors import HloError
    from hlo_passes.runtime.memory import bytes_needed, require
    from hlo_passes.runtime.plain.legalize import plain_module
    from hlo_passes.runtime.work import cpu_seconds_at_least

    name = f"{arguments.input}: {module.instruction_count} instructions, "
    name += f"{devices} emulated devices"
    needed = cpu_seconds_at_least(module, devices)
    allowed = arguments.timeout_seconds or arguments.budget_seconds
    if needed > allowed:
        problem = f"it takes {needed:.0f} s at least on this CPU, {allowed} are allowed"
    else:
        try:
            plain = plain_module(module)
            require(2 * bytes_needed(plain, device_count=devices), module.name)
        except HloError as refused:
            problem = refused.message
        else:
            return name
    return f"{name}\nit is not run as a whole, only slices of it: {problem}"


def _again(arguments: argparse.Namespace, found: Bisection) -> str:
    """The command that shows the failure of the smaller module."""
    words = ["hlo-passes", "bisect", arguments.output or "SMALLER.hlo"]
    words.append(f"--passes={found.pipeline}")
    if arguments.run:
        words.append("--run")
    if arguments.script:
        words.append(f"--script={arguments.script}")
    return shlex.join(words)


def report_lines(found: Bisection) -> list[str]:
    """The findings as text."""
    detail = f" ({found.detail})" if found.detail else ""
    lines = [
        f"pass: {', then '.join(found.passes)}",
        f"failure: {found.what}{detail}",
        f"module: {found.module.instruction_count} of {found.instructions_before} "
        "instructions",
    ]
    if found.rewrite is not None:
        lines.append(f"rewrite: change {found.rewrite.change} of "
                     f"{found.rewrite.changes}")  # fmt: skip
        lines += [f"  {line}" for line in found.rewrite.lines]
    lines.append(f"{found.trials} trials, {found.seconds:.1f} s")
    if found.ended:
        lines.append(_ENDED[found.ended])
    return lines


def _json(found: Bisection, state: ModuleState, text: str) -> dict[str, object]:
    rewrite = found.rewrite
    return {
        **state.to_json(),
        "passes": list(found.passes),
        "what": found.what,
        "instructions_before": found.instructions_before,
        "instructions_after": found.module.instruction_count,
        "rewrite": rewrite and {
            "change": rewrite.change,
            "changes": rewrite.changes,
            "lines": list(rewrite.lines),
        },
        "pipeline": found.pipeline,
        "detail": found.detail,
        "ended": found.ended,
        "trials": found.trials,
        "seconds": found.seconds,
        "module": text,
    }  # fmt: skip


BISECT = own_command("bisect", _configure, _run)
