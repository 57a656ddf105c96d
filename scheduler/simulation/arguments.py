"""Arguments of the commands that simulate, and the timeline that they ask for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Final

from hlo_passes.dump_folder import assigned_bytes
from hlo_passes.errors import UsageError, nearest
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.command_arguments import checked_pricing
from hlo_passes.scheduler.measured.trace import read_trace
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.timeline import Timeline

#: Of a number that a person may type, and names that an error lists.
_MOST_DIGITS: Final = 18
_MOST_LISTED: Final = 8


def add_rules_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that decide how a step is simulated."""
    parser.add_argument(
        "--streams", type=int, metavar="N",
        help="number of communication streams; collectives are assigned round-robin; "
        "0 for no queueing; default: the module's own assignment",
    )  # fmt: skip
    parser.add_argument(
        "--share-links", action="store_true",
        help="collectives in flight together slow each other down on a shared link",
    )  # fmt: skip
    parser.add_argument(
        "--contention", type=float, default=0.0, metavar="FRACTION",
        help="the share of its speed that compute loses while a collective runs, as "
        "NCCL's kernels occupy multiprocessors; default: 0, as in XLA's model",
    )  # fmt: skip
    parser.add_argument(
        "--xla-statistic", action="store_true",
        help="count as XLA's scheduler does: no queues, loops take their node cost",
    )  # fmt: skip
    parser.add_argument(
        "--branches", action="append", default=[], metavar="NAME=P,P,...",
        help="how probable the branches of a conditional are; default: the most "
        "expensive one runs",
    )  # fmt: skip
    add_trip_count_argument(parser)


def add_trip_count_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that `trip_counts_of` reads."""
    parser.add_argument(
        "--trip-count", action="append", default=[], metavar="LOOP=N",
        help="how often a loop runs, where nothing in the module says it; repeatable",
    )  # fmt: skip


def rules_of(arguments: argparse.Namespace, module: Module) -> Rules:
    """The rules that `add_rules_arguments` read.

    Raises UsageError U220, U221, U226.
    """
    return Rules(
        arguments.streams,
        arguments.share_links,
        arguments.xla_statistic,
        dict(_probabilities(text, module) for text in arguments.branches),
        trip_counts_of(arguments, module),
        contention=arguments.contention,
    )


def _probabilities(text: str, module: Module) -> tuple[str, tuple[float, ...]]:
    name, _, listed = text.partition("=")
    name = name.removeprefix("%")
    known = _names(module, "conditional")
    if name not in known:
        raise UsageError(
            f"--branches={text}: the module does not have a conditional %{name}",
            code="U221",
            hint=nearest(name, known) or "as in --branches=cond.1=0.9,0.1",
        )
    try:
        return name, tuple(float(part) for part in listed.split(","))
    except ValueError:
        raise UsageError(
            f"--branches={text}: {listed!r} are not probabilities",
            code="U221",
            hint="give one number for each branch, as in cond.1=0.9,0.1",
        ) from None


def trip_counts_of(arguments: argparse.Namespace, module: Module) -> dict[str, int]:
    """By name of a loop, how often `--trip-count` says that it runs.

    Raises UsageError U226.
    """
    return dict(_trip_count(text, module) for text in arguments.trip_count)


def _trip_count(text: str, module: Module) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    name = name.removeprefix("%")
    if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
        raise UsageError(
            f"--trip-count={text}: {number!r} does not say how often",
            code="U226",
            hint="as in --trip-count=%while.1=126",
        )
    known = _names(module, "while")
    if name not in known:
        raise UsageError(
            f"--trip-count={text}: the module does not have a loop %{name}",
            code="U226",
            hint=nearest(name, known) or _listed(known),
        )
    return name, int(number)


def _listed(names: list[str]) -> str:
    if not names:
        return "it has no loop at all"
    shown = ", ".join(f"%{name}" for name in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"it has {shown}" + (f" and {more} more" if more > 0 else "")


def _names(module: Module, opcode: str) -> list[str]:
    return [
        i.name
        for c in module.computations
        for i in c.instructions
        if i.opcode == opcode
    ]


def simulate_arguments(arguments: argparse.Namespace, module: Module) -> Timeline:
    """The timeline that a command line asks for, with its range."""
    on = checked_pricing(arguments)
    path = getattr(arguments, "measured", "")
    trace = read_trace(path) if path else None
    rules = rules_of(arguments, module)
    timeline = simulate_on(module, on, rules, with_range=True, trace=trace)
    # Beside a module that XLA dumped lies what XLA's buffer assignment needs.
    source = module.source
    assigned = assigned_bytes(source.filename) if source is not None else None
    if assigned is None:
        return timeline
    memory = replace(timeline.footprint, assigned_bytes=assigned)
    return replace(timeline, footprint=memory)
