"""`hlo-passes simulate`: how long a step takes, what is exposed, and why.

hlo-passes simulate m.hlo --target=h100_sxm --hosts=2
hlo-passes simulate m.hlo --costs=costs.json.gz --streams=2 --json
hlo-passes simulate m.hlo --trace=step.trace.json --html=step.html
hlo-passes simulate before.hlo --against=after.hlo --html=both.html
hlo-passes simulate m.hlo --against=base.hlo --fail-if='step>+2%,memory>target'
hlo-passes simulate m.hlo --measured=host.xplane.pb
hlo-passes simulate m.hlo --passes=PIPELINE --sweep=OPTION=1,2,4
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Final

from hlo_passes.cli.command import count, own_command
from hlo_passes.files import check_outputs, read_module, require_file, write_text
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.progress import say
from hlo_passes.scheduler.advice.advise import advised
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    check_pricing_arguments,
    checked_pricing,
)
from hlo_passes.scheduler.fail_if import (
    add_fail_if_argument,
    judge,
    parse_conditions,
    report_judgments,
)
from hlo_passes.scheduler.page.comparison import compare_command
from hlo_passes.scheduler.schedule_moves import Simulated
from hlo_passes.scheduler.simulation.arguments import (
    add_rules_arguments,
    rules_of,
    simulate_arguments,
)
from hlo_passes.scheduler.simulation.report import DEFAULT_ROWS, report_text
from hlo_passes.scheduler.sweep.command import (
    add_sweep_arguments,
    check_sweep_arguments,
    sweep_command,
)
from hlo_passes.verify.verifier import verify

#: The lines of lanes are at most and at least this wide.
_WIDEST: Final = 160
_NARROWEST: Final = 60


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="scheduled HLO; '-' for stdin")
    add_pricing_arguments(parser)
    add_rules_arguments(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--rows",
        type=count,
        default=DEFAULT_ROWS,
        help="number of collectives to list; 0 for none",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="trace for Perfetto or Chrome; .gz compresses it",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="a self-contained page; .gz compresses it"
    )
    parser.add_argument(
        "--no-advice", dest="advice", action="store_false",
        help="do not try what to change",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="AFTER",
        help="a later state of the module: show what moved and what it saved; with "
        "--html both side by side; with --fail-if the base, an earlier state",
    )  # fmt: skip
    add_fail_if_argument(parser)
    parser.add_argument(
        "--measured", default="", metavar="TRACE",
        help="times of a profiler in place of prices, and both side by side: "
        "xplane.pb or trace.json.gz of jax.profiler, SQLite or CSV of Nsight Systems",
    )  # fmt: skip
    add_sweep_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_sweep_arguments(arguments)
    check_pricing_arguments(arguments)
    if arguments.measured:
        require_file(arguments.measured)
    conditions = parse_conditions(arguments.fail_if, has_base=bool(arguments.against))
    shown = (arguments.trace, arguments.html, arguments.plot)
    check_outputs(None, *(path or "" for path in shown))
    with garbage_collection_paused():
        module = read_module(arguments.input)
        verify(module, allow_unknown=True)
        timeline = None if arguments.sweep else simulate_arguments(arguments, module)
    if timeline is None:
        return sweep_command(arguments, module)
    if arguments.against:
        return compare_command(arguments, Simulated(module, timeline), conditions)
    judgments = judge(conditions, Simulated(module, timeline))
    if arguments.advice and _shows_advice(arguments):
        on, rules = checked_pricing(arguments), rules_of(arguments, module)
        timeline = advised(timeline, module, on, rules)
    if arguments.trace:
        write_text(arguments.trace, json.dumps(timeline.to_perfetto()) + "\n")
    if arguments.html:
        write_text(arguments.html, timeline.to_html(module))
    if arguments.json:
        content = timeline.to_json()
        if judgments:
            content["fail_if"] = [each.to_json() for each in judgments]
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        columns = shutil.get_terminal_size().columns
        width = max(_NARROWEST, min(columns, _WIDEST))
        say(report_text(timeline, arguments.rows, width))
    return report_judgments(judgments, as_json=arguments.json)


def _shows_advice(arguments: argparse.Namespace) -> bool:
    """Whether anybody reads it; what judges a step runs often, and needs none."""
    return not arguments.fail_if and (
        arguments.json or bool(arguments.html) or arguments.rows > 0
    )


SIMULATE = own_command("simulate", _configure, _run)
