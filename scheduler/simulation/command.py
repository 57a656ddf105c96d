"""`hlo-passes simulate`: how long a step takes, what is exposed, and why.

hlo-passes simulate m.hlo --target=h100_sxm --topology=1x2x8
hlo-passes simulate m.hlo --costs=costs.json.gz --streams=2 --json
hlo-passes simulate m.hlo --trace=step.trace.json --html=step.html
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Final

from hlo_passes.cli.command import Command, positive
from hlo_passes.cli.exit_codes import ExitCode
from hlo_passes.cli.files import read_module, write_text
from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.passes.spec import nearest
from hlo_passes.verify.verifier import verify
from scheduler.commands import add_estimator_arguments, settings_of
from scheduler.estimators.choice import make_estimator
from scheduler.hardware.topology import default_topology
from scheduler.simulation.report import DEFAULT_ROWS, report_text
from scheduler.simulation.rules import Rules
from scheduler.simulation.simulate import simulate_with
from scheduler.simulation.timeline import Timeline

#: Lines of lanes are no wider than this, nor narrower than the other.
_WIDEST: Final = 160
_NARROWEST: Final = 60


def add_rules_arguments(parser: argparse.ArgumentParser) -> None:
    """What decides how a step is simulated."""
    parser.add_argument(
        "--streams", type=int, metavar="N",
        help="communication streams, dealt to by turns; 0 for no queueing; default: "
        "the module's own assignment",
    )  # fmt: skip
    parser.add_argument(
        "--share-links", action="store_true",
        help="collectives in flight together slow each other down on a shared link",
    )  # fmt: skip
    parser.add_argument(
        "--xla-statistic", action="store_true",
        help="count as XLA's scheduler does: no queues, loops take their node cost",
    )  # fmt: skip
    parser.add_argument(
        "--branches", action="append", default=[], metavar="NAME=P,P,...",
        help="how probable the branches of a conditional are; default: the dearest "
        "one runs",
    )  # fmt: skip


def rules_of(arguments: argparse.Namespace, module: Module) -> Rules:
    """The rules that `add_rules_arguments` read. Raises UsageError U220, U221."""
    return Rules(
        arguments.streams,
        arguments.share_links,
        arguments.xla_statistic,
        dict(_probabilities(text, module) for text in arguments.branches),
    )


def _probabilities(text: str, module: Module) -> tuple[str, tuple[float, ...]]:
    name, _, listed = text.partition("=")
    name = name.removeprefix("%")
    known = [
        i.name
        for c in module.computations
        for i in c.instructions
        if i.opcode == "conditional"
    ]
    if name not in known:
        raise UsageError(
            f"--branches={text}: the module has no conditional %{name}",
            code="U221",
            hint=nearest(name, known) or "as in --branches=cond.1=0.9,0.1",
        )
    try:
        return name, tuple(float(part) for part in listed.split(","))
    except ValueError:
        raise UsageError(
            f"--branches={text}: {listed!r} are no probabilities",
            code="U221",
            hint="one number for each branch, as in cond.1=0.9,0.1",
        ) from None


def simulate_arguments(arguments: argparse.Namespace, module: Module) -> Timeline:
    """The timeline that a command line asks for."""
    settings = settings_of(arguments, module)
    return simulate_with(
        module,
        settings.target,
        settings.topology or default_topology(module),
        make_estimator(arguments.estimator, settings),
        rules_of(arguments, module),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="scheduled HLO; '-' for stdin")
    add_estimator_arguments(parser)
    add_rules_arguments(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--rows", type=positive, default=DEFAULT_ROWS, help="collectives to list"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="for Perfetto or Chrome; gzip by suffix"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="a page of its own; gzip by suffix"
    )


def _run(arguments: argparse.Namespace) -> int:
    module = read_module(arguments.input)
    verify(module, allow_unknown=True)
    timeline = simulate_arguments(arguments, module)
    if arguments.trace:
        write_text(arguments.trace, json.dumps(timeline.to_perfetto()) + "\n")
    if arguments.html:
        write_text(arguments.html, timeline.to_html(module))
    if arguments.json:
        sys.stdout.write(json.dumps(timeline.to_json(), indent=1) + "\n")
    else:
        columns = shutil.get_terminal_size().columns
        width = max(_NARROWEST, min(columns, _WIDEST))
        sys.stdout.write(report_text(timeline, arguments.rows, width))
    return ExitCode.DONE


SIMULATE = Command(
    "simulate", "what a step takes, and what is exposed", _configure, _run
)
