"""`hlo-passes diff BEFORE AFTER`: which instructions moved, merged, appeared, went.

%main
merged    %a, %b -> %collective-permute
"""

from __future__ import annotations

import argparse
import json
import sys

from hlo_passes.analysis.module_diff import diff_modules
from hlo_passes.cli.command import Command
from hlo_passes.cli.exit_codes import ExitCode
from hlo_passes.cli.files import read_module


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--json", action="store_true", help="the difference as JSON")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit 4 when the modules differ"
    )


def _run(arguments: argparse.Namespace) -> int:
    found = diff_modules(read_module(arguments.before), read_module(arguments.after))
    if arguments.json:
        sys.stdout.write(json.dumps(found.to_json(), indent=1) + "\n")
    else:
        sys.stdout.write(found.to_text())
    if arguments.exit_code and not found.is_empty:
        return ExitCode.DIFFERENT
    return ExitCode.DONE


COMMAND = Command(
    "diff", "which instructions moved, merged, appeared, went", _configure, _run
)
