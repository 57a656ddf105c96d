"""`hlo-passes simulate BEFORE --against=AFTER`: two schedules of one module."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

from hlo_passes.analysis.module_state import heading_of
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import read_module, write_text
from hlo_passes.progress import say
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.schedule_diff import ScheduleDiff
from hlo_passes.scheduler.schedule_moves import Simulated, schedule_moves
from hlo_passes.scheduler.simulation.arguments import simulate_arguments
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.verify.verifier import verify


def compare_command(arguments: argparse.Namespace, before: Simulated) -> int:
    """Print what moved on stdout, and draw both schedules if `--html` asks for it.

    Raises UsageError U222 for options that show one schedule only.
    """
    if arguments.trace:
        raise UsageError(
            "--trace shows one schedule, --against makes two",
            code="U222",
            hint="write one trace for each, without --against",
        )
    module = read_module(arguments.against)
    verify(module, allow_unknown=True)
    after = Simulated(module, simulate_arguments(arguments, module))
    moves = schedule_moves(before, after)
    if arguments.html:
        page = render_page(
            _side(after, "after", arguments.against),
            _side(before, "before", arguments.input),
            moves,
        )
        write_text(arguments.html, page)
    if arguments.json:
        content = {
            **before.timeline.to_json(),
            "against": after.timeline.to_json(),
            "moves": [move.to_json() for move in moves],
        }
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        found = ScheduleDiff(before, after, moves, arguments.rows)
        states = (before.timeline.state, after.timeline.state)
        told = after.timeline
        once = once_remark(told.counted_once)
        heading = heading_of(states, beware((*told.remarks, *once)))
        say(heading + found.to_text())
    return ExitCode.DONE


def _side(simulated: Simulated, label: str, path: str) -> Side:
    name = pathlib.PurePath(path).name
    return Side(simulated.timeline, label, name, simulated.module)
