"""`hlo-passes diff BEFORE AFTER`: instructions moved, merged, added, removed.

%main
merged    %a, %b -> %collective-permute

If both modules are scheduled and their orders differ, a package that can price
instructions shows the moves in its own way: it offers a `ScheduleView` in the
entry-point group `hlo_passes.schedule_views`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any, Protocol

from hlo_passes.analysis.module_diff import diff_modules
from hlo_passes.analysis.module_state import heading_of, module_state
from hlo_passes.cli.command import own_command
from hlo_passes.cli.diff_folders import diff_folders
from hlo_passes.dump_folder import is_folder
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.progress import say

SCHEDULE_VIEWS = "hlo_passes.schedule_views"


class ScheduleReport(Protocol):
    """The changes of a schedule."""

    def to_text(self) -> str:
        """The text for a reader; it ends with a line feed."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The value of the key 'schedule' in `diff --json`."""
        ...


class ScheduleView(Protocol):
    """Compares the schedules of two states of a module."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add arguments to those of `diff`."""
        ...

    def compare(
        self, before: Module, after: Module, arguments: argparse.Namespace
    ) -> ScheduleReport:
        """Compare two scheduled modules."""
        ...


def _schedule_view() -> ScheduleView | None:
    """The installed view, the first by name; None if there is none."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=SCHEDULE_VIEWS), key=lambda e: e.name):
        module_name, _, attribute = entry.value.partition(":")
        return getattr(importlib.import_module(module_name), attribute)
    return None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument(
        "--json", action="store_true", help="print the difference as JSON"
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 4 if the modules differ"
    )
    view = _schedule_view()
    if view is not None:
        view.configure(parser)


def _run(arguments: argparse.Namespace) -> int:
    if is_folder(arguments.before) and is_folder(arguments.after):
        return diff_folders(arguments)
    before, after = read_module(arguments.before), read_module(arguments.after)
    found = diff_modules(before, after)
    view = _schedule_view()
    reordered = any(computation.moved for computation in found.computations)
    report = None
    if view and reordered and before.is_scheduled and after.is_scheduled:
        report = view.compare(before, after, arguments)
    states = [module_state(module) for module in (before, after)]
    if arguments.json:
        content = found.to_json()
        names = ("before", "after")
        content["module_state"] = {
            n: s.stage for n, s in zip(names, states, strict=True)
        }
        if report is not None:
            content["schedule"] = report.to_json()
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        say(heading_of(states))
        if report is not None:
            say(found.to_text(moves=False) + report.to_text())
        else:
            say(found.to_text())
    if arguments.exit_code and not found.is_empty:
        return ExitCode.DIFFERENT
    return ExitCode.DONE


COMMAND = own_command("diff", _configure, _run)
