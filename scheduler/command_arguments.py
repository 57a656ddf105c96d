"""What a module is priced on, as the scheduler's commands take it.

hlo-passes estimate m.hlo --target=b200 --topology=2x1x8 --estimator=profile --profile=p

Each argument has the name of a field of `Pricing`, or says in `dest` which one it is.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from hlo_passes.cli.command import count
from hlo_passes.cli.pricing import add_machine_arguments, pricing_of
from hlo_passes.files import require_file
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import ESTIMATOR_NAMES, estimator_names
from hlo_passes.scheduler.hardware.target import target, target_names
from hlo_passes.scheduler.latency.network_constants import OPTION_NAMES
from hlo_passes.scheduler.latency.options import latency_options
from hlo_passes.scheduler.tpu.chips import chip_names, is_chip


def add_pricing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `estimate` and of every command that prices a module."""
    add_machine_arguments(parser, ", ".join((*target_names(), *chip_names())))
    parser.add_argument(
        "--estimator", default="",
        help=f"{', '.join(ESTIMATOR_NAMES)}, or one of another distribution; join "
        "several with '+'",
    )  # fmt: skip
    parser.add_argument("--profile", default="", metavar="FILE", help="PGLE profile")
    parser.add_argument(
        "--latency-options", dest="options", default="", metavar="KEY=VALUE,...",
        help=", ".join(OPTION_NAMES),
    )  # fmt: skip
    parser.add_argument(
        "--extended", action="store_true",
        help="use formulas of our own where XLA's model gives up; they are marked",
    )  # fmt: skip
    parser.add_argument(
        "--every-module", dest="always", action="store_true",
        help="price modules that XLA leaves to its coarse estimator (as with "
        "exec_time_optimization_effort)",
    )  # fmt: skip
    parser.add_argument(
        "--collective-perf-table", default="", metavar="FILE",
        help="measured collectives in XLA's text form",
    )  # fmt: skip
    parser.add_argument(
        "--matmul-perf-table", default="", metavar="FILE",
        help="measured GEMMs in XLA's text form",
    )  # fmt: skip


def add_rows_argument(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """Add `--rows`, which says how much of a list is printed."""
    parser.add_argument("--rows", type=count, default=default, help=what)


def check_pricing_arguments(arguments: argparse.Namespace) -> None:
    """Refuse, before any work, files that are missing or that no estimator reads.

    Raises UsageError U001, U209, U219.
    """
    on = pricing_of(arguments)
    estimator_names(on)
    for path in (on.costs, on.profile, on.collective_perf_table, on.matmul_perf_table):
        if path:
            require_file(path)


def checked_pricing(arguments: argparse.Namespace) -> Pricing:
    """The pricing from the arguments of `add_pricing_arguments`.

    Raises UsageError U200, U201 for the target and U203, U204 for an option, also where
    no estimator of the list reads them.
    """
    on = pricing_of(arguments)
    if is_chip(on.target):
        return on
    target(on.target)
    return replace(on, options=latency_options(on))
