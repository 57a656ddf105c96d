"""`hlo-passes compile`: runs passes inside XLA's compilation for an absent GPU.

hlo-passes compile model.py:step --hosts=2 --passes=latency-hiding-scheduler
hlo-passes compile step.mlir --target=b200

XLA compiles the function twice, alone and with the passes inside. The command reports
whether XLA's back end accepted the result, what moved, and both simulated steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

import hlo_passes.files as files
from hlo_passes.analysis.module_state import heading_of
from hlo_passes.cli.command import count, own_command
from hlo_passes.cli.pricing import pricing_of
from hlo_passes.exit_codes import ExitCode
from hlo_passes.module_form import check_form, module_contents
from hlo_passes.progress import say
from hlo_passes.runtime.program_option import add_program_arguments
from hlo_passes.runtime.tpu_commands import (
    add_tpu_arguments,
    compile_for_chips,
    refuse_tpu_arguments,
)
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    check_pricing_arguments,
)
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.schedule_diff import ScheduleDiff
from hlo_passes.scheduler.schedule_moves import Simulated, schedule_moves
from hlo_passes.scheduler.simulation.arguments import (
    add_rules_arguments,
    simulate_arguments,
)
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.scheduler.simulation.ranges import change_json
from hlo_passes.scheduler.simulation.timeline_data import TimelineData
from hlo_passes.scheduler.tpu.chips import is_chip

_DEFAULT_ROWS: Final = 10
_PASSES: Final = "latency-hiding-scheduler"
#: The figures shown side by side, and their names in a timeline. There is no lower
#: bound:
#: from jax 0.12 on XLA has made collectives synchronous that nothing hid, so a bound
#: for
#: the rest does not hold for other schedules.
_FIGURES: Final = (
    ("step", "step_time_us"),
    ("compute", "compute_us"),
    ("communication", "communication_us"),
    ("exposed", "exposed_us"),
)
_MIB: Final = 1 << 20


def _configure(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser)
    parser.add_argument(
        "--passes", default=_PASSES, metavar="PIPELINE", help=f"default: {_PASSES}"
    )
    parser.add_argument(
        "--stage", choices=("pre-scheduler", "post-scheduler"),
        default="post-scheduler", help="stage of XLA's compilation where the passes "
            "run",
    )  # fmt: skip
    add_pricing_arguments(parser)
    add_tpu_arguments(parser)
    add_rules_arguments(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help="write the module here")
    parser.add_argument("--html", metavar="FILE", help="write both schedules here")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--rows", type=count, default=_DEFAULT_ROWS, help="moves to list; 0 for none"
    )


def _run(arguments: argparse.Namespace) -> int:
    from hlo_passes.runtime.handed_over import compile_alone, hand_over

    if is_chip(arguments.target):
        return compile_for_chips(arguments)
    refuse_tpu_arguments(arguments)
    # Refuse bad arguments before XLA compiles, which takes seconds.
    check_pricing_arguments(arguments)
    files.check_outputs(None, arguments.output or "", arguments.html or "")
    check_form(arguments.output)
    # Compile the function alone and with the passes.
    alone = compile_alone(arguments.function, pricing_of(arguments), arguments.args)
    arguments.topology = alone.program.machine
    both = hand_over(alone, passes=arguments.passes, stage=arguments.stage)
    # Simulate both modules and compare their schedules.
    xla = Simulated(both.xla, simulate_arguments(arguments, both.xla))
    ours = Simulated(both.ours, simulate_arguments(arguments, both.ours))
    moves = schedule_moves(xla, ours)
    # Write the module, the page, and the figures.
    if arguments.output:
        contents = module_contents(arguments.output, both.ours)
        files.write_text(arguments.output, contents)
    if arguments.html:
        page = render_page(
            Side(ours.timeline, "with passes", arguments.function, ours.module),
            Side(xla.timeline, "XLA alone", arguments.function, xla.module),
            moves,
        )
        files.write_text(arguments.html, page)
    found = ScheduleDiff(xla, ours, moves, arguments.rows)
    if arguments.json:
        content = {
            "accepted": None if both.stops else True,
            "stops": both.stops,
            "changed_modules": both.changed,
            "moved_instructions": both.moved,
            "common_instructions": both.common,
            "xla": xla.timeline.to_json(),
            "with_passes": ours.timeline.to_json(),
            **change_json(found.change),
            "moves": [move.to_json() for move in moves],
        }
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
        return ExitCode.DONE
    verdict = (
        f"not judged: XLA's back end stops with and without them: {both.stops}"
        if both.stops
        else "accepted by XLA's GPU back end"
    )
    told = ours.timeline
    states = (xla.timeline.state, told.state)
    say(heading_of(states, beware((*told.remarks, *once_remark(told.counted_once)))))
    say(
        f"{arguments.function} for {told.priced_on}: {verdict}\n"
        f"{both.moved} of {both.common} instructions in another place\n"
        f"{_side_by_side(xla.timeline, ours.timeline)}"
    )
    if both.moved:
        say(found.to_text(says_machine=False))
    return ExitCode.DONE


def _side_by_side(xla: TimelineData, ours: TimelineData) -> str:
    lines = [f"{'':14}{'XLA alone':>16}{'with passes':>16}"]
    for label, name in _FIGURES:
        one, other = (f"{getattr(t, name):.1f} us" for t in (xla, ours))
        lines.append(f"{label:14}{one:>16}{other:>16}")
    one, other = (f"{t.peak_memory_bytes / _MIB:.1f} MiB" for t in (xla, ours))
    lines.append(f"{'peak memory':14}{one:>16}{other:>16}")
    return "".join(f"{line}\n" for line in lines)


COMPILE = own_command("compile", _configure, _run)
