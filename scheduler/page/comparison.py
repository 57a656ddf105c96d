"""`hlo-passes simulate BEFORE --against=AFTER`: two schedules of one module.

With `--fail-if` INPUT is judged, so that it is the later state: `simulate AFTER
--against=BASE --fail-if='step>+2%'`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from hlo_passes.analysis.module_state import heading_of
from hlo_passes.errors import UsageError
from hlo_passes.files import read_module, write_text
from hlo_passes.progress import say
from hlo_passes.scheduler.fail_if import Condition, judge, report_judgments
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.schedule_diff import ScheduleDiff
from hlo_passes.scheduler.schedule_moves import Simulated, schedule_moves
from hlo_passes.scheduler.simulation.arguments import simulate_arguments
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.scheduler.simulation.ranges import change_json
from hlo_passes.verify.verifier import verify


def compare_command(
    arguments: argparse.Namespace,
    given: Simulated,
    conditions: Sequence[Condition] = (),
) -> int:
    """Print what moved on stdout, and draw both schedules if `--html` asks for it.

    Args:
        arguments: of `simulate`.
        given: INPUT.
        conditions: those of `--fail-if`.

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
    other = Simulated(module, simulate_arguments(arguments, module))
    judgments = judge(conditions, given, other)
    # INPUT is the state before, unless it is judged.
    before, after = (other, given) if conditions else (given, other)
    names = (arguments.input, arguments.against)
    before_name, after_name = reversed(names) if conditions else names
    moves = schedule_moves(before, after)
    if arguments.html:
        page = render_page(
            _side(after, "after", after_name),
            _side(before, "before", before_name),
            moves,
        )
        write_text(arguments.html, page)
    found = ScheduleDiff(before, after, moves, arguments.rows)
    if arguments.json:
        content = {
            **given.timeline.to_json(),
            "against": other.timeline.to_json(),
            **change_json(found.change),
            "moves": [move.to_json() for move in moves],
        }
        if judgments:
            content["fail_if"] = [each.to_json() for each in judgments]
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        states = (before.timeline.state, after.timeline.state)
        told = after.timeline
        once = once_remark(told.counted_once)
        heading = heading_of(states, beware((*told.remarks, *once)))
        say(heading + found.to_text())
    return report_judgments(judgments, as_json=arguments.json)


def _side(simulated: Simulated, label: str, path: str) -> Side:
    name = pathlib.PurePath(path).name
    return Side(simulated.timeline, label, name, simulated.module)
