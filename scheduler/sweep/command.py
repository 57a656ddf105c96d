"""The sweep of `hlo-passes simulate`: its arguments, and what it does.

hlo-passes simulate m.hlo --passes=latency-hiding-scheduler
    --sweep=parallel-collective-overlap-limit=1,2,4 --memory-limit-bytes=68719476736
"""

from __future__ import annotations

import argparse
import json
import sys

from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.module_state import module_state
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.cli.command import positive
from hlo_passes.errors import UsageError
from hlo_passes.executors.named import add_executor_argument, check_executor
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import write_bytes
from hlo_passes.ir.module import Module
from hlo_passes.progress import say, with_progress
from hlo_passes.scheduler.command_arguments import checked_pricing
from hlo_passes.scheduler.estimators.choice import require_priced
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.plots import plot_format
from hlo_passes.scheduler.simulation.arguments import rules_of
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.sweep.options import count_of, parse_sweep
from hlo_passes.scheduler.sweep.plot import plot_sweep
from hlo_passes.scheduler.sweep.report import SweepReport
from hlo_passes.scheduler.sweep.run import Sweep, run_sweep


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a sweep."""
    group = parser.add_argument_group("sweep")
    group.add_argument(
        "--sweep", default="", metavar="OPTION=V,V,...",
        help="run --passes with every combination of these option values; an option "
        "is named alone, or PASS.OPTION where several passes have it",
    )  # fmt: skip
    group.add_argument(
        "--passes", default="", metavar="PIPELINE", help="pipeline to run"
    )
    group.add_argument(
        "--memory-limit-bytes", type=positive, metavar="N",
        help="limit of the peak memory; the best combination stays within it",
    )  # fmt: skip
    group.add_argument("--plot", metavar="FILE.png|svg", help="plot the sweep")
    group.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="number of processes; default: one for each core",
    )
    add_executor_argument(group)


def check_sweep_arguments(arguments: argparse.Namespace) -> None:
    """Refuse arguments that make no sense together. Raises UsageError U222."""
    if arguments.sweep:
        if not arguments.passes:
            raise UsageError(
                "--sweep varies options of a pipeline, but --passes is missing",
                code="U222",
                hint="--passes=PIPELINE",
            )
        alone = ("html", "trace", "against", "fail_if", "measured")
        unused = [n.replace("_", "-") for n in alone if getattr(arguments, n)]
        if unused:
            raise UsageError(
                f"--{unused[0]} is for one schedule, a sweep has many",
                code="U222",
                hint="run the pipeline that the sweep names as best with opt",
            )
        check_executor(arguments.executor)
        return
    for name in ("passes", "memory_limit_bytes", "plot", "processes", "executor"):
        if getattr(arguments, name):
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} is for --sweep", code="U222",
                hint="to run a pipeline once: hlo-passes opt",
            )  # fmt: skip


def sweep_command(arguments: argparse.Namespace, module: Module) -> int:
    """Run a sweep and print the result on stdout."""
    drawn = plot_format(arguments.plot) if arguments.plot else ""
    swept = parse_sweep(arguments.sweep, arguments.passes)
    filename = module.source.filename if module.source else arguments.input
    on, rules = checked_pricing(arguments), rules_of(arguments, module)
    require_priced(module, on)
    sweep = Sweep(module.to_text(), filename, arguments.passes, swept, on, rules)
    sweep.check()
    given = None
    if module.is_scheduled:
        given = simulate_on(module, on, rules, with_range=True)
    counts = TripCounts(module, rules.trip_counts)
    executions(counts)
    rows = run_sweep(sweep, processes=arguments.processes, executor=arguments.executor)
    found = reported(module, on)
    report = SweepReport(
        module_state(module),
        swept,
        tuple(with_progress(rows, count_of(swept), "sweep")),
        given and given.times,
        arguments.memory_limit_bytes,
        found.machine_line,
        found.remarks,
        counts.unknown,
        given and given.sensitivity,
    )
    if arguments.plot:
        write_bytes(arguments.plot, plot_sweep(report, drawn))
    if arguments.json:
        sys.stdout.write(json.dumps(report.to_json(), indent=1) + "\n")
    else:
        say(report.to_text())
    if not any(row.is_done for row in report.rows):
        return ExitCode.PASS_FAILED
    return ExitCode.DONE
