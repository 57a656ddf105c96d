"""`hlo-passes conformance DIR`: compares our passes with what XLA's passes did.

pass                      pairs  equal  changed by XLA  differ  seconds
async-collective-creator      3      3               3       0     0.04
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from hlo_passes.cli.command import own_command, positive
from hlo_passes.conformance.judge import Verdict, find_pairs, judge
from hlo_passes.errors import UsageError
from hlo_passes.executors.evaluator import Evaluator, Lost
from hlo_passes.executors.named import add_executor_argument, check_executor
from hlo_passes.exit_codes import ExitCode
from hlo_passes.progress import say

_COLUMNS = ("pass", "pairs", "equal", "changed by XLA", "differ", "seconds")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="folder with PASS.before.hlo[.gz] and PASS.after.hlo[.gz], at any depth",
    )
    parser.add_argument("--pass", dest="only", default="", help="judge only this pass")
    parser.add_argument(
        "--json", action="store_true", help="print the verdicts as JSON"
    )
    parser.add_argument(
        "--processes", type=positive, default=1, metavar="N",
        help="pairs judged at once on this machine; default: 1",
    )  # fmt: skip
    add_executor_argument(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_executor(arguments.executor)
    folder = pathlib.Path(arguments.folder)
    pairs, without = find_pairs(folder)
    if arguments.only:
        pairs = [pair for pair in pairs if pair.pass_name == arguments.only]
        if not pairs:
            raise UsageError(
                f"{folder}: no recorded pair of the pass {arguments.only}", code="U030"
            )
    verdicts: list[Verdict] = []
    with Evaluator(judge, arguments.executor, arguments.processes) as evaluator:
        for pair, found in zip(pairs, evaluator.map(pairs), strict=True):
            if isinstance(found, Lost):
                why = f"not judged: {found.problem}"
                found = Verdict(pair, why, xla_changed=False, seconds=0.0)
            verdicts.append(found)
    if arguments.json:
        found = [verdict.to_json(folder) for verdict in verdicts]
        view = {"verdicts": found, "passes_not_here": without}
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
    else:
        lines = _table(verdicts)
        for verdict in verdicts:
            if not verdict.is_equal:
                place = verdict.pair.before.relative_to(folder)
                lines.append(f"{place}: {verdict.difference}")
        for name, count in without.items():
            lines.append(f"no such pass: {name} ({count} pairs)")
        say("\n".join(lines) + "\n")
    all_equal = all(verdict.is_equal for verdict in verdicts)
    return ExitCode.DONE if all_equal else ExitCode.DIFFERENT


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name in sorted({v.pair.pass_name for v in verdicts}):
        of_pass = [v for v in verdicts if v.pair.pass_name == name]
        equal = sum(v.is_equal for v in of_pass)
        changed = sum(v.xla_changed for v in of_pass)
        numbers = (len(of_pass), equal, changed, len(of_pass) - equal)
        seconds = f"{sum(v.seconds for v in of_pass):.2f}"
        rows.append((name, *map(str, numbers), seconds))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


COMMAND = own_command("conformance", _configure, _run)
