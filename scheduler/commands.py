"""The subcommands of this package: `hlo-passes estimate`, `hlo-passes calibrate`.

hlo-passes estimate m.hlo --target=h100_sxm --hosts=2 --json
hlo-passes estimate m.hlo --compare-targets=h100_sxm,b200 --plot=curves.svg
hlo-passes calibrate rows.csv --target=h100_sxm -o measured.txtpb
hlo-passes calibrate host.xplane.pb --module=step.hlo --hosts=2 -o measured.txtpb
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from hlo_passes.cli.command import own_command
from hlo_passes.cli.pricing import add_host_arguments, pricing_of
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import check_outputs, read_module, write_bytes, write_text
from hlo_passes.ir.module import Module
from hlo_passes.pricing import DEFAULT_TARGET, Pricing
from hlo_passes.progress import say
from hlo_passes.scheduler.calibration import (
    Measurement,
    calibrate,
    calibration_text,
    read_measurements,
    target_with_fits,
)
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    add_rows_argument,
    check_pricing_arguments,
    checked_pricing,
)
from hlo_passes.scheduler.estimate_table import (
    DEFAULT_ROWS,
    comparison_text,
    table_text,
)
from hlo_passes.scheduler.estimators.choice import (
    collective_model,
    estimator_for,
    settled,
)
from hlo_passes.scheduler.estimators.profile import (
    BINARY_SUFFIX,
    check_profile_name,
)
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.backend_rows import line_rows
from hlo_passes.scheduler.line_fits import fit_lines, lines_text
from hlo_passes.scheduler.measured.collectives import measurements_of
from hlo_passes.scheduler.measured.trace import measured_of, read_trace
from hlo_passes.scheduler.module_costs import estimate
from hlo_passes.scheduler.plots import plot_format, plot_module
from hlo_passes.scheduler.simulation.arguments import (
    add_trip_count_argument,
    trip_counts_of,
)
from hlo_passes.scheduler.tpu.chips import is_chip
from hlo_passes.scheduler.written_profile import profile_of
from hlo_passes.verify.verifier import verify


def _configure_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="HLO; '-' for stdin")
    add_pricing_arguments(parser)
    add_trip_count_argument(parser)
    parser.set_defaults(target=None)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    add_rows_argument(parser, DEFAULT_ROWS, "rows of the table; 0 for none")
    parser.add_argument(
        "--plot", metavar="FILE.png|svg", help="plot latency against message size"
    )
    parser.add_argument(
        "--compare-targets",
        default="",
        metavar="A,B,C",
        help="compare targets side by side",
    )
    parser.add_argument(
        "--write-profile", metavar="FILE",
        help="the costs as a PGLE profile for XLA: .pbtxt is text, .pb binary",
    )  # fmt: skip


def _run_estimate(arguments: argparse.Namespace) -> int:
    wanted, arguments.target = arguments.target, arguments.target or DEFAULT_TARGET
    check_pricing_arguments(arguments)
    drawn = plot_format(arguments.plot) if arguments.plot else ""
    if arguments.write_profile:
        check_profile_name(arguments.write_profile)
    check_outputs(None, arguments.plot or "", arguments.write_profile or "")
    names = [n for n in arguments.compare_targets.split(",") if n]
    if wanted is not None and names:
        raise UsageError(
            f"--target={wanted} and --compare-targets exclude each other",
            code="U224",
            hint="give one of them; --compare-targets lists every target to price",
        )
    names = names or [arguments.target]
    for name in names:
        if not is_chip(name):
            target(name)
    on = checked_pricing(arguments)
    module = read_module(arguments.input)
    verify(module, allow_unknown=True)
    priced = [replace(on, target=name) for name in names]
    counts = trip_counts_of(arguments, module)
    reports = [estimate(module, on=each, trip_counts=counts) for each in priced]
    if arguments.plot:
        shown = [settled(module, reported(module, each).on) for each in priced]
        models = [collective_model(each) for each in shown]
        write_bytes(arguments.plot, plot_module(module, models, drawn))
    if arguments.write_profile:
        _write_profile(arguments.write_profile, module, priced[0])
    if arguments.json:
        views = [report.to_json() for report in reports]
        view = views[0] if len(views) == 1 else {"targets": views}
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
    elif len(reports) > 1:
        say(comparison_text(reports))
    else:
        say(table_text(reports[0], arguments.rows))
    return ExitCode.DONE


def _write_profile(path: str, module: Module, on: Pricing) -> None:
    estimator, _ = estimator_for(module, reported(module, on).on)
    profile = profile_of(module, estimator)
    if path.endswith(BINARY_SUFFIX):
        write_bytes(path, profile.to_bytes())
    else:
        write_text(path, profile.to_text())


def _configure_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input", metavar="ROWS.csv|TRACE",
        help="CSV with columns kind, bytes, us, devices, hosts (kind: a collective, or "
        "a row of collective-backend-choice); with --module a trace, as --measured of "
        "simulate takes it",
    )  # fmt: skip
    parser.add_argument(
        "--module", default="", metavar="FILE", help="the module that the trace is of"
    )
    parser.add_argument(
        "--target", default=DEFAULT_TARGET, help="the GPU that was measured"
    )
    add_host_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.txtpb",
        help="write the target with what was fitted",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _run_calibrate(arguments: argparse.Namespace) -> int:
    check_outputs(None, arguments.output or "")
    part = target(arguments.target)
    rows = (
        _traced(arguments)
        if arguments.module
        else read_measurements(arguments.input, part)
    )
    network = [row for row in rows if row.kind not in line_rows()]
    source = arguments.input
    found = calibrate(network, part, filename=source) if network else None
    fits = fit_lines((r for r in rows if r.kind in line_rows()), filename=source)
    if arguments.output:
        lines = [fit.line for fit in fits]
        text = target_with_fits(arguments.target, found, lines)
        write_text(arguments.output, text)
    if arguments.json:
        view: dict[str, object]
        view = {"target": part.spec} if found is None else found.to_json()
        if fits:
            view["lines"] = [fit.to_json() for fit in fits]
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
    else:
        if found is not None:
            say(calibration_text(found))
        if fits:
            say(lines_text(fits))
    return ExitCode.DONE


def _traced(arguments: argparse.Namespace) -> tuple[Measurement, ...]:
    """The rows that a trace holds for a module."""
    trace = read_trace(arguments.input)
    module = read_module(arguments.module)
    verify(module, allow_unknown=True)
    machine = machine_of(module, pricing_of(arguments))
    return measurements_of(module, measured_of(module, trace), machine)


ESTIMATE = own_command("estimate", _configure_estimate, _run_estimate)
CALIBRATE = own_command("calibrate", _configure_calibrate, _run_calibrate)
