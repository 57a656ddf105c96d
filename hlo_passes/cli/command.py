"""What a subcommand is, and which subcommands there are.

Subcommands of other packages are entry points of the group `hlo_passes.commands`: the
name, and a `Command` object.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

from hlo_passes.targets import load_target

GROUP = "hlo_passes.commands"

#: Subcommands of this package: module:object.
COMMANDS: dict[str, str] = {
    "opt": "hlo_passes.cli.opt:COMMAND",
    "list": "hlo_passes.cli.list_passes:COMMAND",
    "verify": "hlo_passes.cli.verify:COMMAND",
    "diff": "hlo_passes.cli.diff:COMMAND",
    "conformance": "hlo_passes.cli.conformance:COMMAND",
    "capture": "hlo_passes.runtime.recording.command:CAPTURE",
    "tune": "hlo_passes.runtime.tuning.command:TUNE",
}
#: Name -> line of the overview, of all subcommands of this distribution: the overview
#: prints them without importing any, so without JAX.
SUMMARIES: dict[str, str] = {
    "opt": "rewrite a module with passes",
    "verify": "check modules and report all findings",
    "diff": "list instructions moved, merged, added, removed",
    "list": "list the passes with options and defaults",
    "conformance": "compare passes with what XLA's own did to the same modules",
    "estimate": "what each instruction costs",
    "calibrate": "fit the latency model to measurements",
    "simulate": "how long a step takes, and what is exposed",
    "compile": "run passes inside XLA's compilation for a GPU or TPU",
    "tune": "find the flags of XLA that make a step fastest",
    "bisect": "find the pass that harms a module, its rewrite, and the smallest module",
    "run": "run on emulated devices and compare",
    "lower": "turn a jitted function or StableHLO into an HLO module",
    "capture": "run a program and keep every module that it compiles",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand.

    Attributes:
        name: as typed.
        help: one line for the overview.
        configure: adds arguments to a parser of its own.
        run: does the work and returns the exit code.
    """

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def own_command(
    name: str,
    configure: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
) -> Command:
    """A subcommand of this distribution, with its line of `SUMMARIES`."""
    return Command(name, SUMMARIES[name], configure, run)


def command_targets() -> dict[str, str]:
    """All subcommands by name, as 'module:object'; this package's come first."""
    # Reading the metadata of all installed distributions takes longer than rewriting
    # most modules: do it only if the name is not ours.
    from importlib.metadata import entry_points

    targets = dict(COMMANDS)
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        targets.setdefault(entry.name, entry.value)
    return targets


def load_command(target: str) -> Command:
    """Import a subcommand; R013 if it needs a jax that cannot be imported."""
    return load_target(target)


def positive(text: str) -> int:
    """The type of an argument that counts something: an integer from 1 on."""
    return _integer(text, 1, "a positive integer")


def count(text: str) -> int:
    """The type of an argument that may be none: an integer of 0 or more."""
    return _integer(text, 0, "an integer of 0 or more")


def _integer(text: str, least: int, what: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        msg = f"{text} is not {what}"
        raise argparse.ArgumentTypeError(msg)
    return value


def not_negative(text: str) -> float:
    """The type of an argument that is a number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        msg = f"{text} is not a number of 0 or more"
        raise argparse.ArgumentTypeError(msg)
    return value
