"""The subcommands of this package: `hlo-passes estimate`, `hlo-passes calibrate`.

hlo-passes estimate m.hlo --target=h100_sxm --topology=1x2x8 --json
hlo-passes estimate m.hlo --compare-targets=h100_sxm,b200 --plot=curves.svg
hlo-passes calibrate rows.csv --target=h100_sxm -o measured.txtpb
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from hlo_passes.analysis.followed_release import release_asked_for
from hlo_passes.cli.command import Command, positive
from hlo_passes.cli.xla_option import add_xla_argument
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import (
    check_outputs,
    read_module,
    require_file,
    write_bytes,
    write_text,
)
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.calibration import (
    calibrate,
    calibration_text,
    read_measurements,
    target_with_network,
)
from hlo_passes.scheduler.estimate_table import (
    DEFAULT_ROWS,
    comparison_text,
    table_text,
)
from hlo_passes.scheduler.estimators.choice import (
    ESTIMATOR_NAMES,
    EstimatorSettings,
    collective_model,
    estimator_names,
    make_estimator,
)
from hlo_passes.scheduler.estimators.profile import (
    BINARY_SUFFIX,
    check_profile_name,
    profile_of,
)
from hlo_passes.scheduler.hardware.target import DEFAULT_TARGET, target, target_names
from hlo_passes.scheduler.hardware.topology import topology_for
from hlo_passes.scheduler.latency.options import OPTION_NAMES, LatencyOptions
from hlo_passes.scheduler.latency.perf_tables import (
    read_collective_table,
    read_matmul_table,
)
from hlo_passes.scheduler.module_costs import EstimateReport, estimate
from hlo_passes.scheduler.plots import plot_format, plot_module
from hlo_passes.verify.verifier import verify


def add_estimator_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `estimate` and of every command that prices a module."""
    parser.add_argument(
        "--target", default=DEFAULT_TARGET,
        help=f"{', '.join(target_names())}, or a .txtpb file",
    )  # fmt: skip
    parser.add_argument(
        "--topology", default="", metavar="PxHxG",
        help="partitions x hosts per partition x GPUs per host; default: one host",
    )  # fmt: skip
    parser.add_argument(
        "--devices", type=positive, help="number of devices, instead of the module's"
    )
    parser.add_argument(
        "--estimator", default="",
        help=f"{', '.join(ESTIMATOR_NAMES)}; join several with '+'",
    )  # fmt: skip
    parser.add_argument("--costs", default="", metavar="FILE", help="costs.json")
    parser.add_argument("--profile", default="", metavar="FILE", help="PGLE profile")
    parser.add_argument(
        "--latency-options", default="", metavar="KEY=VALUE,...",
        help=", ".join(OPTION_NAMES),
    )  # fmt: skip
    parser.add_argument(
        "--extended", action="store_true",
        help="use formulas of our own where XLA's model gives up; they are marked",
    )  # fmt: skip
    parser.add_argument(
        "--every-module", action="store_true",
        help="price modules that XLA leaves to its coarse estimator (as with "
        "exec_time_optimization_effort)",
    )  # fmt: skip
    add_xla_argument(parser)
    parser.add_argument(
        "--collective-perf-table", default="", metavar="FILE",
        help="measured collectives in XLA's text form",
    )  # fmt: skip
    parser.add_argument(
        "--matmul-perf-table", default="", metavar="FILE",
        help="measured GEMMs in XLA's text form",
    )  # fmt: skip


def check_estimator_arguments(arguments: argparse.Namespace) -> None:
    """Refuse, before any work, files that are missing or that no estimator reads.

    Raises UsageError U001, U209, U219.
    """
    estimator_names(
        arguments.estimator, costs=arguments.costs, profile=arguments.profile
    )
    collectives, matmuls = arguments.collective_perf_table, arguments.matmul_perf_table
    for path in (arguments.costs, arguments.profile, collectives, matmuls):
        if path:
            require_file(path)


def settings_of(arguments: argparse.Namespace, module: Module) -> EstimatorSettings:
    """The settings from the arguments of `add_estimator_arguments`."""
    topology = topology_for(module, arguments.topology, arguments.devices)
    part = target(arguments.target)
    collectives, matmuls = arguments.collective_perf_table, arguments.matmul_perf_table
    return EstimatorSettings(
        target=arguments.target,
        topology=topology,
        options=LatencyOptions.parse(arguments.latency_options),
        costs=arguments.costs,
        profile=arguments.profile,
        extended=arguments.extended,
        always=arguments.every_module,
        release=release_asked_for(module, arguments.xla),
        collective_table=read_collective_table(collectives, part)
        if collectives
        else None,
        matmul_table=read_matmul_table(matmuls, part) if matmuls else None,
    )


def _configure_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="HLO; '-' for stdin")
    add_estimator_arguments(parser)
    parser.set_defaults(target=None)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--rows", type=positive, default=DEFAULT_ROWS, help="rows of the table"
    )
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
    check_estimator_arguments(arguments)
    drawn = plot_format(arguments.plot) if arguments.plot else ""
    if arguments.write_profile:
        check_profile_name(arguments.write_profile)
    check_outputs(None, arguments.plot or "", arguments.write_profile or "")
    names = [n for n in arguments.compare_targets.split(",") if n]
    if arguments.target is None:
        arguments.target = DEFAULT_TARGET
    elif names:
        raise UsageError(
            f"--target={arguments.target} and --compare-targets exclude each other",
            code="U224",
            hint="give one of them; --compare-targets lists every target to price",
        )
    names = names or [arguments.target]
    for name in names:
        target(name)
    module = read_module(arguments.input)
    verify(module, allow_unknown=True)
    settings = [replace(settings_of(arguments, module), target=name) for name in names]
    reports = [_report(module, s, arguments) for s in settings]
    if arguments.plot:
        models = [collective_model(s) for s in settings]
        write_bytes(arguments.plot, plot_module(module, models, drawn))
    if arguments.write_profile:
        _write_profile(arguments, module, settings[0])
    if arguments.json:
        views = [report.to_json() for report in reports]
        view = views[0] if len(views) == 1 else {"targets": views}
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
    elif len(reports) > 1:
        sys.stdout.write(comparison_text(reports))
    else:
        sys.stdout.write(table_text(reports[0], arguments.rows))
    return ExitCode.DONE


def _report(
    module: Module, settings: EstimatorSettings, arguments: argparse.Namespace
) -> EstimateReport:
    return estimate(
        module,
        target=settings.target,
        topology=settings.topology or "",
        estimator=make_estimator(arguments.estimator, settings),
        devices=arguments.devices,
    )


def _write_profile(
    arguments: argparse.Namespace, module: Module, settings: EstimatorSettings
) -> None:
    profile = profile_of(module, make_estimator(arguments.estimator, settings))
    if arguments.write_profile.endswith(BINARY_SUFFIX):
        write_bytes(arguments.write_profile, profile.to_bytes())
    else:
        write_text(arguments.write_profile, profile.to_text())


def _configure_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input", metavar="ROWS.csv",
        help="CSV with columns kind, bytes, us, devices, hosts",
    )  # fmt: skip
    parser.add_argument(
        "--target", default=DEFAULT_TARGET, help="the GPU that was measured"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.txtpb",
        help="write the target with the fitted constants",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _run_calibrate(arguments: argparse.Namespace) -> int:
    check_outputs(None, arguments.output or "")
    part = target(arguments.target)
    found = calibrate(read_measurements(arguments.input), part)
    if arguments.output:
        text = target_with_network(arguments.target, found)
        write_text(arguments.output, text)
    if arguments.json:
        sys.stdout.write(json.dumps(found.to_json(), indent=1) + "\n")
    else:
        sys.stdout.write(calibration_text(found))
    return ExitCode.DONE


ESTIMATE = Command(
    "estimate", "what each instruction costs", _configure_estimate, _run_estimate
)
CALIBRATE = Command(
    "calibrate",
    "fit the latency model to measurements",
    _configure_calibrate,
    _run_calibrate,
)
